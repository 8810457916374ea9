"""A Spark standalone cluster on this machine: a master, and workers that are different hosts to Spark.

Each worker has a loopback address and directories of its own, so nothing but what a job shares on purpose is shared
between them, and state really has to travel. The pip package of Spark has all that is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ferryman._model.errors import InvalidConfiguration
from ferryman._os import java
from ferryman._os.processes import Process, below, end, end_with_parent, look
from ferryman._spark.compat.start import spark_home

MASTER = "127.0.0.1"
START_S = 120.0

_FILE = "cluster.json"

# Compiling well takes them longer than they live.
_SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Worker:
    """One host of the cluster.

    Attributes
    ----------
    host
        Its address.
    pid
        Its process.
    place
        Its directory, with `local`, `work` and `log` in it.
    """

    host: str
    pid: int
    place: Path

    @property
    def work(self) -> Path:
        """Give the directory of its executors."""
        return self.place / "work"

    def decommission(self) -> None:
        """Announce that this host is about to go: it is given no tasks any more."""
        os.kill(self.pid, signal.SIGPWR)

    def executors(self) -> list[Process]:
        """List the executors' JVMs that run on this host now."""
        return [process for process in below(self.pid) if "CoarseGrainedExecutorBackend" in process.command]

    def homes(self, operator: str) -> list[Path]:
        """List the directories on this host that hold main copies of an operator."""
        return list((self.place / "local").glob(f"**/ferryman-*/*/*/{operator}"))


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    url: str
    workers: tuple[Worker, ...]

    def worker(self, host: str) -> Worker:
        """Find the worker that is a host."""
        return next(worker for worker in self.workers if worker.host == host)


def addresses(hosts: int) -> tuple[str, ...]:
    """Give the loopback addresses of so many hosts."""
    return tuple(f"127.0.0.{number}" for number in range(2, 2 + hosts))


def available(hosts: int = 2) -> bool:
    """Tell whether this machine answers to more than one loopback address; macOS does not by itself."""
    for host in addresses(hosts):
        with socket.socket() as probe:
            try:
                probe.bind((host, 0))
            except OSError:
                return False
    return True


def up(place: Path, *, hosts: int = 2, cores: int = 2, memory: str = "1g", ends_with_us: bool = False) -> Cluster:
    """Start a master and workers that go on until `down`.

    Parameters
    ----------
    place
        A directory for their files; it must not hold a cluster already.
    hosts
        How many workers there are, each with an address of its own.
    cores, memory
        What each of them offers.
    ends_with_us
        Whether they end with this process too, however it ends; on Linux only.
    """
    if not available(hosts):
        raise InvalidConfiguration(
            f"this machine does not answer to {addresses(hosts)[-1]}. On macOS: sudo ifconfig lo0 alias 127.0.0.2"
        )
    if (place / _FILE).exists():
        raise InvalidConfiguration(f"{place} holds a cluster already. End it with `ferryman cluster down` first.")
    java.ensure()
    started: list[subprocess.Popen[bytes]] = []
    try:
        own = place / MASTER
        arguments = ("--host", MASTER, "--port", "0", "--webui-port", "0")
        master = _launch(started, own, MASTER, "master.Master", *arguments, ends_with_us=ends_with_us)
        url = _until(lambda: _said(master, own, r"Starting Spark master at (spark://\S+)"), "the master")[0]
        room = (cores, memory)
        workers = [_worker(started, place, host, url, room, ends_with_us) for host in addresses(hosts)]
        for worker, process in zip(workers, started[1:], strict=True):
            _until(partial(_registered, worker, process, master, own), f"the worker {worker.host}")
    except BaseException:
        _end([process.pid for process in started])
        raise
    _note(place, url, [], started)
    return Cluster(url, tuple(workers))


def join(place: Path, cluster: Cluster, *, cores: int = 2, memory: str = "1g", ends_with_us: bool = False) -> Worker:
    """Start one host more, with the next address; the master gives executors there to applications that want more."""
    started: list[subprocess.Popen[bytes]] = []
    known = json.loads((place / _FILE).read_text())["processes"]
    # The master is the first.
    host = addresses(len(known))[-1]
    worker = _worker(started, place, host, cluster.url, (cores, memory), ends_with_us)
    _note(place, cluster.url, known, started)
    return worker


def _worker(
    started: list[subprocess.Popen[bytes]], place: Path, host: str, url: str, room: tuple[int, str], ends_with_us: bool
) -> Worker:
    offer = ("--cores", str(room[0]), "--memory", room[1], "--work-dir", str(place / host / "work"))
    words = ("--host", host, "--webui-port", "0", *offer, url)
    process = _launch(started, place / host, host, "worker.Worker", *words, ends_with_us=ends_with_us)
    return Worker(host, process.pid, place / host)


def _registered(
    worker: Worker, process: subprocess.Popen[bytes], master: subprocess.Popen[bytes], own: Path
) -> list[str]:
    """Find what the master says of a worker; fail if one of them has ended."""
    return _said(process, worker.place, "") and _said(master, own, rf"Registering worker {re.escape(worker.host)}:")


def _note(place: Path, url: str, known: list[dict[str, object]], started: list[subprocess.Popen[bytes]]) -> None:
    """Write down what is to be ended."""
    new = [{"pid": process.pid, "started": _started(process.pid)} for process in started]
    (place / _FILE).write_text(json.dumps({"url": url, "processes": [*known, *new]}))


def down(place: Path) -> int:
    """End a cluster: exactly what `up` started, and all below it; tell how many processes that were."""
    try:
        known = json.loads((place / _FILE).read_text())["processes"]
    except FileNotFoundError:
        raise InvalidConfiguration(
            f"{place} holds no cluster. Give the directory that `ferryman cluster up` named."
        ) from None
    # A process id may belong to somebody else by now.
    ended = _end([process["pid"] for process in known if _started(process["pid"]) == process["started"]])
    (place / _FILE).unlink()
    return ended


@contextlib.contextmanager
def standalone(place: Path, *, hosts: int = 2, cores: int = 2, memory: str = "1g") -> Iterator[Cluster]:
    """Run a cluster until the block ends, or this process."""
    cluster = up(place, hosts=hosts, cores=cores, memory=memory, ends_with_us=True)
    try:
        yield cluster
    finally:
        down(place)


def _launch(
    started: list[subprocess.Popen[bytes]], own: Path, host: str, daemon: str, *arguments: str, ends_with_us: bool
) -> subprocess.Popen[bytes]:
    for folder in ("local", "work"):
        (own / folder).mkdir(parents=True, exist_ok=True)
    spark = Path(spark_home())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "SPARK_HOME": str(spark),
        # Whatever this machine is configured for, this cluster is not: there is no such folder.
        "SPARK_CONF_DIR": str(own / "conf"),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(own / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_DAEMON_JAVA_OPTS", _SHORT_RUN),
        # It listens on a fixed port that a neighbour may have.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        # SIGPWR takes a worker out of the cluster; its executors end when their tasks have.
        "SPARK_WORKER_OPTS": "-Dspark.decommission.enabled=true",
    }
    with (own / "log").open("wb") as output:
        process = subprocess.Popen(
            [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent if ends_with_us else None,
        )
    started.append(process)
    return process


def _until(condition: Callable[[], list[str]], what: str) -> list[str]:
    deadline = time.monotonic() + START_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise InvalidConfiguration(f"{what} did not come up within {START_S:.0f} s.")
        time.sleep(0.02)
    return found


def _said(process: subprocess.Popen[bytes], own: Path, pattern: str) -> list[str]:
    """Find what a process has logged; fail if it has ended."""
    text = (own / "log").read_text(errors="replace")
    if process.poll() is not None:
        raise InvalidConfiguration(
            f"a process of the cluster has ended; its log {own / 'log'} ends so:\n{text[-2000:]}"
        )
    return re.findall(pattern, text)


def _started(pid: int) -> str:
    found = look(pid)
    return found.started if found else ""


def _end(pids: list[int]) -> int:
    # An executor's Python daemon leads a process group of its own, so groups alone would not name everything.
    family = [member for pid in pids for member in (look(pid), *below(pid)) if member is not None]
    for pid in reversed(pids):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)
    end(family, patience_s=10)
    return len(family)
