"""A whole job with its checkpoint in an object store: killed, started again on another machine, and looked at."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fleet
import pytest
import s3_server
from typer.testing import CliRunner
from until import until

from ferryman._cli import app
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._os.faults import STEPS

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

DRIVE = Path(__file__).with_name("drive.py")
PARTS = ("trail", "words")
ROWS, PER_EPOCH = 300, 50


@pytest.fixture(scope="module")
def store() -> Iterator[s3_server.Server]:
    with s3_server.server() as running:
        yield running


class Place:
    """A job's places: its checkpoint in the store, rows in and out on the disk."""

    def __init__(self, store: s3_server.Server, root: Path, name: str) -> None:
        self.checkpoint, self.root = store.uri(name), root
        self.out = root / "out"

    def drive(self, rows: int = ROWS, instances: int = 2, **environment: str) -> subprocess.Popen[str]:
        """Start a driver as a process group of its own, with nothing on its disk that another has left."""
        machine = self.root / f"machine-{len(list(self.root.iterdir()))}"
        machine.mkdir()
        arguments = [self.checkpoint, self.out, rows, PER_EPOCH, instances, "local[2,4]"]
        return subprocess.Popen(
            [sys.executable, str(DRIVE), *map(str, arguments)],
            env={
                **os.environ,
                "FLEET_PARTS": ",".join(PARTS),
                "FLEET_SOURCE": str(self.root / "source"),
                "TMPDIR": str(machine),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @property
    def log(self) -> Checkpoint:
        return Checkpoint(directory(self.checkpoint))

    def committed(self) -> int:
        return max(self.log.epochs(), default=0)

    def assert_right(self, spark, rows: int = ROWS) -> None:
        assert fleet.found(spark, self.checkpoint, str(self.out), PARTS) == fleet.expected(rows, PARTS)
        assert not verify(self.log).faults


def end(process: subprocess.Popen[str]) -> str:
    """Wait for a driver, and make sure that its JVM and workers are gone too."""
    output, _ = process.communicate(timeout=300)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return output


def command(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_a_job_killed_in_an_epoch_goes_on_from_the_bucket_on_another_machine(spark, store, tmp_path):
    place = Place(store, tmp_path, "killed")
    process = place.drive(FERRYMAN_FAULT="after-sink:3")
    output = end(process)
    assert process.returncode == -signal.SIGKILL, output
    assert place.committed() == 2
    begun = place.log.directory.read("spark/offsets/2").to_pybytes()

    process = place.drive(instances=3)
    output = end(process)
    assert process.returncode == 0, output

    assert place.log.manifest(3).spark.offsets[2].encode() == begun, "the epoch was redone from the same offsets"
    place.assert_right(spark)
    epochs = place.log.epochs()
    assert len(epochs) < place.committed(), "what is older than the retention is gone"
    assert place.log.snapshots()
    assert "sound: every file is as it was written" in command("verify", place.checkpoint)
    assert f"epoch {place.committed()}" in command("state", place.checkpoint)


@pytest.mark.slow
def test_a_job_killed_at_every_step_of_an_epoch_loses_and_doubles_nothing(spark, store, tmp_path):
    place, rows = Place(store, tmp_path, "steps"), 1600
    for number, step in enumerate(STEPS):
        process = place.drive(rows, 2 + number % 2, FERRYMAN_FAULT=f"{step}:{1 if step == 'start' else 2}")
        output = end(process)
        assert process.returncode == -signal.SIGKILL, f"{step} was not reached:\n{output}"
    process = place.drive(rows)
    output = end(process)
    assert process.returncode == 0, output
    place.assert_right(spark, rows)


@pytest.mark.slow
def test_a_driver_that_sleeps_while_another_takes_over_ends_and_changes_nothing(spark, store, tmp_path):
    place = Place(store, tmp_path, "two")
    asleep = place.drive(FERRYMAN_FAULT="before-manifest:3:stop")
    until(lambda: place.committed() == 2, "two epochs")
    until(lambda: "T" in Path(f"/proc/{asleep.pid}/stat").read_text().rpartition(")")[2].split()[0], "it sleeps")
    awake = place.drive()
    output = end(awake)
    assert awake.returncode == 0, output
    os.kill(asleep.pid, signal.SIGCONT)
    output = end(asleep)
    assert "SUPERSEDED" in output
    place.assert_right(spark)
