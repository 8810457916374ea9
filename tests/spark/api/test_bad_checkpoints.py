"""Checkpoints that are damaged, foreign, taken or unwritable: a clear error, nothing lost, and the job goes on.

A home is a cache and Spark has a log of its own, so every damage below is met by a job that has to rebuild
its state: none may be passed over.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from readings import NAME, Readings, Trail, check_message, epoch_rows, expected

from ferryman import sinks
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.card import FORMAT
from ferryman._spark.sinks.sinks import MemorySink
from ferryman.errors import (
    CheckpointInUse,
    CheckpointUnwritable,
    CorruptCheckpoint,
    ForeignCheckpoint,
    InvalidConfiguration,
    MissingDelta,
    NewerFormat,
)

# -- damaged files -----------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="module")
def ran(spark, tmp_path_factory) -> Readings:
    """Run three epochs, keep the checkpoint twice, and have the file of a fourth epoch ready.

    `checkpoint` needs every delta; `folded` rests on a snapshot of epoch 2, and what came before is gone.
    """
    job = Readings(spark, tmp_path_factory.mktemp("ran"), epochs=3)
    job.run()
    plain, job.checkpoint = job.checkpoint, job.root / "folded"
    shutil.copytree(plain, job.checkpoint)
    write_snapshot(job.log, 2)
    assert prune(job.log, 2) > 0
    job.checkpoint = plain
    job.put(4, epoch_rows(4))
    return job


def copied(ran: Readings, to: Path, kind: str = "checkpoint") -> Readings:
    """Take a checkpoint to a place of its own, with no home there."""
    job = Readings(ran.spark, to, epochs=0)
    job.files, job.epochs = ran.files, 4
    shutil.copytree(ran.root / kind, job.checkpoint)
    return job


def assert_went_on(job: Readings) -> None:
    """Check that the fourth epoch, and only it, was run on top of what was there."""
    job.run()
    before, after = (expected(row for epoch in range(1, 1 + n) for row in epoch_rows(epoch)) for n in (3, 4))
    assert job.state() == after[0]
    assert {tuple(row.values()) for row in job.sink.rows()} == set(after[1]) - set(before[1])
    assert len(job.sink.rows()) == 8
    assert job.log.epochs()[-1] == 4


CARD = "ferryman.json"
M1, M2, M3 = (f"manifests/{epoch:012d}.json" for epoch in (1, 2, 3))
D2, D3 = "deltas/000000000002-*", "deltas/000000000003-*"
LIST, SNAPSHOT = "snapshots/000000000002.json", "snapshots/*.parquet"
RESTORE = "Restore the file from a backup"
WHOLE = "would lose rows or count them twice. Restore the whole checkpoint"

DAMAGE: list[tuple[str, str, Callable[[Path], None], type[Exception], list[str]]] = [
    ("checkpoint", CARD, truncate, CorruptCheckpoint, [r"ferryman\.json .*truncated or altered", RESTORE]),
    ("checkpoint", CARD, flip, CorruptCheckpoint, [r"ferryman\.json .*truncated or altered", RESTORE]),
    ("checkpoint", CARD, empty, CorruptCheckpoint, [r"ferryman\.json .*truncated or altered", RESTORE]),
    ("checkpoint", CARD, remove, ForeignCheckpoint, [r"no ferryman\.json", "restore the file"]),
    ("checkpoint", M3, truncate, CorruptCheckpoint, [M3, "truncated or altered", RESTORE]),
    ("checkpoint", M3, flip, CorruptCheckpoint, [M3, "truncated or altered", RESTORE]),
    ("checkpoint", M3, remove, MissingDelta, ["Spark has committed micro-batch 2", "newest .* epoch 2", WHOLE]),
    ("checkpoint", M2, truncate, CorruptCheckpoint, [M2, "truncated or altered", RESTORE]),
    ("checkpoint", M2, flip, CorruptCheckpoint, [M2, "truncated or altered", RESTORE]),
    ("checkpoint", M2, remove, MissingDelta, ["no manifest of epoch 2", M2]),
    ("checkpoint", M1, remove, MissingDelta, ["epoch 3 .* cannot be rebuilt", "epochs 1 to 3"]),
    ("checkpoint", D2, truncate, CorruptCheckpoint, ["deltas/000000000002-Trail", r"bytes instead of \d+", RESTORE]),
    ("checkpoint", D2, flip, CorruptCheckpoint, ["deltas/000000000002-Trail", "altered bytes", RESTORE]),
    ("checkpoint", D2, remove, MissingDelta, ["deltas/000000000002-Trail.* is missing", RESTORE]),
    ("checkpoint", D3, flip, CorruptCheckpoint, ["deltas/000000000003-Trail", "altered bytes", RESTORE]),
    ("checkpoint", D3, remove, MissingDelta, ["deltas/000000000003-Trail.* is missing", RESTORE]),
    ("checkpoint", "manifests", remove, MissingDelta, ["micro-batch 2", "there is no manifest", WHOLE]),
    ("checkpoint", "spark", remove, MissingDelta, ["spark/sources/0/2 is missing", WHOLE]),
    ("checkpoint", "spark/sources/0/2", empty, CorruptCheckpoint, ["spark/sources/0/2 .*truncated or altered", WHOLE]),
    ("checkpoint", "spark/offsets/2", flip, CorruptCheckpoint, ["spark/offsets/2 .*truncated or altered", WHOLE]),
    ("folded", SNAPSHOT, truncate, CorruptCheckpoint, ["000000000002-Trail-.*parquet", "bytes instead of", RESTORE]),
    ("folded", SNAPSHOT, flip, CorruptCheckpoint, ["000000000002-Trail-.*parquet", "altered bytes", RESTORE]),
    ("folded", SNAPSHOT, remove, MissingDelta, ["000000000002-Trail-.*parquet is missing", RESTORE]),
    ("folded", LIST, truncate, CorruptCheckpoint, [LIST, "truncated or altered", RESTORE]),
    ("folded", LIST, flip, CorruptCheckpoint, [LIST, "truncated or altered", RESTORE]),
    ("folded", LIST, remove, MissingDelta, ["epoch 3 .* cannot be rebuilt", "epochs 1 to 3"]),
    ("folded", "manifests", remove, MissingDelta, ["micro-batch 2", "there is no manifest", WHOLE]),
]


@pytest.mark.parametrize(
    ("kind", "name", "damage", "error", "says"), DAMAGE, ids=lambda value: getattr(value, "__name__", None)
)
def test_damage_is_named_and_once_it_is_restored_the_job_goes_on(ran, tmp_path, kind, name, damage, error, says):
    job = copied(ran, tmp_path, kind)
    epochs = job.log.epochs()
    damaged = sorted(job.checkpoint.glob(name))[0]
    damage(damaged)
    left = job.log.epochs()

    with pytest.raises(error) as caught:
        job.run()

    check_message(caught.value, error, says)
    assert job.log.epochs() == left, "nothing was committed on top of what is damaged"
    assert job.sink.rows() == []
    sound = ran.root / kind / damaged.relative_to(job.checkpoint)
    if sound.is_dir():
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(sound, damaged)
    else:
        shutil.copy(sound, damaged)
    assert job.log.epochs() == epochs
    assert_went_on(job)


@pytest.mark.parametrize("damage", [remove, truncate, empty])
def test_what_a_power_cut_leaves_of_sparks_log_is_mended_and_the_job_goes_on(ran, tmp_path, damage, caplog):
    job = copied(ran, tmp_path)
    query = (job.checkpoint / "spark/metadata").read_bytes()
    for name in ("metadata", "offsets/1", "offsets/2", "commits/1", "commits/2"):
        damage(job.checkpoint / "spark" / name)
    # A batch that was begun and that no sink has seen.
    (job.checkpoint / "spark/offsets/3").write_bytes(b"")
    (job.checkpoint / "spark/sources/0/3").write_bytes(b"")

    assert_went_on(job)

    assert (job.checkpoint / "spark/metadata").read_bytes() == query
    assert "spark/offsets/2 was written again" in caplog.text


def test_a_manifest_in_the_place_of_another_is_noticed(ran, tmp_path):
    for number, (wrong, right) in enumerate([(M3, M2), (M2, M1)]):
        job = copied(ran, tmp_path / str(number))
        shutil.copy(job.checkpoint / right, job.checkpoint / wrong)

        with pytest.raises(CorruptCheckpoint, match=rf"{wrong} .*manifest of another epoch, .*Restore the file"):
            job.run()

        shutil.copy(ran.checkpoint / wrong, job.checkpoint / wrong)
    assert_went_on(job)


def test_damage_to_what_a_snapshot_covers_does_not_matter(ran, tmp_path):
    job = copied(ran, tmp_path)
    write_snapshot(job.log, 2)
    remove(job.checkpoint / M1)
    for delta in job.checkpoint.glob(D2):
        flip(delta)

    assert_went_on(job)


def test_a_damaged_delta_is_noticed_by_a_home_that_is_only_one_epoch_behind(spark, tmp_path):
    job = Readings(spark, tmp_path)
    spoilt: list[Path] = []

    class Spoils(MemorySink):
        """Spoil a delta of the second epoch after its task has written it; the third epoch reads it."""

        def write(self, rows, epoch):
            written = super().write(rows, epoch)
            if epoch == 2 and not spoilt:
                spoilt.append(sorted(job.checkpoint.glob(D2))[0])
                shutil.copy(spoilt[0], tmp_path / "sound")
                flip(spoilt[0])
            return written

    job.sink = Spoils()
    job.fails(CorruptCheckpoint, "deltas/000000000002-Trail", "altered bytes", RESTORE, committed=2)

    shutil.copy(tmp_path / "sound", spoilt[0])
    job.run()
    job.assert_right()


def test_altered_offsets_are_noticed_after_a_silent_epoch_too(spark, tmp_path):
    job = Readings(spark, tmp_path, epochs=1)
    running = job.start(job.stream(idle="50 milliseconds").key_by("key").process(Trail), trigger=None)
    assert running.wait_for(
        lambda: any(progress.silent and progress.batch == 0 for progress in running.progress()), timeout=120
    )
    running.stop()
    offsets = job.checkpoint / "spark/offsets/0"
    sound = offsets.read_bytes()
    flip(offsets)

    with pytest.raises(CorruptCheckpoint, match=r"spark/offsets/0 .* is not what epoch \d+ was committed with"):
        job.run()

    offsets.write_bytes(sound)
    job.put(2, epoch_rows(2))
    job.run()
    assert job.state() == expected(epoch_rows(1) + epoch_rows(2))[0]


# -- checkpoints that are not this job's ---------------------------------------------------------------


def test_a_checkpoint_of_another_job_is_refused(ran, tmp_path):
    job = copied(ran, tmp_path)

    says = ("belongs to job 'readings', and this is job 'others'", "a checkpoint of its own")
    job.fails(ForeignCheckpoint, *says, name="others", committed=3)

    assert_went_on(job)


def test_a_checkpoint_of_a_newer_format_is_refused(ran, tmp_path):
    job = copied(ran, tmp_path)
    card = job.log.card()
    job.log.create(dataclasses.replace(card, format=FORMAT + 1))

    with pytest.raises(NewerFormat) as caught:
        job.run()

    says = [f"written in format {FORMAT + 1}", f"reads up to format {FORMAT}", "Upgrade ferryman, or start"]
    check_message(caught.value, NewerFormat, says)
    job.log.create(card)
    assert_went_on(job)


def test_other_key_groups_than_the_checkpoints_are_refused(ran, tmp_path):
    job = copied(ran, tmp_path)

    with pytest.raises(InvalidConfiguration, match=r"groups=16: .* was made with 8 key groups, .*Leave `groups` out"):
        job.run(job.stream(groups=16).key_by("key").process(Trail))

    assert_went_on(job)


def test_a_plain_spark_checkpoint_is_left_as_it_is(spark, tmp_path):
    job = Readings(spark, tmp_path)
    plain = job.frame().writeStream.format("noop").option("checkpointLocation", str(job.checkpoint))
    plain.trigger(availableNow=True).start().awaitTermination()
    before = sorted(path.relative_to(job.checkpoint) for path in job.checkpoint.rglob("*"))

    with pytest.raises(ForeignCheckpoint) as caught:
        job.run()

    says = ["is the checkpoint of a Spark query", "left as it is", "another directory", "statestore", "initialState"]
    check_message(caught.value, ForeignCheckpoint, says)
    assert sorted(path.relative_to(job.checkpoint) for path in job.checkpoint.rglob("*")) == before
    job.checkpoint = tmp_path / "own"
    job.run()
    job.assert_right()


# -- two jobs on one checkpoint --------------------------------------------------------------------------


def test_a_second_job_on_a_checkpoint_is_refused_and_the_first_goes_on(spark, tmp_path):
    job = Readings(spark, tmp_path, epochs=1)
    first = job.start(trigger=None)
    try:
        assert first.wait_for(lambda: first.epoch == 1, timeout=120)
        second = Readings(spark, tmp_path, epochs=1, sink=sinks.memory())

        says = ("in use by another job", f'"job": "{NAME}", "pid": {os.getpid()}', "Stop that job first")
        second.fails(CheckpointInUse, *says)

        job.epochs = 2
        job.put(2, epoch_rows(2))
        assert first.wait_for(lambda: first.epoch == 2, timeout=120)
    finally:
        first.stop()
    job.epochs = 3
    job.put(3, epoch_rows(3))
    job.run()
    job.assert_right()


HOLD = """
import sys
from pathlib import Path
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.lock import CheckpointLock
lock = CheckpointLock(LocalDirectory(Path(sys.argv[1])), "elsewhere")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_job_of_another_process_keeps_the_checkpoint_until_it_ends(ran, tmp_path):
    job = copied(ran, tmp_path)
    command = [sys.executable, "-c", HOLD, str(job.checkpoint)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"

        job.fails(CheckpointInUse, f'"job": "elsewhere", "pid": {other.pid}', "Stop that job first", committed=3)
    finally:
        other.kill()
        other.communicate()
    assert_went_on(job)


def test_another_process_is_refused_while_a_job_runs(spark, tmp_path):
    job = Readings(spark, tmp_path, epochs=1)
    first = job.start(trigger=None)
    try:
        assert first.wait_for(lambda: first.epoch == 1, timeout=120)
        other = subprocess.run(
            [sys.executable, "-c", HOLD, str(job.checkpoint)], input="", capture_output=True, text=True
        )
        assert other.returncode == 1
        assert "[CHECKPOINT_IN_USE]" in other.stderr
        assert f'"job": "{NAME}"' in other.stderr
    finally:
        first.stop()
    job.assert_right()


def test_an_epoch_that_somebody_else_committed_is_never_replaced(spark, tmp_path):
    job = Readings(spark, tmp_path)
    theirs: list[Path] = []

    class Raced(MemorySink):
        """Let another job, which no lock keeps out on an object store, commit the second epoch first."""

        def write(self, rows, epoch):
            if epoch == 2 and not theirs:
                theirs.append(job.checkpoint / M2)
                shutil.copy(job.checkpoint / M1, theirs[0])
            return super().write(rows, epoch)

    job.sink = Raced()
    with pytest.raises(CheckpointInUse) as caught:
        job.run()

    check_message(caught.value, CheckpointInUse, ["epoch 2 .* was committed by another job", "Stop one of the two"])
    assert theirs[0].read_bytes() == (job.checkpoint / M1).read_bytes()
    theirs[0].unlink()
    job.run()
    job.assert_right()


def test_a_job_that_failed_lets_go_of_its_checkpoint_however_one_learns_of_it(spark, tmp_path):
    job = Readings(spark, tmp_path)

    class Fails(MemorySink):
        def write(self, rows, epoch):
            raise ConnectionError("away")

    sink, job.sink = job.sink, Fails()
    running = job.start()
    with pytest.raises(Exception, match="away"):
        running.wait_for(lambda: False, timeout=120)

    job.sink = sink
    job.run()
    job.assert_right()


# -- disks that cannot be written ------------------------------------------------------------------------


class Disk:
    """A small disk of its own for a checkpoint, which can be filled and made read-only under a running job."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir()
        self.undo: list[Callable[[], object]] = []

    def mount(self, *arguments: str) -> None:
        if shutil.which("mount") is None or subprocess.run(["mount", *arguments], capture_output=True).returncode:
            pytest.skip("needs the right to mount a file system")

    def full(self) -> None:
        ballast = self.path / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            for size in (65536, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue
        self.undo.append(ballast.unlink)

    def read_only(self) -> None:
        # The lock is open for writing, so the disk itself cannot be remounted; what is mounted over it can.
        self.mount("--bind", str(self.path), str(self.path))
        self.undo.append(lambda: subprocess.run(["umount", "-l", str(self.path)], check=True))
        self.mount("-o", "remount,bind,ro", str(self.path))

    def repair(self) -> None:
        while self.undo:
            self.undo.pop()()


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk")
    disk.mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk.path))
    try:
        yield disk
    finally:
        disk.repair()
        subprocess.run(["umount", "-l", str(disk.path)], check=True)


WHY = {"full": "No space left on device", "read_only": "Read-only file system"}


@pytest.mark.parametrize("how", list(WHY))
def test_a_job_does_not_start_on_a_disk_it_cannot_write(spark, tmp_path, disk, how):
    job = Readings(spark, tmp_path)
    job.checkpoint = disk.path / "checkpoint"
    getattr(disk, how)()

    with pytest.raises(CheckpointUnwritable) as caught:
        job.run()

    check_message(caught.value, CheckpointUnwritable, [f"cannot write to .*: {WHY[how]}", "Give the job a directory"])
    disk.repair()
    job.run()
    job.assert_right()


@pytest.mark.parametrize("when", ["deltas", "manifest", "spark"])
@pytest.mark.parametrize("how", list(WHY))
def test_a_disk_that_cannot_be_written_any_more_fails_the_epoch_which_is_then_redone(spark, tmp_path, disk, how, when):
    job = Readings(spark, tmp_path)
    job.checkpoint = disk.path / "checkpoint"
    broken: list[str] = []

    def spoil(now: str, epoch: int) -> None:
        if (now, epoch) == (when, {"deltas": 2, "manifest": 2, "spark": 1}[when]) and not broken:
            broken.append(now)
            getattr(disk, how)()

    class Spoils(MemorySink):
        def write(self, rows, epoch):
            written = super().write(rows, epoch)
            spoil("manifest", epoch)
            return written

        def commit(self, epoch, written):
            super().commit(epoch, written)
            spoil("spark", epoch)

    built: list[None] = []

    def watched(rows):
        # Called when the stream is declared, and then while the plan of each epoch is built.
        spoil("deltas", len(built))
        built.append(None)
        return rows

    job.sink = Spoils()
    stream = job.stream().transform(watched).key_by("key").process(Trail)
    job.fails(CheckpointUnwritable, WHY[how], "committed .*is intact", "then start the job again", stream=stream)

    assert broken == [when]
    disk.repair()
    job.run()
    job.assert_right()
