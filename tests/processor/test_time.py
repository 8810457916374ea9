"""Timers and time to live by the clock, and chained operators: what Spark and Ferryman make of time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from processor.test_processor import at, readings
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import Ferry, sinks
from ferryman.errors import InvalidConfiguration, StateSchemaChanged


class Started:
    """A job under way, with what it put out so far."""

    def __init__(self, beside: Beside, build: Any, *, name: str = "ferried", idle: Any = None) -> None:
        self.rows: list[Any] = []
        ferry = Ferry(beside.spark, beside.place / name, idle=idle)
        sink = sinks.foreach(lambda frame, _: self.rows.extend(tuple(row) for row in frame.collect()))
        self.job = beside.watched(ferry, build).write(sink).start(name, instances=2)

    def wait_for(self, *rows: Any) -> None:
        assert self.job.wait_for(lambda: all(row in self.rows for row in rows), timeout=150), self.rows


class Once(StatefulProcessor):
    """Answer every reading 1.5 seconds later."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1500)
        yield Row(sensor=key[0], what="seen", after=0)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        late = timerValues.getCurrentProcessingTimeInMs() - expiredTimerInfo.getExpiryTimeInMs()
        yield Row(sensor=key[0], what="answered", after=int(0 <= late < 20_000))

    def close(self) -> None:
        pass


def test_a_timer_by_the_clock_fires_without_data(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, value long")
    beside.give([("a", 1), ("b", 2)])

    def build(stream: Any) -> Any:
        return stream.groupBy("sensor").transformWithState(
            Once(), "sensor string, what string, after int", "Append", "ProcessingTime"
        )

    started = Started(beside, build)
    try:
        started.wait_for(("a", "seen", 0), ("a", "answered", 1), ("b", "answered", 1))
        # The sink has rows before their epoch is committed.
        assert started.job.wait_for(lambda: sum(epoch.output for epoch in started.job.progress()) == 4, timeout=60)
        epochs = started.job.epoch
        # With nothing due any more, and idle=None, no epoch comes.
        assert not started.job.wait_for(lambda: started.job.epoch > epochs, timeout=1.5)
    finally:
        started.job.stop()
    assert len(started.rows) == 4


class Fading(StatefulProcessor):
    """All kinds of state, each gone two seconds after it was written."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n long", 2000)
        self.list = handle.getListState("list", "n long", 2000)
        self.map = handle.getMapState("map", "k long", "n long", 2000)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            if row.what == "write":
                self.value.update((row.n,))
                self.list.appendValue((row.n,))
                self.map.updateValue((row.n,), (row.n,))
        value = self.value.get()
        entries = sorted((tuple(key), tuple(kept)) for key, kept in self.map.iterator())
        found = (value and tuple(value), [tuple(item) for item in self.list.get()], entries)
        there = (self.value.exists(), self.list.exists(), self.map.exists())
        yield Row(sensor=key[0], n=row.n, found=str([found, there]))

    def close(self) -> None:
        pass


def fading(stream: Any) -> Any:
    return stream.groupBy("sensor").transformWithState(
        Fading(), "sensor string, n long, found string", "Append", "ProcessingTime"
    )


def test_what_has_expired_is_not_seen_and_is_taken_out(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, what string, n long")
    beside.give([("a", "write", 1)])
    started = Started(beside, fading)
    try:
        here = str([((1,), [(1,)], [((1,), (1,))]), (True, True, True)])
        started.wait_for(("a", 1, here))
        # Taken out without any data: every table is empty in the end.
        tables = ["Fading", "Fading.list", "Fading.map", "Fading._time"]
        assert started.job.wait_for(
            lambda: all(started.job.state(table).to_arrow().num_rows == 0 for table in tables), timeout=150
        )
        beside.give([("a", "look", 2)])
        started.wait_for(("a", 2, str([(None, [], []), (False, False, False)])))
    finally:
        started.job.stop()


class Lasting(Fading):
    """The same with an hour to live, and times by the clock that have come long ago, or not for long."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long", 3_600_000)
        self.list = handle.getListState("list", "n long", 3_600_000)
        self.map = handle.getMapState("map", "k long", "n long", 3_600_000)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        listed = list(rows)
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        for row in listed:
            # In 1970, in 2970, and one that is taken back.
            self.handle.registerTimer(1000 + row.n)
            self.handle.registerTimer(31_556_952_000_000 + row.n)
            self.handle.registerTimer(31_556_952_000_100 + row.n)
            self.handle.deleteTimer(31_556_952_000_100 + row.n)
        # Spark lists them in an order of its own.
        timers = sorted(self.handle.listTimers())
        yield Row(sensor=key[0], n=-1, found=str((timers, abs(now_ms / 1000 - NOW) < 3600)))
        yield from super().handleInputRows(key, iter(listed), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        there = (self.value.exists(), self.list.exists(), self.map.exists())
        yield Row(sensor=key[0], n=expiredTimerInfo.getExpiryTimeInMs(), found=f"due, {there}")


NOW = time.time()


def test_what_lives_long_and_timers_that_have_come_or_will_not(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, what string, n long")
    beside.give(
        [("a", "write", 1), ("a", "write", 2), ("b", "look", 3)],
        [("a", "look", 4), ("b", "write", 5)],
        [("a", "write", 1), ("b", "look", 6), ("c", "look", 7)],
    )

    def build(df: Any) -> Any:
        return df.groupBy("sensor").transformWithState(
            Lasting(), "sensor string, n long, found string", "Append", "ProcessingTime"
        )

    ours = beside.on_ferryman(build)
    same(ours, beside.on_spark(build, "append", until=len(ours)))


def test_a_timeout_by_the_clock_that_does_not_come(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, value long")
    beside.give([("a", 1), ("b", 2)], [("a", 3)], [("b", 4), ("a", 5)])

    def counting(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        import pandas as pd

        before = state.getOption
        count = sum(len(frame) for frame in frames) + (0 if before is None else before[0])
        what = f"{state.hasTimedOut} {state.exists} {abs(state.getCurrentProcessingTimeMs() / 1000 - NOW) < 3600}"
        if count > 2:
            state.remove()
        else:
            state.update((count,))
            state.setTimeoutDuration(3_600_000)
        yield pd.DataFrame({"sensor": [key[0]], "what": [what], "count": [count]})

    def build(df: Any) -> Any:
        return df.groupBy("sensor").applyInPandasWithState(
            counting,
            "sensor string, what string, count long",
            "count long",
            "append",
            GroupStateTimeout.ProcessingTimeTimeout,
        )

    ours = beside.on_ferryman(build)
    same(ours, beside.on_spark(build, "append", until=len(ours)))


def test_a_timeout_by_the_clock(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, value long")
    beside.give([("a", 1), ("b", 2), ("a", 3)])

    def silent(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        import pandas as pd

        if state.hasTimedOut:
            what, count = "silent", state.get[0]
            state.remove()
        else:
            assert state.getCurrentProcessingTimeMs() > 0
            what, count = "seen", sum(len(frame) for frame in frames)
            state.update((count,))
            state.setTimeoutDuration(500)
        yield pd.DataFrame({"sensor": [key[0]], "what": [what], "count": [count]})

    def build(stream: Any) -> Any:
        return stream.groupBy("sensor").applyInPandasWithState(
            silent,
            "sensor string, what string, count long",
            "count long",
            "append",
            GroupStateTimeout.ProcessingTimeTimeout,
        )

    started = Started(beside, build)
    try:
        started.wait_for(("a", "seen", 2), ("a", "silent", 2), ("b", "silent", 1))
    finally:
        started.job.stop()
    assert len(started.rows) == 4


class Hot(StatefulProcessor):
    """Pass the hottest reading of each epoch on, with its time."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        best = max(rows, key=lambda row: (row.value, row.time))
        self.seen.update(((self.seen.get() or (0,))[0] + 1,))
        yield Row(room=best.room, value=best.value, at=best.time)

    def close(self) -> None:
        pass


class Closed(StatefulProcessor):
    """Tell a room's hottest value when its five seconds are over."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.best = handle.getMapState("best", "start long", "value long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            start = int(row["at"].timestamp()) // 5 * 5
            before = self.best.getValue((start,))
            self.best.updateValue((start,), (max(row.value, before[0]) if before else row.value,))
            self.handle.registerTimer((start + 5) * 1000)
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        start = expiredTimerInfo.getExpiryTimeInMs() // 1000 - 5
        best = self.best.getValue((start,))
        self.best.removeKey((start,))
        yield Row(room=key[0], start=start, best=best[0])

    def close(self) -> None:
        pass


class PandasHot(Hot):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        whole = pd.concat(list(rows)).sort_values(["value", "time"]).iloc[[-1]]
        self.seen.update(((self.seen.get() or (0,))[0] + 1,))
        yield pd.DataFrame({"room": whole["room"], "value": whole["value"], "at": whole["time"]})


@pytest.mark.parametrize(
    "pandas", [pytest.param(False, id="rows"), pytest.param(True, id="pandas", marks=pytest.mark.slow)]
)
def test_chained_processors_share_the_watermark(spark: Any, tmp_path: Path, pandas: bool) -> None:
    beside = Beside(spark, tmp_path, "sensor string, room string, value long, time timestamp")
    batches = [
        [(sensor, room, value, at(7 * seed + number / 3)) for number, (sensor, room, value) in enumerate(rows)]
        for seed, rows in enumerate(readings(seed, 15) for seed in range(6))
    ]
    beside.give(*batches, [("late", "r0", 1, at(1)), ("s0", "r1", 3, at(100))], [("s0", "r1", 3, at(130))])

    def build(df: Any) -> Any:
        grouped, processor = df.groupBy("sensor"), PandasHot() if pandas else Hot()
        call = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
        first = call(
            processor, "room string, value long, at timestamp", "Append", "EventTime", eventTimeColumnName="at"
        )
        return first.groupBy("room").transformWithState(
            Closed(), "room string, start long, best long", "Append", "EventTime"
        )

    def marked(df: Any) -> Any:
        return build(df.withWatermark("time", "3 seconds"))

    same(beside.on_ferryman(marked), beside.on_spark(marked, "append"))


class Two(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.a = handle.getValueState("a", "n long")
        self.b = handle.getValueState("b", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.a.update((len(list(rows)),))
        self.b.update((7,))
        yield Row(sensor=key[0], n=self.a.get()[0])

    def close(self) -> None:
        pass


class One(Two):
    def init(self, handle: Any) -> None:
        self.a = handle.getValueState("a", "n long")
        self.b = self.a


class OneDeleted(One):
    def init(self, handle: Any) -> None:
        super().init(handle)
        handle.deleteIfExists("b")


class DeletedAndDeclared(Two):
    def init(self, handle: Any) -> None:
        handle.deleteIfExists("b")
        super().init(handle)


def test_a_state_that_is_deleted_is_gone(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, value long")
    beside.give([("a", 1)])

    def build(processor: Any) -> Any:
        return lambda stream: stream.groupBy("sensor").transformWithState(
            processor, "sensor string, n long", "Update", "None", name="Two"
        )

    beside.on_ferryman(build(Two()))
    beside.give([("a", 2), ("a", 3)])

    with pytest.raises(StateSchemaChanged, match=r"state 'b': .* -> not there"):
        beside.on_ferryman(build(One()))
    with pytest.raises(InvalidConfiguration, match="state 'b': deleted and declared in the same `init`"):
        beside.on_ferryman(build(DeletedAndDeclared()))
    assert beside.on_ferryman(build(OneDeleted())) == [("a", 7)]
    with pytest.raises(StateSchemaChanged, match="Give the new state another name"):
        beside.on_ferryman(build(Two()))
