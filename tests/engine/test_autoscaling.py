"""The thread of the autoscaler: fed with epochs, it asks for changes, and nothing that goes wrong ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from until import until

from ferryman._engine.autoscaling import Autoscaling, JobControls, metrics_of, recorded
from ferryman._engine.progress import EpochProgress
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.decision_log import DecisionLog, read_decisions
from ferryman._log.files.directory import directory
from ferryman._model.errors import PlanUnderWay
from ferryman._scale.decision import Decision
from ferryman._scale.options import Autoscale
from ferryman._scale.policies import Wish
from ferryman._scale.pool import Room

THREE = Autoscale(
    policy=lambda history: Wish(3, "three"), window=0.5, scale_out_after=0, scale_in_after="1 hour", cool_down=0
)
PROGRESS = EpochProgress(
    epoch=1,
    batch=0,
    silent=False,
    rows=300,
    output=300,
    keys=10,
    duration_ms=400.0,
    busy_ms=200.0,
    delta_bytes=1000,
    time_ms=1_000,
    committed_ms=1_400,
    watermark_ms=None,
    operators={"A": {"instance_rows": [100, 200], "busy_ms": [100.0, 200.0], "heaviest": 50, "rebuilt": 0}},
    route="express",
    phases_ms={"begin": 10.0, "tasks": 300.0, "sinks": 40.0, "gather": 5.0, "commit": 5.0, "tell": 40.0},
    times=(300, (0, 100, 200)),
)


class World:
    """A job that has been asked for changes, and what it answers."""

    def __init__(self, refuses: Exception) -> None:
        self.refuses = refuses
        self.asked: list[int] = []
        self.slots: Any = lambda: None
        self.room: Room | None = Room(16)
        self.awaited: list[int] = []

    def rescale(self, instances: int) -> Any:
        self.asked.append(instances)
        raise self.refuses

    def controls(self) -> JobControls:
        return JobControls(
            rescale=self.rescale,
            preview=lambda instances: None,  # type: ignore[arg-type, return-value]
            idle=lambda: False,
            backlog=lambda: None,
            disturbed=lambda: False,
            slots=lambda: self.slots(),
            groups=16,
            room_for=self.room_for,
        )

    def room_for(self, instances: int) -> Room | None:
        self.awaited.append(instances)
        return self.room


@contextmanager
def running(world: World, log: DecisionLog, options: Autoscale = THREE) -> Iterator[Autoscaling]:
    autoscaling = Autoscaling(options, world.controls(), log)
    try:
        yield autoscaling
    finally:
        autoscaling.close()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(directory(str(tmp_path / "c")))


def feed(autoscaling: Autoscaling) -> None:
    """One epoch more, as long after the one before as it takes to be looked at."""
    feed.number += 1  # type: ignore[attr-defined]
    autoscaling.committed(replace(PROGRESS, epoch=feed.number))  # type: ignore[attr-defined]


feed.number = 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [PlanUnderWay("another one is under way."), RuntimeError("no JVM")])
def test_a_change_that_cannot_be_is_told_and_kept(checkpoint: Checkpoint, error: Exception) -> None:
    world = World(error)
    with running(world, DecisionLog(checkpoint, 1)) as autoscaling:

        def told() -> bool:
            feed(autoscaling)
            return "refused" in [decision.kind for decision in autoscaling.decisions]

        until(told, "a decision")
        assert world.asked == [3]
        out, refused = autoscaling.decisions[:2]
        assert (out.kind, out.before, out.after) == ("scale out", 2, 3)
        assert refused.why in ("another one is under way.", "RuntimeError: no JVM")
        assert read_decisions(checkpoint, Decision.parse) == autoscaling.decisions
        assert "What holds the job back" in str(autoscaling)


def test_whatever_goes_wrong_it_goes_on(checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture) -> None:
    world = World(PlanUnderWay("later."))
    world.slots = lambda: 1 / 0
    with running(world, DecisionLog(checkpoint, 1)) as autoscaling:

        def warned() -> bool:
            feed(autoscaling)
            return "could not decide" in caplog.text

        until(warned, "a warning")
        world.slots = lambda: None

        def asked() -> bool:
            feed(autoscaling)
            return bool(world.asked)

        until(asked, "a change")


def test_decisions_that_cannot_be_written_do_not_stop_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "c").write_text("a file where the checkpoint should be")
    world = World(PlanUnderWay("later."))
    with running(world, DecisionLog(Checkpoint(directory(str(tmp_path / "c"))), 1)) as autoscaling:

        def told() -> bool:
            feed(autoscaling)
            return len(autoscaling.decisions) > 1

        until(told, "a decision")
    assert "could not be kept" in caplog.text


def test_a_change_waits_for_executors_and_is_refused_if_they_do_not_come(checkpoint: Checkpoint) -> None:
    world = World(PlanUnderWay("asked."))
    world.room = None
    with running(world, DecisionLog(checkpoint, 1)) as autoscaling:

        def waits() -> bool:
            feed(autoscaling)
            return len(world.awaited) > 2

        until(waits, "a change that waits")
        assert set(world.awaited) == {3}
        assert not world.asked
        world.room = Room(2, "2 of 3 executors are there")

        def refused() -> bool:
            return "refused" in [decision.kind for decision in autoscaling.decisions]

        until(refused, "a refusal")
        assert autoscaling.decisions[-1].why == "2 of 3 executors are there"
        assert not world.asked, "nothing is changed without room"


def test_a_policy_that_does_not_return_holds_nothing_up(checkpoint: Checkpoint) -> None:
    stuck = threading.Event()

    def never(history: Any) -> Wish:
        stuck.wait(60)
        return Wish(1, "at last")

    with running(World(RuntimeError()), DecisionLog(checkpoint, 1), replace(THREE, policy=never)) as autoscaling:
        for _ in range(2000):
            feed(autoscaling)
        assert autoscaling.decisions == []
    # The job has ended, and did not wait for it.
    assert not stuck.is_set()
    stuck.set()


def test_its_thread_ends_with_it(checkpoint: Checkpoint) -> None:
    with running(World(RuntimeError()), DecisionLog(checkpoint, 1)):
        assert "ferryman-autoscale" in {thread.name for thread in threading.enumerate()}
    assert "ferryman-autoscale" not in {thread.name for thread in threading.enumerate()}


def test_there_are_no_more_instances_than_key_groups(checkpoint: Checkpoint) -> None:
    with running(World(RuntimeError()), DecisionLog(checkpoint, 1), Autoscale(min=20, max=99)) as autoscaling:
        assert (autoscaling.options.min, autoscaling.options.max) == (16, 16)


def test_an_epoch_tells_what_it_has_told_its_user() -> None:
    metrics = metrics_of(PROGRESS, 10.0, slots=4)

    assert (metrics.began_s, metrics.ended_s, metrics.instances, metrics.rows) == (9.6, 10.0, 2, 300)
    assert metrics.busy_s == pytest.approx(0.2)
    assert metrics.sinks_s == pytest.approx(0.08)
    assert metrics.late_ms == 1_400
    assert not metrics.disturbed
    rebuilt = {"A": {**PROGRESS.operators["A"], "rebuilt": 2}}
    assert metrics_of(replace(PROGRESS, operators=rebuilt), 10.0).disturbed
    # By a shuffle tasks run while sinks write.
    assert metrics_of(replace(PROGRESS, route="shuffle"), 10.0).sinks_s == pytest.approx(0.04)


def test_epochs_of_a_job_can_be_recorded() -> None:
    first, second = recorded([PROGRESS, replace(PROGRESS, epoch=2, committed_ms=2_400)])

    assert first.disturbed
    assert not second.disturbed
    assert second.began_s - first.began_s == pytest.approx(1.0)
