"""Whose process is whose: the hosts of a campaign's cluster, and its driver."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from ferryman._os.processes import Process, below, java_of, processes
from ferryman._spark.session.local_cluster import Worker

_STATE_HOST = "ferryman._serve.state_host"


class Host:
    """One host: an executor, its Python workers, a state host."""

    def __init__(self, worker: Worker) -> None:
        self.name = worker.host
        self._worker = worker

    def executors(self) -> list[int]:
        """List the executors' JVMs."""
        return [process.id for process in self._worker.executors()]

    def python_workers(self) -> list[int]:
        """List the Python workers: what the executor's Python daemon has forked."""
        family = [process for process in below(self._worker.pid) if process.command.endswith(" pyspark.worker")]
        known = {process.id for process in family}
        return [process.id for process in family if process.parent in known]

    def state_hosts(self) -> list[int]:
        """List the state hosts; one whose parent was killed is nobody's child."""
        mine = f"SPARK_LOCAL_DIRS={self._worker.place / 'local'}"
        found = (process.id for process in processes().values() if _STATE_HOST in process.command)
        return [id for id in found if mine in variables(id)]

    def python(self) -> list[int]:
        """List all Python processes: daemon, workers, state host."""
        workers = [process.id for process in below(self._worker.pid) if " pyspark.worker" in process.command]
        return [*workers, *self.state_hosts()]

    def everything(self) -> list[int]:
        """List all processes but Spark's own worker, the executor first: it would start the others again."""
        listed = [*self.executors(), *(process.id for process in below(self._worker.pid)), *self.state_hosts()]
        return list(dict.fromkeys(listed))

    def homes(self) -> list[Path]:
        """List what is kept of state on its disk."""
        return self._worker.homes("Trail")


class Driver:
    """The driver that a supervisor watches over; now this process, now that."""

    def __init__(self, supervisor: int) -> None:
        self._supervisor = supervisor

    def process(self) -> Process | None:
        """Find the driver's process."""
        return next((one for one in processes().values() if one.parent == self._supervisor), None)

    def java(self) -> Process | None:
        """Find its JVM."""
        found = self.process()
        return java_of(found.id) if found is not None else None

    def family(self) -> list[int]:
        """List the driver and all below it."""
        found = self.process()
        return [] if found is None else [found.id, *(process.id for process in below(found.id))]


def variables(process: int) -> list[str]:
    """List the variables that a process was started with."""
    try:
        return Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def send(number: int, ids: Iterable[int]) -> list[int]:
    """Send a signal to processes; list those that were there."""
    reached = []
    for id in ids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(id, number)
            reached.append(id)
    return reached


def wake(ids: Iterable[int]) -> None:
    """Have processes go on that may have been stopped."""
    send(signal.SIGCONT, ids)
