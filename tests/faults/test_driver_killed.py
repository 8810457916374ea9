"""The driver dies by SIGKILL at every step of an epoch, and at random moments; nothing is lost or doubled.

Each time it is started again on another machine, as far as it can tell: other cores, another zone, other instances.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import fleet
import pytest
from until import until

from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._os.faults import STEPS
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import disk_environment

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

DRIVE = Path(__file__).with_name("drive.py")
# Drivers come and go here, and each part makes one start later: the tests of one process have all of them.
PARTS = ("trail", "words")


# Where a job is started again: with more cores or fewer, in another time zone, with other instances.
CORES = (2, 1, 3)
ZONES = ("UTC", "America/St_Johns", "Asia/Kolkata", "Pacific/Auckland")


def drive(
    checkpoint: Path, out: Path, rows: int, per_epoch: int, instances: int = 2, *, cores: int = 2, **environment: str
):
    """Start a driver as a process group of its own."""
    return subprocess.Popen(
        [
            sys.executable,
            str(DRIVE),
            str(checkpoint),
            str(out),
            str(rows),
            str(per_epoch),
            str(instances),
            f"local[{cores},4]",
        ],
        env={**os.environ, "FLEET_PARTS": ",".join(PARTS), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process) -> str:
    """Wait for a driver, and make sure that its JVM and workers are gone too."""
    output, _ = process.communicate(timeout=240)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return output


def committed(checkpoint: Path) -> int:
    latest = Checkpoint(directory(str(checkpoint))).latest()
    return latest.epoch if latest else 0


def test_a_driver_killed_when_its_sinks_have_written_changes_nothing(spark, tmp_path):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    rows, per_epoch = 300, 50
    process = drive(checkpoint, out, rows, per_epoch, FERRYMAN_FAULT="after-sink:3")
    output = end(process)
    assert process.returncode == -signal.SIGKILL, output
    assert committed(checkpoint) == 2
    process = drive(checkpoint, out, rows, per_epoch, 3, cores=1, TZ="Asia/Kolkata")
    output = end(process)
    assert process.returncode == 0, output
    assert fleet.found(spark, str(checkpoint), str(out), PARTS) == fleet.expected(rows, PARTS)
    assert not verify(Checkpoint(directory(str(checkpoint)))).faults


def fault(step: str) -> str:
    """Say where a driver dies: in its second epoch, or at its start, of which there is one."""
    return f"{step}:{1 if step == 'start' else 2}"


@pytest.mark.slow
def test_a_driver_killed_at_every_step_of_an_epoch_changes_nothing(spark, tmp_path):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    rows, per_epoch = 1600, 50
    epochs = [0]
    # Each run resumes what the one before left; it dies at its own step, in its second or third epoch.
    for number, name in enumerate(STEPS):
        machine = {"cores": CORES[number % len(CORES)], "TZ": ZONES[number % len(ZONES)]}
        process = drive(checkpoint, out, rows, per_epoch, 2 + number % 2, **machine, FERRYMAN_FAULT=fault(name))
        output = end(process)
        assert process.returncode == -signal.SIGKILL, f"{name} was not reached:\n{output}"
        epochs.append(committed(checkpoint))
    assert epochs[-1] > epochs[1], "the runs made no progress between the kills"
    process = drive(checkpoint, out, rows, per_epoch)
    output = end(process)
    assert process.returncode == 0, output
    assert fleet.found(spark, str(checkpoint), str(out), PARTS) == fleet.expected(rows, PARTS)
    report = verify(Checkpoint(directory(str(checkpoint))))
    assert not report.faults


def unsynced_disk(root: Path, journal: Path) -> dict[str, str]:
    """Have a driver write to a disk that forgets what was not synced; the rows it reads are on another."""
    root.mkdir()
    source = str(root.with_name("source"))
    return {"FLEET_FSYNC": "1", "FLEET_SOURCE": source, **disk_environment(root, journal)}


def test_the_power_is_cut_before_an_epoch_is_committed_and_nothing_is_lost_or_doubled(spark, tmp_path):
    root, journal = tmp_path / "disk", tmp_path / "journal"
    disk = unsynced_disk(root, journal)
    checkpoint, out = root / "checkpoint", root / "out"
    rows, per_epoch = 300, 50
    process = drive(checkpoint, out, rows, per_epoch, FERRYMAN_FAULT="before-manifest:3", **disk)
    output = end(process)
    assert process.returncode == -signal.SIGKILL, output
    power_cut(root, journal, int(os.environ.get("FERRYMAN_SEED", "11")))
    assert committed(checkpoint) == 2, "a committed epoch was lost"
    process = drive(checkpoint, out, rows, per_epoch, **disk)
    output = end(process)
    assert process.returncode == 0, output
    assert fleet.found(spark, str(checkpoint), str(out), PARTS) == fleet.expected(rows, PARTS)
    assert not verify(Checkpoint(directory(str(checkpoint)))).faults


@pytest.mark.slow
def test_the_power_is_cut_at_every_step_of_an_epoch_and_nothing_is_lost_or_doubled(spark, tmp_path):
    root, journal = tmp_path / "disk", tmp_path / "journal"
    disk = unsynced_disk(root, journal)
    checkpoint, out = root / "checkpoint", root / "out"
    rows, per_epoch = 1600, 50
    seed = int(os.environ.get("FERRYMAN_SEED", "11"))
    promised = 0
    for number, name in enumerate(STEPS):
        machine = {"cores": CORES[number % len(CORES)], "TZ": ZONES[number % len(ZONES)]}
        process = drive(
            checkpoint, out, rows, per_epoch, 2 + number % 2, **machine, FERRYMAN_FAULT=fault(name), **disk
        )  # fmt: skip
        output = end(process)
        assert process.returncode == -signal.SIGKILL, f"{name} was not reached:\n{output}"
        # What a kill leaves may be more than what was promised by an epoch: the one it was killed in.
        promised = max(promised, committed(checkpoint) - 1)
        power_cut(root, journal, seed + number)
        assert committed(checkpoint) >= promised, f"after {name} a committed epoch was lost"
        promised = committed(checkpoint)
    process = drive(checkpoint, out, rows, per_epoch, **disk)
    output = end(process)
    assert process.returncode == 0, output
    epochs = committed(checkpoint)
    power_cut(root, journal, seed)
    assert committed(checkpoint) == epochs, "what a job that has ended had committed is there"
    process = drive(checkpoint, out, rows, per_epoch, **disk)
    output = end(process)
    assert process.returncode == 0, output
    assert fleet.found(spark, str(checkpoint), str(out), PARTS) == fleet.expected(rows, PARTS)
    assert not verify(Checkpoint(directory(str(checkpoint)))).faults


@pytest.mark.slow
def test_a_driver_killed_at_random_moments_changes_nothing(spark, tmp_path):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    rows, per_epoch = 560, 40
    chance = random.Random(int(os.environ.get("FERRYMAN_SEED", "11")))
    for _ in range(2):
        before = committed(checkpoint)
        machine = {"cores": chance.choice(CORES), "TZ": chance.choice(ZONES)}
        process = drive(checkpoint, out, rows, per_epoch, chance.choice([1, 2, 3]), **machine)
        # Wait for an epoch of this run, then for some part of the next few.
        until(lambda at=before, run=process: committed(checkpoint) > at or run.poll() is not None, "there is no epoch")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(chance.random() * 1.5)
        os.killpg(process.pid, signal.SIGKILL)
        end(process)
    process = drive(checkpoint, out, rows, per_epoch)
    output = end(process)
    assert process.returncode == 0, output
    assert fleet.found(spark, str(checkpoint), str(out), PARTS) == fleet.expected(rows, PARTS)


@pytest.mark.slow
def test_a_driver_killed_while_keys_are_pinned_and_unpinned_changes_nothing(spark, tmp_path):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    rows, per_epoch = 1040, 40
    for key, name in (("s-0", "after-sink"), ("s-1", "before-manifest"), ("s-2", "after-manifest")):
        process = drive(checkpoint, out, rows, per_epoch, FLEET_PIN=key, FERRYMAN_FAULT=f"{name}:6")
        output = end(process)
        assert process.returncode == -signal.SIGKILL, f"{name} was not reached:\n{output}"
    process = drive(checkpoint, out, rows, per_epoch)
    output = end(process)
    assert process.returncode == 0, output
    assert fleet.found(spark, str(checkpoint), str(out), PARTS) == fleet.expected(rows, PARTS)
    log = Checkpoint(directory(str(checkpoint)))
    assert not verify(log).faults
    routing = log.latest().routing
    assert routing.version > 2, "no key was ever pinned"
