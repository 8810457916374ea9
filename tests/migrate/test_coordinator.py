"""A running job changes its layout: same rows, same order, same state as one that never did; and what is refused."""

from __future__ import annotations

import threading
from itertools import pairwise

import fleet
import pytest
from readings import Readings, epoch_rows
from until import until

from ferryman import Ferry, Operator, Value, sinks, sources
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._migrate.machine import replay
from ferryman._migrate.planning import rescaled
from ferryman._migrate.strategies import STRATEGIES
from ferryman._os import faults
from ferryman._os.faults import WAIT_STEP
from ferryman.errors import FerrymanError, InvalidPlan, PlanUnderWay

# Enough to see what is lost, doubled or out of order; all of them make an epoch twice as long.
PARTS = ("trail", "words")


class Count(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n


def start(*args, **sizes):
    """Start a job whose journals keep what plans were told, to tell it again."""
    job = fleet.start(*args, **sizes)
    job._runner.coordinator.keeps_events = True
    return job


def assert_replayed(job):
    """Assert that what every plan of a job was told leads to where it stands, however it was interleaved."""
    for journal in job._runner.coordinator.journals():
        begun, events = journal.events()
        assert events, "it was told nothing, or has forgotten it"
        assert replay(begun, events) == journal.machine


@pytest.fixture
def endless(spark, tmp_path):
    """A job that reads a small epoch after the other and never ends by itself."""
    frame = sources.generator(spark, rows_per_epoch=50, keys=20, key_prefix="s-")
    memory = sinks.memory()
    ferry = Ferry(spark, str(tmp_path / "c"), groups=16)
    job = ferry.stream(frame).key_by("key").process(Count).write(memory).start("endless", instances=2)
    job.memory = memory
    job.log = Checkpoint(directory(str(tmp_path / "c")))
    job.wait_for(lambda: job.epoch >= 2, timeout=60)
    yield job
    if job.active:
        job.stop()


def test_instances_come_and_go_while_rows_flow_and_nothing_shows(spark, tmp_path):
    checkpoint, out = str(tmp_path / "c"), str(tmp_path / "o")
    job = start(spark, checkpoint, out, rows=1400, per_epoch=100, instances=2, retain=100)
    for epoch, wanted in ((2, 5), (5, 1), (8, 3)):
        assert job.wait_for(lambda at=epoch: job.epoch >= at, timeout=60)
        change = job.rescale(wanted)
        assert job.wait_for(lambda change=change: change.over, timeout=60)
        assert change.wait(0)
        assert job.instances == wanted
    job.wait()

    assert fleet.found(spark, checkpoint, out) == fleet.expected(1400)
    log = Checkpoint(directory(checkpoint))
    seen = [log.manifest(epoch).routing for epoch in log.epochs()]
    assert list(dict.fromkeys(table.instances for table in seen)) == [2, 5, 1, 3]
    assert [change.phase for change in job.history()] == ["done"] * 3
    assert_replayed(job)
    assert all(one.version <= other.version for one, other in pairwise(seen))


@pytest.mark.parametrize(
    ("rows", "strategies"),
    [
        pytest.param(3000, ["stop_restart", "push", "live"], id="three"),
        pytest.param(6000, [*STRATEGIES, "push:size"], id="all", marks=pytest.mark.slow),
    ],
)
def test_every_strategy_gives_the_same_rows_in_the_same_order(spark, tmp_path, rows, strategies):
    checkpoint, out = str(tmp_path / "c"), str(tmp_path / "o")
    sizes = {"rows": rows, "per_epoch": 100, "instances": 2, "retain": 100, "groups": 4}
    job = start(spark, checkpoint, out, **sizes, parts=PARTS)
    for number, strategy in enumerate(strategies):
        at = job.epoch
        change = job.rescale(3 - number % 2, strategy=strategy)
        assert job.wait_for(lambda change=change: change.over, timeout=60)
        assert change.phase == "done", change.reason
        log = Checkpoint(directory(checkpoint))
        waited = any(log.manifest(epoch).held for epoch in range(at + 1, job.epoch + 1))
        if strategy.startswith(("push", "fetch")):
            assert waited, "nothing waited, so nothing was tried"
        if strategy in ("live", "replicate", "stop_restart"):
            assert not waited
    job.wait()

    assert_replayed(job)
    assert fleet.found(spark, checkpoint, out, PARTS) == fleet.expected(rows, PARTS)
    assert verify(Checkpoint(directory(checkpoint))).sound


def test_a_plan_that_another_one_came_before_is_chosen_again(spark, tmp_path):
    checkpoint, out = str(tmp_path / "c"), str(tmp_path / "o")
    job = start(spark, checkpoint, out, rows=1400, per_epoch=100, instances=2, groups=8, parts=PARTS)
    seen = []

    def choose(before, places):
        seen.append(before.instances)
        if len(seen) == 1:
            other = job.rescale(3)
            assert job.wait_for(lambda: other.over, timeout=60)
        return rescaled(before, 4)

    change = job._runner.coordinator.request("rescale", choose, "live")

    assert job.wait_for(lambda: change.over, timeout=60)
    assert change.phase == "done", change.reason
    assert (seen[:2], job.instances) == ([2, 3], 4)
    job.wait()
    assert fleet.found(spark, checkpoint, out, PARTS) == fleet.expected(1400, PARTS)


def waiting_for_ever(job, log, monkeypatch):
    """Have a job switch groups whose state never comes; give back when rows wait for it."""
    monkeypatch.setattr(faults, "watcher", lambda step: step == WAIT_STEP and job.history()[-1].wait(60))
    assert job.wait_for(lambda: job.epoch >= 2, timeout=60)
    job.rescale(3, strategy="push")
    assert job.wait_for(lambda: bool(log.latest().held), timeout=60)


def test_rows_that_wait_when_a_job_stops_are_the_first_of_the_next(spark, tmp_path, monkeypatch):
    frame = sources.generator(spark, rows=1000, rows_per_epoch=50, keys=20, key_prefix="s-")
    ferry = Ferry(spark, str(tmp_path / "c"), groups=8)
    first, second = sinks.memory(), sinks.memory()
    job = ferry.stream(frame).key_by("key").process(Count).write(first).start("waits", instances=2)
    log = Checkpoint(directory(str(tmp_path / "c")))
    waiting_for_ever(job, log, monkeypatch)
    job.stop()
    assert log.latest().held
    # Its rows have a column more by then, which those that wait do not have.
    wider = ferry.stream(frame.withColumn("new", frame.id)).key_by("key").process(Count)
    job = wider.write(second).start("waits", trigger={"availableNow": True})
    job.wait()

    assert not log.latest().held
    seen = {}
    for row in [*first.rows(), *second.rows()]:
        seen.setdefault(row["key"], []).append(row["n"])
    assert sum(map(len, seen.values())) == 1000
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen.values())


@pytest.mark.parametrize("phase", ["switch", "release"])
def test_what_has_switched_and_cannot_be_copied_is_rebuilt_from_the_checkpoint(spark, tmp_path, monkeypatch, phase):
    checkpoint, out = str(tmp_path / "c"), str(tmp_path / "o")
    sizes = {"rows": 1000, "per_epoch": 100, "instances": 2, "retain": 100, "groups": 8}
    job = start(spark, checkpoint, out, **sizes, parts=PARTS)

    def broken(step):
        if step == WAIT_STEP:
            # In the first case the epoch that hands over is under way.
            until(lambda: job.history()[-1].phase == phase, phase)
            raise OSError("the network is down")

    monkeypatch.setattr(faults, "watcher", broken)
    job.wait_for(lambda: job.epoch >= 1, timeout=60)
    change = job.rescale(3, strategy="push")
    job.wait()

    assert change.phase == "done"
    assert_replayed(job)
    assert fleet.found(spark, checkpoint, out, PARTS) == fleet.expected(1000, PARTS)


def test_a_plan_that_cannot_be_prepared_is_aborted_and_the_stream_goes_on(endless, monkeypatch):
    def broken(step):
        if step == "plan-prepare":
            raise OSError("no more ports")

    monkeypatch.setattr(faults, "watcher", broken)
    change = endless.rescale(4)

    assert change.wait(60) is False
    assert change.phase == "aborted"
    assert "no more ports" in change.reason
    before = endless.epoch
    assert endless.wait_for(lambda: endless.epoch > before + 1, timeout=60)
    assert endless.instances == 2


def test_an_epoch_in_which_rows_waited_is_redone_with_the_same_rows_waiting(spark, tmp_path):
    """A sink may have seen it before the driver died: it is told the same again."""
    frame = sources.generator(spark, rows=600, rows_per_epoch=50, keys=20, key_prefix="s-")
    ferry = Ferry(spark, str(tmp_path / "c"), groups=8)
    log = Checkpoint(directory(str(tmp_path / "c")))
    seen = {}

    def sink(rows, epoch):
        found = sorted(map(tuple, rows.collect()))
        assert seen.setdefault(epoch, found) == found, f"epoch {epoch} came again with other rows"
        if fails and any(begun.held for begun in log.intents().values() if begun.epoch == epoch):
            # As the driver does that dies after the sink has the rows.
            raise OSError("the power went off")

    def start(**options):
        return ferry.stream(frame).key_by("key").process(Count).write(sinks.foreach(sink)).start("again", **options)

    fails = True
    job = start(instances=2)
    assert job.wait_for(lambda: job.epoch >= 2, timeout=60)
    job.rescale(3, strategy="push")
    with pytest.raises(FerrymanError):
        job.wait()
    fails = False
    job = start(trigger={"availableNow": True})
    job.wait()

    numbers = {}
    for epoch in sorted(seen):
        for key, n in seen[epoch]:
            numbers.setdefault(key, []).append(n)
    assert sum(map(len, numbers.values())) == 600
    assert all(some == list(range(1, len(some) + 1)) for some in numbers.values())


def test_a_source_that_ends_leaves_no_row_waiting(spark, tmp_path, monkeypatch):
    checkpoint, out = str(tmp_path / "c"), str(tmp_path / "o")
    sizes = {"rows": 600, "per_epoch": 100, "instances": 2, "retain": 100, "groups": 8}
    job = start(spark, checkpoint, out, **sizes, parts=PARTS)
    waiting_for_ever(job, Checkpoint(directory(checkpoint)), monkeypatch)
    job.wait()

    assert fleet.found(spark, checkpoint, out, PARTS) == fleet.expected(600, PARTS)


def test_a_job_that_is_started_again_has_the_instances_it_last_had(spark, tmp_path):
    checkpoint, out = str(tmp_path / "c"), str(tmp_path / "o")
    job = start(spark, checkpoint, out, rows=900, per_epoch=60, instances=2, parts=PARTS)
    job.wait_for(lambda: job.epoch >= 3, timeout=60)
    job.rescale(3)
    job.wait()
    job = start(spark, checkpoint, out, rows=1200, per_epoch=100, instances=None, parts=PARTS)

    assert job.instances == 3
    job.wait()
    assert fleet.found(spark, checkpoint, out, PARTS) == fleet.expected(1200, PARTS)


def test_particular_groups_move_and_the_plan_says_so_before(endless):
    preview = endless.plan(groups=[0, 1, 9], to=1)
    assert [move.group for move in preview.moves] == [0, 1]
    assert preview.bytes > 0
    assert "2 key groups move" in str(preview)

    assert endless.move([0, 1, 9], to=1).wait(60)

    assert endless.log.latest().routing.owner[:3] == (1, 1, 0)
    assert endless.history()[-1].facts()["moves"] == 2
    assert endless.history()[-1].facts()["duration_ms"] >= 0


def test_a_rebalance_goes_by_the_rows_of_late(endless):
    # All that is busy on one instance: the worst there can be.
    busy = [
        group
        for group, rows in enumerate(endless._runner.coordinator.report.load(endless._runner.coordinator.table).groups)
        if rows
    ]
    owner = endless.log.latest().routing.owner
    assert endless.move([group for group in busy if owner[group] == 0], to=1).wait(60)
    before = endless.plan()
    assert before.load[0] == pytest.approx(1.0)

    assert endless.rebalance().wait(60)

    assert before.load[1] < 0.65
    with pytest.raises(InvalidPlan, match="even already"):
        endless.rebalance()


def test_a_silent_stream_changes_too(spark, tmp_path):
    frame = sources.generator(spark, rows=100, rows_per_epoch=50, keys=20, key_prefix="s-")
    ferry = Ferry(spark, str(tmp_path / "c"), idle=None)
    job = ferry.stream(frame).key_by("key").process(Count).write(sinks.none()).start("silent", instances=2)
    try:
        job.wait_for(lambda: job.epoch >= 2, timeout=60)
        assert job.rescale(4).wait(60)
        assert job.instances == 4
        # The change is done when its epoch is committed, a moment before that is told as progress.
        assert job.wait_for(lambda: job.progress()[-1].silent, timeout=60)
    finally:
        job.stop()


def test_a_rescale_to_what_cannot_be_is_refused(endless):
    for wanted in (0, -3, 17, 10**15):
        with pytest.raises(InvalidPlan, match="from 1 to 16"):
            endless.rescale(wanted)


def test_plans_that_make_no_sense_are_refused_and_the_stream_goes_on(endless):
    with pytest.raises(InvalidPlan, match="2 instances already"):
        endless.rescale(2)
    with pytest.raises(InvalidPlan, match="whole number"):
        endless.rescale("4")
    with pytest.raises(InvalidPlan, match="key group 99 does not exist"):
        endless.move(99, to=0)
    with pytest.raises(InvalidPlan, match="instance 7 does not exist"):
        endless.move(0, to=7)
    with pytest.raises(InvalidPlan, match="nothing moves"):
        endless.move(0, to=0)
    with pytest.raises(InvalidPlan, match="groups and to"):
        endless.plan(groups=[1])
    before = endless.epoch
    assert endless.wait_for(lambda: endless.epoch > before + 1, timeout=60)
    assert endless.history() == []


def test_two_plans_at_once_are_one_too_many(endless):
    with endless._turn:
        # No epoch can begin: the first plan stays before its switch.
        first = endless.rescale(4)
        with pytest.raises(PlanUnderWay, match=r"a rescale is under way.*job\.abort"):
            endless.rescale(3)
        endless.abort()
        assert first.wait(10) is False
        assert first.phase == "aborted"
        assert first.reason == "asked to"
    assert endless.instances == 2
    assert endless.rescale(3).wait(60)


def test_a_plan_begins_when_the_one_before_has_tidied_up(endless, monkeypatch):
    steps, may_tidy_up = [], threading.Event()

    def watch(step):
        if step.startswith("plan-"):
            if step == "plan-release":
                assert may_tidy_up.wait(60)
            steps.append(step)

    monkeypatch.setattr(faults, "watcher", watch)
    assert endless.rescale(4).wait(60)
    second = endless.rescale(3)
    # Time enough to begin, if it did not wait.
    before = endless.epoch
    assert endless.wait_for(lambda: endless.epoch > before + 2, timeout=60)
    may_tidy_up.set()
    assert second.wait(60), second.reason

    # What the first still has to forget may be what the second brings to the same place.
    assert steps.count("plan-prepare") == 2
    assert steps.index("plan-release") < len(steps) - 1 - steps[::-1].index("plan-prepare")


def test_a_plan_goes_on_while_somebody_looks_at_the_job(endless):
    # As `wait_for` does while it looks at its condition, which may well ask for a change.
    with endless._changed:
        endless.rescale(4)
        other = threading.Thread(target=endless.abort)
        other.start()
        other.join(20)
        assert not other.is_alive(), "the plan and the job wait for each other"


def test_a_job_that_stops_ends_its_plan(endless):
    with endless._turn:
        change = endless.rescale(4)
    endless.stop()

    assert change.over
    with pytest.raises(InvalidPlan, match="stopping"):
        endless.rescale(3)


def test_a_job_that_stops_while_the_stream_stands_still_for_a_plan_ends_both(endless, monkeypatch):
    standing = threading.Event()

    def until_over(step):
        if step == "plan-catch-up":
            standing.set()
            endless.history()[-1].wait(60)

    monkeypatch.setattr(faults, "watcher", until_over)
    change = endless.rescale(4, strategy="stop_restart")
    assert standing.wait(60)
    endless.stop()

    assert change.phase == "aborted"
    assert not endless.active


def test_a_change_that_is_asked_for_before_the_first_epoch_stays(spark, tmp_path):
    readings = Readings(spark, tmp_path, epochs=0)
    readings.files.mkdir()
    job = readings.start(trigger=None)
    change = job.rescale(3, strategy="stop_restart")
    readings.epochs = 3
    for epoch in range(1, 4):
        readings.put(epoch, epoch_rows(epoch))

    assert job.wait_for(lambda: job.epoch >= 3, timeout=60)
    assert change.wait(60)
    assert job.instances == 3
    job.stop()
    readings.assert_right()
    assert readings.log.latest().routing.instances == 3
