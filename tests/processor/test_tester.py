"""The same processor in Spark's `TwsTester`, in Ferryman's harness, and in jobs of both engines: the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from processor.kind import Telling
from processor.test_processor import Counting, Remembering, Silent, at, readings
from processor.test_time import Once
from pyspark.errors import IllegalArgumentException
from pyspark.sql import Row

from ferryman.errors import OperatorFailed, OutputMismatch
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
    return [
        tuple(row) for key, some in by_key(rows).items() for row in tester.test(key, [make(*values) for values in some])
    ]


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
        assert sorted(ours) == sorted(theirs)
        assert any(what.startswith("silent") for _, what, _ in ours)


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


class Guests(Telling):
    """Count visits by room, from an initial state on; forget a guest who was not seen for ten seconds."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.rooms = handle.getMapState("rooms", "room string", "visits long")
        self.last = handle.getValueState("last", "ms long")

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        self.rooms.updateValue((initialState.room,), (initialState.visits,))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            visits = self.rooms.getValue((row.room,))
            self.rooms.updateValue((row.room,), ((visits[0] if visits else 0) + 1,))
            if self.last.exists():
                self.handle.deleteTimer(self.last.get()[0] + 10_000)
            self.last.update((int(row.time.timestamp() * 1000),))
            self.handle.registerTimer(self.last.get()[0] + 10_000)
        yield self.say(key[0], sorted(self.rooms.iterator()))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield self.say(key[0], "gone", sorted(self.rooms.keys()), expiredTimerInfo.getExpiryTimeInMs())
        self.rooms.clear()
        self.last.clear()


def test_an_initial_state_a_map_and_timers_in_the_tester_and_in_both_engines(spark: Any, tmp_path: Path) -> None:
    columns = ["guest", "room", "time"]
    known = [("ann", "hall", 3), ("ann", "bar", 1), ("old", "bar", 9)]
    batches = [
        [("ann", "hall", at(1)), ("ben", "bar", at(2)), ("ann", "spa", at(3))],
        [("ben", "hall", at(30))],
        [("ann", "bar", at(60)), ("cid", "bar", at(60))],
        [("ben", "bar", at(90))],
    ]

    tester = TwsTester(
        Guests(),
        initialStateRow=[(guest, Row(room=room, visits=visits)) for guest, room, visits in known],
        timeMode="EventTime",
        eventTimeExtractor=lambda row: int(row.time.timestamp() * 1000),
    )
    tested: list[Any] = []
    # In a job the watermark of a batch is that of the rows before it, and timers come after its rows.
    for batch, before in zip([*batches, []], [[], *batches], strict=True):
        tested += rows_of_tester(tester, batch, columns)
        if before:
            latest = max(moment for *_, moment in before)
            tested += [tuple(row) for row in tester.setWatermark(int(latest.timestamp() * 1000))]

    beside = Beside(spark, tmp_path, "guest string, room string, time timestamp")
    beside.give(*batches)
    initial = spark.createDataFrame(known, "guest string, room string, visits long")

    def build(df: Any) -> Any:
        grouped = df.withWatermark("time", "0 seconds").groupBy("guest")
        return grouped.transformWithState(Guests(), "what string", "Append", "EventTime", initial.groupBy("guest"))

    ours = beside.on_ferryman(build)
    same(ours, beside.on_spark(build, "append"))
    same(ours, tested)
    assert sum("gone" in what for (what,) in ours) == 2


class Loose(Telling):
    """What the tester lets pass, and no engine does."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.number = handle.getValueState("number", "n long")
        self.list = handle.getListState("list", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.what == "text":
                self.number.update(("a text",))
            elif row.what == "empty":
                self.list.put([])
            elif row.what == "timer":
                self.handle.registerTimer(timerValues.getCurrentWatermarkInMs())
            yield self.say(row.what, key)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield self.say("due", type(key).__name__, expiredTimerInfo.getExpiryTimeInMs())


def test_where_the_tester_is_not_as_a_job_is() -> None:
    """What the page on migrating says of it; that Spark's own jobs are as ours is shown beside the kinds."""

    def build(stream: Any) -> Any:
        grouped = stream.withWatermark("time", "0 seconds").groupBy("a", "b")
        return grouped.transformWithState(Loose(), "what string", "Append", "EventTime")

    def row(what: str) -> tuple[Any, ...]:
        return ("x", "y", what, at(5))

    def tested() -> Any:
        return TwsTester(Loose(), timeMode="EventTime", eventTimeExtractor=lambda row: 1)

    for what in ("text", "empty"):
        assert len(tested().test("x", [Row(what=what)])) == 1
        with (
            Harness(build, "a string, b string, what string, time timestamp") as harness,
            pytest.raises((OperatorFailed, OutputMismatch)),
        ):
            harness.epoch([row(what)])
    with pytest.raises(IllegalArgumentException, match="not later than the current watermark"):
        tested().test("x", [Row(what="timer")])
    with Harness(build, "a string, b string, what string, time timestamp") as harness:
        assert harness.epoch([row("timer")]) == [("timer ('x', 'y')",), ("due Row 0",)]
    # Several columns are one key to it.
    assert tested().test(("x", "y"), [Row(what="")]) == [Row(what=" (('x', 'y'),)")]
