"""A Spark standalone cluster on this machine: a master, and workers that are different hosts to Spark.

Each worker has a loopback address and directories of its own, so nothing but the checkpoint directory is
shared between them. The pip package has all that is needed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from ferryman._demo.processes import Process, below, end
from ferryman._spark import java

MASTER = "127.0.0.1"
HOSTS = ("127.0.0.2", "127.0.0.3")
START_S = 120


@dataclass(frozen=True)
class Worker:
    """One host of the cluster."""

    host: str
    process: subprocess.Popen[bytes]
    local: Path
    work: Path
    log: Path

    def executors(self) -> list[Process]:
        """List the executors' JVMs that run on this host now."""
        return [one for one in below(self.process.pid) if "CoarseGrainedExecutorBackend" in one.command]

    def homes(self, operator: str) -> list[Path]:
        """List the directories on this host that hold main copies of an operator."""
        return list(self.local.glob(f"**/ferryman/*/*/{operator}"))


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    url: str
    workers: tuple[Worker, ...]

    def worker(self, host: str) -> Worker:
        """Find the worker that is a host."""
        return next(one for one in self.workers if one.host == host)


def available() -> bool:
    """Tell whether this machine answers to more than one loopback address; macOS does not by itself."""
    for host in HOSTS:
        with socket.socket() as probe:
            try:
                probe.bind((host, 0))
            except OSError:
                return False
    return True


def until(condition, what: str, timeout: float = START_S, log: Path | None = None):
    """Wait until a condition gives something true, and return that."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s\n{log.read_text()[-4000:] if log else ''}")
        time.sleep(0.02)


@contextlib.contextmanager
def standalone(place: Path, *, cores: int = 2, memory: str = "1g") -> Iterator[Cluster]:
    """Run a master and one worker per host, until the block ends; then end exactly these."""
    java.ensure()
    started: list[subprocess.Popen[bytes]] = []
    try:
        master, log = _launch(
            started, place, MASTER, "master.Master", "--host", MASTER, "--port", "0", "--webui-port", "0"
        )
        url = until(lambda: _said(master, log, r"Starting Spark master at (spark://\S+)"), "master", log=log)[0]
        workers = []
        for host in HOSTS:
            room = ("--cores", str(cores), "--memory", memory, "--work-dir", str(place / host / "work"))
            worker, own_log = _launch(
                started, place, host, "worker.Worker", "--host", host, "--webui-port", "0", *room, url
            )
            workers.append(Worker(host, worker, place / host / "local", place / host / "work", own_log))
        for one in workers:
            registered = rf"Registering worker {re.escape(one.host)}:"
            until(lambda one=one, line=registered: one.process.poll() is not None or _said(master, log, line), "worker")
            assert one.process.poll() is None, one.log.read_text()[-4000:]
        yield Cluster(url, tuple(workers))
    finally:
        # An executor's Python daemon leads a process group of its own, so groups alone would not name everything.
        family = [descendant for one in started for descendant in below(one.pid)]
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for one in reversed(started):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, sign)
            for one in started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.wait(10)
        end(family)


def _launch(
    started: list[subprocess.Popen[bytes]], place: Path, host: str, daemon: str, *arguments: str
) -> tuple[subprocess.Popen[bytes], Path]:
    own = place / host
    for folder in ("local", "work", "conf"):
        (own / folder).mkdir(parents=True)
    spark = Path(_find_spark_home())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "SPARK_HOME": str(spark),
        # Whatever this machine is configured for, this cluster is not.
        "SPARK_CONF_DIR": str(own / "conf"),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(own / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # It listens on a fixed port that a neighbour may have.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }
    log = own / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{daemon}", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started.append(process)
    return process, log


def _said(process: subprocess.Popen[bytes], log: Path, pattern: str) -> list[str]:
    """Find what a process has logged; fail if it has ended."""
    text = log.read_text(errors="replace")
    assert process.poll() is None, text[-4000:]
    return re.findall(pattern, text)
