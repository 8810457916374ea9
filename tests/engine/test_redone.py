"""An epoch that was begun by a run which died is done again as it was begun, whatever is asked for meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from driven_run import Run

from ferryman._os import faults


class Died(Exception):
    pass


@contextmanager
def dying_after_the_sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a run die in an epoch when the sinks have seen it."""

    def watch(step: str) -> None:
        if step == "after-sink":
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(faults, "watcher", watch)
        with pytest.raises(Died):
            yield


def dies_after_the_sink(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a run die in its next micro-batch, when the sinks have seen it."""
    with dying_after_the_sink(monkeypatch):
        run.batch("a", "b")


@pytest.mark.parametrize("committed", [0, 1])
@pytest.mark.parametrize("how", ["live", "push"])
def test_a_plan_that_is_asked_for_at_once_comes_after_the_epoch_that_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: int, how: str
) -> None:
    with Run(tmp_path, instances=2) as first:
        for _ in range(committed):
            first.batch("a")
        dies_after_the_sink(first, monkeypatch)
    with Run(tmp_path, instances=2) as second:
        assert second.takeover.intent is None, "Spark's log tells all of it"
        change = second.plan(4, how)
        tables = []
        while not change.over:
            second.batch("a", "b")
            assert second.runner.latest is not None
            tables.append(second.runner.latest.routing.instances)
            change.wait(0.05)

    assert tables[0] == 2, "the sinks saw it with 2"
    assert tables[-1] == 4
    assert change.phase == "done"


def test_a_silent_epoch_is_written_down_and_done_again_at_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run(tmp_path) as first:
        first.batch("a")
        assert first.checkpoint.intent() is None, "Spark's log tells all of it"
        with dying_after_the_sink(monkeypatch):
            first.silence(7000)
    with Run(tmp_path) as second:
        intent = second.takeover.silent_first
        assert intent is not None
        assert (intent.epoch, intent.time_ms, intent.term) == (2, 7000, first.takeover.term.number)
        second.silence(9000)
        assert second.runner.latest is not None
        assert second.runner.latest.time_ms == 7000


@pytest.mark.parametrize("committed", [0, 1])
def test_an_epoch_that_switches_is_done_again_as_one_that_does_also_if_it_is_the_very_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: int
) -> None:
    with Run(tmp_path, instances=2) as first:
        for _ in range(committed):
            first.batch("a")
        first.plan(4)
        dies_after_the_sink(first, monkeypatch)
    # The second dies in it too.
    with Run(tmp_path, instances=2, clock=lambda: 5000) as second:
        assert second.takeover.routing.instances == 4
        dies_after_the_sink(second, monkeypatch)
    with Run(tmp_path, instances=2) as third:
        third.batch("a", "b")
        assert third.runner.latest is not None
        assert third.runner.latest.routing.instances == 4, "the sinks saw it with 4"
