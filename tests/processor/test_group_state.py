"""What a function of `applyInPandasWithState` finds in its `GroupState`, on Spark and on Ferryman."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from processor.test_processor import at
from pyspark.sql.streaming.state import GroupStateTimeout

from ferryman.errors import OperatorFailed
from ferryman.testing import Harness

INPUT = "sensor string, what string, time timestamp"
OUTPUT = "sensor string, found string"


def grouped(stream: Any, function: Any, timeout: str, *, delay: str | None = "5 seconds") -> Any:
    if delay is not None:
        mark = stream.withWatermark
        stream = mark("time", delay)
    return stream.groupBy("sensor").applyInPandasWithState(function, OUTPUT, "n long", "append", timeout)


def by_row(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    """Do what the key's only row says: write the state, set a timeout, both, or nothing."""
    import pandas as pd

    found = f"{state.getOption} {state.oldTimeoutTimestamp}"
    if state.hasTimedOut:
        found += " timed out"
        if key[0] != "again":
            state.remove()
    else:
        what = next(frames)["what"].iloc[0]
        found += f" {what}"
        if "write" in what:
            state.update(((state.getOption or (0,))[0] + 1,))
        if "remove" in what:
            state.remove()
        if "time" in what:
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 10_000)
    yield pd.DataFrame({"sensor": [key[0]], "found": [found]})


def test_a_call_that_changes_nothing_keeps_the_timeout(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give(
        [(key, "write time", at(10)) for key in ("looked at", "written", "set", "removed", "set without a state")],
        [("looked at", "look", at(12)), ("written", "write", at(12)), ("set", "time", at(12)),
         ("removed", "remove", at(12)), ("set without a state", "remove time", at(12))],
        [("looked at", "look", at(60)), ("other", "look", at(61))],
        [("other", "look", at(90))],
    )  # fmt: skip

    def build(df: Any) -> Any:
        return grouped(df, by_row, GroupStateTimeout.EventTimeTimeout)

    rows = beside.on_ferryman(build)
    assert ("looked at", "(1,) -1 timed out") in rows
    same(rows, beside.on_spark(build, "append"))


def test_a_timeout_that_changes_nothing_comes_again() -> None:
    def build(stream: Any) -> Any:
        return grouped(stream, by_row, GroupStateTimeout.EventTimeTimeout)

    with Harness(build, INPUT) as harness:
        harness.epoch([("other", "look", at(10))])
        harness.epoch([("again", "write time", at(10)), ("once", "write time", at(10))])
        harness.epoch([("other", "look", at(60))])
        timed_out = ("again", "(1,) -1 timed out")
        assert sorted(harness.epoch()) == [timed_out, ("once", "(1,) -1 timed out")]
        assert harness.epoch() == harness.epoch() == [timed_out]
        # With rows, it is called for those first.
        look = ("again", "(1,) -1 look")
        assert harness.epoch([("again", "look", at(61))]) == [look, timed_out]
        assert harness.epoch([("again", "write", at(61))]) == [("again", "(1,) -1 write")]
        assert harness.epoch() == []


def times(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    import pandas as pd

    found = f"{state.getCurrentProcessingTimeMs() > 0} {state.getCurrentWatermarkMs()}"
    yield pd.DataFrame({"sensor": [key[0]], "found": [found]})


def test_the_time_is_told_without_a_timeout_as_well(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([("a", "", at(10))], [("a", "", at(20)), ("b", "", at(21))], [("b", "", at(22))])

    def build(df: Any) -> Any:
        return grouped(df, times, GroupStateTimeout.NoTimeout)

    same(beside.on_ferryman(build), beside.on_spark(build, "append"))


@pytest.mark.parametrize("timeout", [GroupStateTimeout.NoTimeout, GroupStateTimeout.ProcessingTimeTimeout])
def test_without_a_watermark_asking_for_it_is_an_error_as_on_spark(timeout: str) -> None:
    def build(stream: Any) -> Any:
        return grouped(stream, times, timeout, delay=None)

    with Harness(build, INPUT) as harness, pytest.raises(OperatorFailed, match="event time watermark"):
        harness.epoch([("a", "", at(10))])
