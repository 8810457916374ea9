"""A declaration that changes in what its columns do not show is refused, where results would be wrong."""

from __future__ import annotations

import operator
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import (
    BloomFilter,
    CountMin,
    DecayedRate,
    HyperLogLog,
    Operator,
    Reducing,
    Reservoir,
    SessionWindow,
    TDigest,
    TumblingWindow,
    aggregates,
)
from ferryman.errors import StateSchemaChanged
from ferryman.testing import Harness

INPUT = "key string, x long"


def keeping(state: Any, **more: Any) -> Any:
    def process(self: Any, key: Any, row: Any) -> Iterator[Any]:
        if isinstance(state, (TumblingWindow, SessionWindow, DecayedRate)):
            self.kept.add(row.x, 1)
        else:
            self.kept.add(row.x)
        yield key, row.x

    made = type("Keeping", (Operator,), {"output": "key string, x long", "process": process, "kept": state, **more})
    return lambda stream: stream.key_by("key").process(made)


def summing() -> Reducing:
    return Reducing(int, operator.add)


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (BloomFilter(1000), BloomFilter(100_000), "kept: BloomFilter(bytes=1199, hashes=7) -> BloomFilter(bytes="),
        (HyperLogLog(10), HyperLogLog(12), "kept: HyperLogLog(lg_k=10) -> HyperLogLog(lg_k=12)"),
        (HyperLogLog(), TDigest(), "-> TDigest(k=200)"),
        (CountMin(0.01), CountMin(0.001), "CountMin("),
        (Reservoir(int, 10), Reservoir(int, 5), "Reservoir(size=10) -> Reservoir(size=5)"),
        (DecayedRate(1000), DecayedRate(2000), "DecayedRate(half_life_ms=1000)"),
        (TumblingWindow(1000, summing()), TumblingWindow(500, summing()), "TumblingWindow(size_ms=1000)"),
        (SessionWindow(1000, summing()), TumblingWindow(1000, summing()), "SessionWindow(gap_ms=1000)"),
    ],
)
def test_a_sketch_or_window_of_another_make_is_refused(before: Any, after: Any, shown: str) -> None:
    with Harness(keeping(before), INPUT) as harness:
        harness.epoch([("a", 1)])
        with pytest.raises(StateSchemaChanged) as refused:
            harness.redeclare(keeping(after))
        assert shown in str(refused.value)
        assert "'Keeping'" in str(refused.value)
        # What was there goes on.
        harness.redeclare(keeping(before))
        harness.epoch([("a", 2)])


def test_a_sketch_that_is_given_up_by_name_may_make_room_for_another() -> None:
    def other(stream: Any) -> Any:
        class Keeping(Operator):
            output = "key string, x long"
            dropped = ("kept",)
            larger = BloomFilter(100_000)

            def process(self, key: Any, row: Any) -> Iterator[Any]:
                self.larger.add(row.x)
                yield key, int(1 in self.larger)

        return stream.key_by("key").process(Keeping)

    with Harness(keeping(BloomFilter(1000)), INPUT) as harness:
        harness.epoch([("a", 1)])
        harness.redeclare(other)
        assert harness.epoch([("a", 2)]) == [("a", 0)]


class Calling(Operator):
    output = "key string, x long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.call_at(row.x)
        return iter(())

    def due(self, key: Any, at: int) -> Iterator[Any]:
        yield key, at


def calling(**attributes: Any) -> Any:
    made = type("Calling", (Calling,), attributes)
    return lambda stream: stream.with_watermark("t", 0.0).key_by("key").process(made)


def test_calls_by_another_clock_are_refused() -> None:
    with Harness(calling(by_event_time=True), f"{INPUT}, t timestamp") as harness:
        harness.epoch([])
        with pytest.raises(StateSchemaChanged, match="by_event_time: True -> False"):
            harness.redeclare(calling(by_event_time=False))


def test_an_operator_that_needs_no_calls_any_more_gives_them_up() -> None:
    def without(stream: Any) -> Any:
        class Calling(Operator):
            output = "key string, x long"

            def process(self, key: Any, row: Any) -> Iterator[Any]:
                yield key, row.x

        return stream.key_by("key").process(Calling)

    with Harness(lambda stream: stream.key_by("key").process(Calling), INPUT) as harness:
        harness.epoch([("a", 10_000_000_000_000)])
        harness.redeclare(without)
        assert harness.epoch([("a", 1)]) == [("a", 1)]


class Timing(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.handle.registerTimer(row.x)
        yield Row(key=key[0], x=len(list(self.handle.listTimers())))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(key=key[0], x=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        pass


def timing(output: str, mode: str) -> Any:
    return lambda stream: stream.groupBy("key").transformWithState(Timing(), "key string, x long", output, mode)


def test_a_processor_in_another_mode_is_refused_as_by_spark() -> None:
    with Harness(timing("Update", "ProcessingTime"), INPUT) as harness:
        harness.epoch([("a", 10_000_000_000_000)])
        with pytest.raises(StateSchemaChanged, match="timeMode: processingtime -> none"):
            harness.redeclare(timing("update", "None"))
        with pytest.raises(StateSchemaChanged, match="outputMode: update -> append"):
            harness.redeclare(timing("Append", "ProcessingTime"))
        harness.redeclare(timing("UPDATE", "processingTime"))


def test_thousands_of_timers_of_one_key_cost_no_more_each_than_hundreds() -> None:
    def seconds(timers: int, epochs: int) -> float:
        far = 10_000_000_000_000
        with Harness(timing("Update", "ProcessingTime"), INPUT) as harness:
            harness.epoch([("a", far)])
            began = time.perf_counter()
            for epoch in range(epochs):
                found = harness.epoch([("a", far + 1 + epoch * timers + timer) for timer in range(timers)])
            assert found == [("a", 1 + timers * epochs)]
            return time.perf_counter() - began

    seconds(10, 1)
    few, many = seconds(500, 4), seconds(5_000, 4)
    # Ten times the timers; a hundred times if each were looked for among all.
    assert many < 40 * few, (few, many)


def aggregated(**declared: Any) -> Any:
    return lambda stream: stream.key_by("key").aggregate(name="Totals", **declared)


@pytest.mark.parametrize(
    "changed",
    [
        {"n": aggregates.count(), "top": aggregates.max("x")},
        {"total": aggregates.sum("x")},
        {"n": aggregates.sum("x")},
    ],
)
def test_changed_aggregates_are_refused_as_a_job_refuses_them(changed: dict[str, Any]) -> None:
    with Harness(aggregated(n=aggregates.count()), INPUT) as harness:
        harness.epoch([("a", 1), ("a", 2)])
        before = harness.state()

        with pytest.raises(StateSchemaChanged, match="Totals"):
            harness.redeclare(aggregated(**changed))

        harness.redeclare(aggregated(n=aggregates.count()))
        assert harness.state() == before


def test_an_input_column_of_an_aggregate_may_get_another_name() -> None:
    def build(column: str) -> Any:
        return lambda stream: stream.key_by("key").aggregate(name="Sums", total=aggregates.sum(column))

    with Harness(build("x"), "key string, x long, y long") as harness:
        harness.epoch([("a", 1, 5)])
        harness.redeclare(build("y"))
        assert harness.epoch([("a", 1, 5)]) == [("a", 6)]
