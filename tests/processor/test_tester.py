"""The same processor in Spark's `TwsTester` and in Ferryman's harness: the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from processor.test_processor import Counting, Remembering, Silent, at, readings
from processor.test_time import Once
from pyspark.sql import Row

from ferryman.testing import Harness

# It came with PySpark 4.2.
TwsTester = pytest.importorskip("pyspark.sql.streaming.tws_tester").TwsTester

READINGS = "sensor string, room string, value long"


def by_key(rows: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def rows_of_tester(tester: Any, rows: list[Any], columns: list[str]) -> list[Any]:
    """Give rows to the tester, key by key."""
    make = Row(*columns)
    return [tuple(row) for key, some in by_key(rows).items() for row in tester.test(key, [make(*one) for one in some])]


@pytest.mark.parametrize(
    ("processor", "output"),
    [
        (Counting, "sensor string, count long, total long"),
        (Remembering, "sensor string, recent string, rooms string, there string"),
    ],
)
def test_states(processor: Any, output: str) -> None:
    def build(stream: Any) -> Any:
        return stream.groupBy("sensor").transformWithState(processor(), output, "Update", "None")

    tester = TwsTester(processor())
    with Harness(build, READINGS, instances=2) as harness:
        for seed in range(4):
            rows = readings(seed, 20)
            assert sorted(harness.epoch(rows)) == sorted(rows_of_tester(tester, rows, ["sensor", "room", "value"]))


def test_timers_by_the_clock() -> None:
    def build(stream: Any) -> Any:
        return stream.groupBy("sensor").transformWithState(
            Once(), "sensor string, what string, after int", "Append", "ProcessingTime"
        )

    tester = TwsTester(Once(), timeMode="ProcessingTime")
    with Harness(build, "sensor string", instances=2, now_ms=1000) as harness:
        assert tester.setProcessingTime(1000) == []
        found = [(harness.epoch([("a",), ("b",)]), rows_of_tester(tester, [("a",), ("b",)], ["sensor"]))]
        for ms in (1499, 1, 5000):
            harness.now_ms += ms
            fired = tester.setProcessingTime(harness.now_ms)
            found.append((harness.epoch(), [tuple(row) for row in fired]))
        for ours, theirs in found:
            assert sorted(ours) == sorted(theirs)
        assert [len(ours) for ours, _ in found] == [2, 0, 2, 0]


def test_timers_by_event_time() -> None:
    """The tester is told the watermark; the harness goes on from the rows."""

    def build(stream: Any) -> Any:
        return (
            stream.with_watermark("time", 0.0)
            .groupBy("sensor")
            .transformWithState(Silent(), "sensor string, what string, watermark long", "Append", "EventTime")
        )

    def moment(row: Any) -> int:
        return int(row.time.timestamp() * 1000)

    tester = TwsTester(Silent(), timeMode="EventTime", eventTimeExtractor=moment)
    epochs = [[("a", at(1)), ("b", at(2))], [("a", at(20))], [("b", at(40))], [("c", at(80))]]
    with Harness(build, "sensor string, time timestamp", instances=2) as harness:
        ours: list[Any] = []
        theirs: list[Any] = []
        for rows in epochs:
            ours += harness.epoch(rows)
            theirs += rows_of_tester(tester, rows, ["sensor", "time"])
            # With no rows of its own, so that what is due by the watermark comes out.
            ours += harness.epoch()
            theirs += [tuple(row) for row in tester.setWatermark(harness.watermark_ms)]
        assert said(ours) == said(theirs)
        assert any(what.startswith("silent") for _, what in said(ours))


def said(rows: list[Any]) -> list[Any]:
    """Leave out the watermark: before the first row, Spark's tester has 0 and a stream has none."""
    return sorted(row[:2] for row in rows)


def test_rows_in_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    from processor.test_processor import PandasCounting

    def build(stream: Any) -> Any:
        return stream.groupBy("sensor").transformWithStateInPandas(
            PandasCounting(), "sensor string, count long, total long", "Update", "None"
        )

    def frames(rows: list[Any]) -> Iterator[Any]:
        for key, some in by_key(rows).items():
            yield key, pandas.DataFrame(some, columns=["sensor", "room", "value"])

    tester = TwsTester(PandasCounting())
    with Harness(build, READINGS, instances=2) as harness:
        for seed in range(3):
            rows = readings(seed, 20)
            made = [tester.testInPandas(key, frame) for key, frame in frames(rows)]
            theirs = [tuple(row) for frame in made for row in frame.itertuples(index=False)]
            assert sorted(harness.epoch(rows)) == sorted(theirs)
