"""Start drivers in processes of their own: a Python process has one Spark session, and the tests' own is local."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fleet
from until import until

from ferryman._os.processes import end_with_parent
from ferryman._spark.session.local_cluster import Worker

DRIVE = Path(__file__).with_name("drive.py")


def warmed(worker: Worker) -> bool:
    """Tell whether the executor on a host has done all it was asked to: a new one is made warm before it is used."""
    logs = sorted(worker.work.glob("app-*/*/stderr"), key=lambda log: log.stat().st_mtime)
    said = logs[-1].read_text(errors="replace") if logs else ""
    return 0 < said.count("Running task ") == said.count("Finished task ")


@dataclass(frozen=True)
class Driver:
    """A driver that runs, and the files it shares with the test."""

    process: subprocess.Popen[bytes]
    files: Path
    log: Path

    def epochs(self) -> list[dict[str, Any]]:
        """Read what the driver has said of its epochs so far."""
        said = (self.files / "progress").read_text() if (self.files / "progress").exists() else ""
        # The last line may be half written.
        return [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith("\n")]

    def until(self, condition, what: str):
        """Wait for a condition, unless the driver ends before."""
        found = until(lambda: condition() or self.process.poll() is not None, what, 200, self.log)
        assert self.process.poll() is None, f"ended before: {what}\n{self.said()}"
        return found

    def inside(self, row: int) -> dict[str, Any]:
        """Wait until a task has stopped at a row; tell on which host, and which instance it is."""
        path = self.files / f"{row}.inside"
        self.until(path.exists, f"a task at row {row}")
        return json.loads(path.read_text())

    def finish(self, timeout: float = 200) -> None:
        """Wait until the driver has ended, with all its work done."""
        assert self.process.wait(timeout) == 0, self.said()

    def kill(self) -> None:
        """Send SIGKILL to the driver and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def said(self) -> str:
        """Give the end of the driver's output."""
        return self.log.read_text()[-6000:]


@dataclass(frozen=True)
class Run:
    """One job in a directory of its own: how large it is, and where."""

    place: Path
    master: str
    cores: int
    rows: int
    per_epoch: int
    instances: int
    parts: tuple[str, ...] = ("trail", "words")

    def stop_at(self, row: int) -> None:
        """Have a task stop when it processes a row; before the driver starts."""
        (self.place / f"{row}.stop").touch()

    def go_on(self, row: int) -> None:
        """Let the task at a row go on."""
        (self.place / f"{row}.go").touch()

    @contextlib.contextmanager
    def driver(self, **conf: str) -> Iterator[Driver]:
        """Start a driver of the job; it is gone when the block ends."""
        log = self.place / "log"
        (self.place / "parts.json").write_text(json.dumps(self.parts))
        words = [self.place / "checkpoint", self.place / "out", self.rows, self.per_epoch, self.instances, self.master]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, str(DRIVE), *map(str, words), str(self.cores), str(self.place), json.dumps(conf)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        driver = Driver(process, self.place, log)
        try:
            yield driver
        finally:
            driver.kill()

    def check(self, spark) -> None:
        """Compare all that the job gave with what it should have given, for every row or those until it was stopped."""
        found = fleet.found(spark, str(self.place / "checkpoint"), str(self.place / "out"), self.parts)
        rows = sum(n for _, n, _ in found["Trail"]) if (self.place / "changes.json").exists() else self.rows
        assert found == fleet.expected(rows, self.parts)


def hosts(epoch: dict[str, Any]) -> list[str]:
    """Give the host of every instance in an epoch; all operators' instances of one number share it."""
    found = {tuple(operator["hosts"]) for operator in epoch["operators"].values()}
    assert len(found) == 1, f"epoch {epoch['epoch']}: the operators were placed differently: {found}"
    return list(found.pop())
