"""`ferryman rewind`: the job goes on from an earlier epoch with right rows, whatever ends the command in between."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ferryman._cli import app
from ferryman._cli.bench import _load
from ferryman._cli.rewind import _do as go_on_with
from ferryman._engine.rewind_plan import plan_rewind
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.lock import CheckpointLock
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.errors import CheckpointInUse, RewindUnfinished, Superseded
from ferryman._os import faults
from ferryman._os.disk import Disk, use_disk
from ferryman._testing.faulty_disk import Death, FaultyDisk
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk

BATCHES = 8


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return _load("history")


class Job:
    """A job without Spark, with a Parquet sink and a function, in a directory of its own."""

    def __init__(self, bench: ModuleType, place: Path) -> None:
        self.bench, self.place, self.calls = bench, place, []
        place.mkdir(exist_ok=True)

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(LocalDirectory(self.place / "checkpoint"))

    @contextlib.contextmanager
    def life(self, **options: Any) -> Iterator[Any]:
        names = iter(range(1 << 30))
        given: dict[str, Any] = {
            "instances": 2,
            "locked": True,
            "now_ms": 1_700_000_000_000,
            "call": lambda rows, number: self.calls.append((number, len(rows) - 1)),
            "name": lambda: f"{next(names):08x}",
            "commits": lambda life, manifest: None,
            "shows": lambda manifest: None,
            "passes": lambda what, before: None,
            "mutant": self.bench.Mutant(),
        }
        life = self.bench.Life(self.place, **{**given, **options})
        try:
            yield life
        finally:
            life.close()

    def go_on(self, batches: int = 2) -> None:
        """Start it, and give it rows."""
        with self.life() as life:
            for number in range(batches):
                life.batch(2 + number % 2)
            life.end()

    def rewind(self, *options: object) -> Result:
        arguments = ["rewind", str(self.place / "checkpoint"), *map(str, options)]
        return CliRunner().invoke(app, arguments, catch_exceptions=True)

    def shown(self) -> list[tuple[int, int]]:
        reader = self.bench.History(self.place, 1)
        reader._root = self.place
        return reader._read_sink(0)[0]

    def assert_right(self, lost: range = range(0)) -> None:
        """See that state and sink are those of the source's rows, but for those that are lost."""
        latest = self.checkpoint.latest()
        assert latest is not None
        numbers: Counter[str] = Counter()
        expected = []
        for key, row in self.bench.rows_between(0, latest.offsets[0]):
            if row not in lost:
                numbers[key] += 1
                expected.append((row, numbers[key]))
        assert self.shown() == expected
        with self.life() as life:
            assert {row["key"]: row["n"] for row in life.state()} == dict(numbers)
            life.end()
        report = verify(self.checkpoint)
        assert (report.faults, report.orphans) == ((), 0)
        terms = [self.checkpoint.manifest(epoch).term for epoch in self.checkpoint.epochs()]
        assert terms == sorted(terms)


@pytest.fixture(scope="module")
def ran(bench: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a job in two runs, with snapshots, silent epochs and a batch that was begun and not done."""
    job = Job(bench, tmp_path_factory.mktemp("ran"))
    with job.life() as life:
        for number in range(4):
            life.batch(3)
            if number == 1:
                life.fold(100)
        life.end()
    with job.life() as life:
        life.now_ms += 1000
        life.silence()
        life.batch(2)
        life.fold(100)
        life.batch(2)
        # Spark has begun a batch more.
        life._spark_writes(f"offsets/{life._batch}", f'v1\n{{"batchTimestampMs":5}}\n{life._start + 4}')
    return job.place


@pytest.fixture
def job(bench: ModuleType, ran: Path, tmp_path: Path) -> Job:
    return copied(bench, ran, tmp_path / "job")


def copied(bench: ModuleType, ran: Path, to: Path) -> Job:
    shutil.copytree(ran, to)
    # Manifests have the sink's place in them.
    for path in (to / "checkpoint" / "manifests").iterdir():
        raw = json.loads(path.read_text())["body"]
        for record in raw["sinks"].values():
            record["path"] = record["path"].replace(str(ran), str(to))
        Checkpoint(LocalDirectory(to / "checkpoint")).record_again(f"manifests/{path.name}", raw)
    return Job(bench, to)


@pytest.mark.parametrize("to", range(1, 8))
def test_the_job_goes_on_from_the_epoch_with_right_rows(job: Job, to: int) -> None:
    done = job.rewind("--to-epoch", to, "--yes")

    assert done.exit_code == 0, done.output
    checkpoint = job.checkpoint
    assert checkpoint.epochs()[-1] == to
    assert f"epoch {to} is the newest" in done.output
    offsets = checkpoint.manifest(to).offsets[0]
    assert job.shown() == job.bench.results_upto(offsets)
    assert verify(checkpoint).faults == ()
    job.go_on()
    assert job.checkpoint.epochs()[-1] == to + 2
    job.assert_right()


@pytest.mark.parametrize("to", [2, 4, 6])
def test_the_source_goes_on_from_where_it_is_if_that_is_asked_for(job: Job, to: int) -> None:
    before = job.checkpoint.manifest(to).offsets[0]
    newest = job.checkpoint.latest()

    done = job.rewind("--to-epoch", to, "--keep-offsets", "--yes")

    assert done.exit_code == 0, done.output
    assert f"{newest.offsets[0] - before} rows that were read since are lost" in done.output
    assert f"epoch {to + 1}, in which only the source has moved, is the newest" in " ".join(done.output.split())
    moved = job.checkpoint.latest()
    assert (moved.epoch, moved.batch, moved.offsets) == (to + 1, newest.batch, newest.offsets)
    assert verify(job.checkpoint).faults == ()
    job.go_on()
    job.assert_right(lost=range(before, newest.offsets[0]))
    # The function has numbers that it did not have.
    assert min(number for number, _ in job.calls) > newest.sinks["foreach"]["written"]["number"]


def test_it_says_first_what_goes_and_asks(job: Job) -> None:
    checkpoint = job.place / "checkpoint"
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file() and path.name != ".lock"}

    asked = CliRunner().invoke(app, ["rewind", str(checkpoint), "--to-epoch", "3"], input="n\n")

    assert asked.exit_code == 1
    said = " ".join(asked.output.split())
    assert "back to epoch 3, 2023-11-14" in said
    assert "state epochs 4-7 go, and the snapshots of 6" in said
    assert "source is read again after 9 (micro-batch 2): 7 rows that were read since come again" in said
    assert "takes back the rows of epochs 4-7" in said
    assert "sink foreach: cannot take back what calls 3-6 have shown; these numbers come again" in said
    assert "Go back?" in said
    for path, data in before.items():
        assert path.read_bytes() == data
    assert job.rewind("--to-epoch", 3).exit_code == 1, "nobody is there to answer"


def test_it_says_first_which_sinks_will_refuse_the_job(job: Job) -> None:
    for path in (job.place / "checkpoint" / "manifests").iterdir():
        raw = json.loads(path.read_text())["body"]
        raw["sinks"]["database:1"] = {"told": True, "path": "fleet", "written": {}}
        raw["sinks"]["kafka:out"] = {"told": False, "path": "", "written": {"noted": 1}}
        job.checkpoint.record_again(f"manifests/{path.name}", raw)

    said = " ".join(job.rewind("--to-epoch", 3, "--yes").output.split())

    for sink in ("database:1", "kafka:out"):
        refused = f"sink {sink}: cannot take back what it has shown of epochs 4-7, so it may refuse the next start"
        assert refused in said


def test_it_says_that_an_epoch_under_way_goes_too(job: Job) -> None:
    said = " ".join(job.rewind("--to-epoch", 7).output.split())
    assert "under way epoch 8 was begun and not committed, and goes too: what a function was called with" in said
    assert json.loads(job.rewind("--to-epoch", 7, "--json").stdout)["under_way"] == 8

    (job.place / "checkpoint/spark/offsets/6").unlink()

    assert "was begun" not in job.rewind("--to-epoch", 7).output
    assert json.loads(job.rewind("--to-epoch", 7, "--json").stdout)["under_way"] is None


def test_as_json_it_only_says_what_it_would_do(job: Job) -> None:
    raw = json.loads(job.rewind("--to-epoch", 3, "--json").stdout)

    assert (raw["done"], raw["to"], raw["newest"], raw["rows"], raw["snapshots"]) == (False, 3, 7, 7, [6])
    assert (raw["offsets"], raw["newest_offsets"]) == ([9], [16])
    assert [sink["calls"] for sink in raw["sinks"]] == [None, [3, 6]]
    assert job.checkpoint.epochs()[-1] == 7
    assert json.loads(job.rewind("--to-epoch", 3, "--json", "--yes").stdout)["done"] is True
    assert job.checkpoint.epochs()[-1] == 3


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Job], None]] = {
    "delta": lambda job: flip(job.place / "checkpoint" / job.checkpoint.manifest(7).tables["Counts"][0].file),
    "manifest": lambda job: flip(job.place / "checkpoint/manifests/000000000007.json"),
    "no manifest": lambda job: (job.place / "checkpoint/manifests/000000000007.json").unlink(),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
@pytest.mark.parametrize("keep", [(), ("--keep-offsets",)])
def test_where_the_newest_epoch_is_lost_the_job_goes_on_from_the_one_before(
    job: Job, damage: str, keep: tuple[str, ...]
) -> None:
    end = job.checkpoint.latest().offsets[0]
    before = job.checkpoint.manifest(6).offsets[0]
    DAMAGES[damage](job)

    refused = job.rewind("--to-epoch", 7, "--yes")
    assert refused.exit_code == 1
    assert "[EPOCH_GONE] epoch 7" in refused.output
    assert "The newest that can be had is 6." in refused.output
    done = job.rewind("--to-epoch", 6, "--yes", *keep)

    assert done.exit_code == 0, done.output
    job.go_on()
    job.assert_right(lost=range(before, end) if keep else range(0))
    if keep:
        assert min(number for number, _ in job.calls) > 6


@pytest.mark.parametrize(
    ("epoch", "says"),
    [
        (8, "epoch 8 of .* was never committed: the newest is 7. The newest that can be had is 7. Nothing was changed"),
        (2, "epoch 2 of .* is gone: the oldest that is kept is 3. The newest that can be had is 7"),
        (5, "epoch 5 of .* cannot be rebuilt, .* The newest that can be had is 7; before it, 4. Nothing was changed"),
    ],
)
def test_an_epoch_that_cannot_be_had_is_refused_and_it_says_which_can(job: Job, epoch: int, says: str) -> None:
    root = job.place / "checkpoint"
    log = job.checkpoint
    write_snapshot(log, 3)
    prune(log, 3)
    if epoch == 5:
        flip(root / "manifests/000000000005.json")
    terms = log.numbers("terms")

    refused = job.rewind("--to-epoch", epoch, "--yes")

    assert refused.exit_code == 1
    assert re.search(r"\[EPOCH_GONE\] " + says, " ".join(refused.output.split())), refused.output
    assert log.numbers("terms") == terms


def test_a_job_that_runs_is_left_alone(job: Job) -> None:
    with CheckpointLock(job.checkpoint.directory, "fleet"):
        refused = job.rewind("--to-epoch", 3, "--yes")

    assert refused.exit_code == 1
    assert "[CHECKPOINT_IN_USE]" in refused.output
    assert job.checkpoint.epochs()[-1] == 7


def test_what_is_no_checkpoint_is_left_as_it_is(tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["rewind", str(tmp_path), "--to-epoch", "1", "--yes"])

    assert refused.exit_code == 1
    assert "[FOREIGN_CHECKPOINT]" in refused.output
    assert list(tmp_path.iterdir()) == []


def test_a_sink_that_is_elsewhere_now_is_told_of_and_takes_back_at_the_next_start(job: Job) -> None:
    (job.place / "out").rename(job.place / "moved")
    done = job.rewind("--to-epoch", 4, "--yes")

    assert done.exit_code == 0
    assert "is not that sink of this job any more" in done.output
    assert not (job.place / "out").exists()
    (job.place / "moved").rename(job.place / "out")
    job.go_on()
    job.assert_right()


def test_a_run_that_slept_through_it_writes_no_more(job: Job) -> None:
    with job.life(locked=False) as life:
        assert job.rewind("--to-epoch", 4, "--yes").exit_code == 0
        with pytest.raises(Superseded):
            life.batch(2)
        with pytest.raises(Superseded):
            life.fold(1)
    job.go_on()
    job.assert_right()


@pytest.mark.parametrize("keep", [(), ("--keep-offsets",)])
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_it_can_be_killed_at_any_step_and_is_finished_by_the_next_one(
    bench: ModuleType, ran: Path, tmp_path: Path, every: int, keep: tuple[str, ...]
) -> None:
    unfinished = set()
    for call in range(1, 400, every):
        job = copied(bench, ran, tmp_path / str(call) / "disk")
        inner = UnsyncedDisk(job.place, tmp_path / str(call) / "journal")
        disk = FaultyDisk(inner, die_at=call)
        use_disk(disk)
        try:
            with contextlib.suppress(Death):
                job.rewind("--to-epoch", 4, "--yes", *keep)
        finally:
            use_disk(None)
        if call % 2:
            inner.close()
            power_cut(job.place, tmp_path / str(call) / "journal", call)
        if (job.place / "checkpoint/rewind.json").exists():
            unfinished.add(call)
            with pytest.raises(RewindUnfinished, match="on its way back to epoch 4"):
                job.go_on()
            assert "rewind.json" in {fault.file for fault in verify(job.checkpoint).faults}
            refused = job.rewind("--to-epoch", 3, "--yes", *keep)
            assert "on its way back to epoch 4" in refused.output
        use_disk(inner if call % 2 == 0 else None)
        again = job.rewind("--to-epoch", 4, "--yes", *keep)
        use_disk(None)
        assert again.exit_code == 0 or "EPOCH_GONE" in again.output, again.output
        if call % 2 == 0:
            # What the first one did and did not sync may go only now.
            inner.close()
            power_cut(job.place, tmp_path / str(call) / "journal", call)
        if call % 5 == 0 or call % 2 == 0 or not disk.dead:
            job.go_on()
            job.assert_right(lost=range(12, 16) if keep else range(0))
        if not disk.dead:
            break
        shutil.rmtree(tmp_path / str(call))
    assert len(unfinished) > 20 // every


def test_a_snapshot_that_was_under_way_in_a_run_that_slept_is_listed_no_more(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers come again, with other rows: such a snapshot would be taken for one of theirs."""
    with job.life(locked=False) as life:
        life.batch(2)

        def sleeps(step: str) -> None:
            monkeypatch.setattr(faults, "watcher", None)
            assert step == "snapshot"
            assert job.rewind("--to-epoch", 4, "--yes").exit_code == 0

        monkeypatch.setattr(faults, "watcher", sleeps)
        with pytest.raises(Superseded):
            life.fold(1)
    assert max(job.checkpoint.snapshots(), default=0) <= 4
    job.go_on(5)
    with job.life() as life:
        life.batch(2)
        # Its files go with the next retention.
        life.fold(0)
        life.end()
    job.assert_right()


def test_a_call_that_was_under_way_has_no_number_that_comes_again_with_other_rows(job: Job) -> None:
    class Killed(Exception):
        pass

    def struck(rows: Any, number: int) -> None:
        job.calls.append((number, list(rows)))
        raise Killed

    with job.life(call=struck) as life, contextlib.suppress(Killed):
        life.batch(2)
    ((number, rows),) = job.calls
    job.calls.clear()

    assert job.rewind("--to-epoch", 4, "--keep-offsets", "--yes").exit_code == 0
    with job.life(call=lambda rows, number: job.calls.append((number, list(rows)))) as life:
        life.batch(2)
        life.batch(2)
        life.end()

    for later, others in job.calls:
        assert later != number or others == rows


def test_an_epoch_without_deltas_that_was_under_way_in_a_run_that_slept_is_taken_back(job: Job) -> None:
    slept = []

    def sleeps(what: str, path: str) -> None:
        if what == "link" and "/manifests/000000000009" in path and not slept:
            slept.append(path)
            use_disk(None)
            assert job.rewind("--to-epoch", 4, "--yes").exit_code == 0

    use_disk(FaultyDisk(Disk(), watcher=sleeps))
    try:
        with job.life(locked=False) as life:
            life.batch(2)
            with pytest.raises(Superseded):
                life.silence()
    finally:
        use_disk(None)
    assert slept
    assert job.checkpoint.epochs()[-1] == 4
    job.go_on()
    job.assert_right()


def test_a_sink_that_knows_of_newer_runs_than_a_restored_checkpoint_takes_their_rows_back(job: Job) -> None:
    shutil.copytree(job.place / "checkpoint", job.place / "backup")
    for _ in range(3):
        job.go_on()
    shutil.rmtree(job.place / "checkpoint")
    (job.place / "backup").rename(job.place / "checkpoint")

    done = job.rewind("--to-epoch", 5, "--yes")

    assert done.exit_code == 0, done.output
    job.go_on()
    job.assert_right()


def test_what_was_committed_while_it_asked_is_not_taken_without_a_word(job: Job) -> None:
    log, card = job.checkpoint, job.checkpoint.job_card()
    plan = plan_rewind(log, card, 4, keep_offsets=True)
    with job.life(locked=False) as life:
        life.batch(2)
        with pytest.raises(CheckpointInUse, match="has committed epoch 8 meanwhile"):
            go_on_with(log, card, plan, alone=False)
        with pytest.raises(Superseded):
            life.batch(2)

    assert (log.epochs()[-1], (job.place / "checkpoint/rewind.json").exists()) == (8, False)
    job.go_on()
    job.assert_right()


def test_a_call_that_was_begun_while_it_asked_has_no_number_that_comes_again(job: Job) -> None:
    log, card = job.checkpoint, job.checkpoint.job_card()
    # Nothing is under way yet.
    (job.place / "checkpoint/spark/offsets/6").unlink()
    plan = plan_rewind(log, card, 4, keep_offsets=True)
    (function,) = [sink.calls for sink in plan.sinks if sink.label == "foreach"]
    with job.life(locked=False) as life:
        life._spark_writes("offsets/6", 'v1\n{"batchTimestampMs":5}\n20')
        go_on_with(log, card, plan, alone=False)

    assert log.latest().sinks["foreach"]["written"]["number"] == function[1] + 1
