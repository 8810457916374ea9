"""A `StatefulProcessor` that runs on Spark gives the same rows on Ferryman."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

READINGS = "sensor string, room string, value long"
T0 = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)


def at(seconds: float) -> datetime.datetime:
    return T0 + datetime.timedelta(seconds=seconds)


def ms(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1000)


class Counting(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "count long, total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count, total = self.seen.get() if self.seen.exists() else (0, 0)
        for row in rows:
            count += 1
            total += row.value
        if total > 60:
            self.seen.clear()
        else:
            self.seen.update((count, total))
        yield Row(sensor=key[0], count=count, total=total)

    def close(self) -> None:
        pass


class Remembering(StatefulProcessor):
    """All kinds of state, all their methods."""

    def init(self, handle: Any) -> None:
        self.recent = handle.getListState("recent", "value long")
        self.rooms = handle.getMapState("rooms", "room string", "count long, last long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.recent.appendValue((row.value,))
            before = self.rooms.getValue((row.room,)) if self.rooms.containsKey((row.room,)) else (0, None)
            self.rooms.updateValue((row.room,), (before[0] + 1, row.value))
            if row.value % 7 == 0:
                self.recent.put([(row.value,), (-1,)])
            if row.value % 11 == 0:
                self.rooms.removeKey((row.room,))
            if row.value % 13 == 0:
                self.recent.clear()
            if row.value % 17 == 0:
                self.rooms.clear()
        self.recent.appendList([(100,), (200,)])
        values = [value[0] for value in self.recent.get()]
        rooms = sorted((k[0], v[0], v[1]) for k, v in self.rooms.iterator())
        assert sorted(k[0] for k in self.rooms.keys()) == [room[0] for room in rooms]  # noqa: SIM118  it is no dict
        assert sorted(tuple(v) for v in self.rooms.values()) == sorted(room[1:] for room in rooms)
        yield Row(
            sensor=key[0], recent=str(values), rooms=str(rooms), there=f"{self.recent.exists()} {self.rooms.exists()}"
        )

    def close(self) -> None:
        pass


def readings(seed: int, rows: int, keys: int = 5) -> list[tuple[str, str, int]]:
    import random

    chance = random.Random(seed)
    return [(f"s{chance.randrange(keys)}", f"r{chance.randrange(3)}", chance.randrange(40)) for _ in range(rows)]


@pytest.fixture
def beside(spark: Any, tmp_path: Path) -> Beside:
    made = Beside(spark, tmp_path, READINGS)
    made.give(*(readings(seed, 20) for seed in range(4)))
    return made


def test_a_value(beside: Beside) -> None:
    def build(df: Any) -> Any:
        return df.groupBy("sensor").transformWithState(
            statefulProcessor=Counting(),
            outputStructType="sensor string, count long, total long",
            outputMode="Update",
            timeMode="None",
        )

    same(beside.on_ferryman(build), beside.on_spark(build))


def test_lists_and_maps_with_all_their_methods(beside: Beside) -> None:
    def build(df: Any) -> Any:
        output = "sensor string, recent string, rooms string, there string"
        return df.groupBy("sensor").transformWithState(Remembering(), output, "Update", "None")

    same(beside.on_ferryman(build), beside.on_spark(build))


def test_several_keys(beside: Beside) -> None:
    class Pairs(Counting):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            for row in super().handleInputRows(key, rows, timerValues):
                yield Row(sensor=key[0], room=key[1], count=row["count"])

    def build(df: Any) -> Any:
        return df.groupBy("sensor", "room").transformWithState(
            Pairs(), "sensor string, room string, count long", "Append", "None"
        )

    same(beside.on_ferryman(build), beside.on_spark(build, "append"))


class Silent(StatefulProcessor):
    """Tell of sensors that were silent for ten seconds of event time."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "at long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        latest = max(int(row.time.timestamp() * 1000) for row in rows)
        before = self.last.get()
        if before is not None:
            self.handle.deleteTimer(before[0] + 10_000)
            latest = max(latest, before[0])
        self.last.update((latest,))
        self.handle.registerTimer(latest + 10_000)
        timers = list(self.handle.listTimers())
        yield Row(sensor=key[0], what=f"seen, timers {timers}", watermark=timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        self.last.clear()
        what = f"silent since {expiredTimerInfo.getExpiryTimeInMs()}"
        yield Row(sensor=key[0], what=what, watermark=timerValues.getCurrentWatermarkInMs())

    def close(self) -> None:
        pass


def test_event_time_timers_and_late_rows(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, time timestamp")
    beside.give(
        [("a", at(0)), ("b", at(1)), ("c", at(2))],
        [("a", at(20)), ("d", at(5))],
        [("a", at(25)), ("late", at(4))],
        [("b", at(26)), ("late", at(14)), ("just", at(15)), ("not", at(16))],
        [("b", at(60))],
        [("z", at(61)), ("late", at(49))],
    )

    def build(df: Any) -> Any:
        return (
            df.withWatermark("time", "5 seconds")
            .groupBy("sensor")
            .transformWithState(Silent(), "sensor string, what string, watermark long", "Append", "EventTime")
        )

    same(beside.on_ferryman(build), beside.on_spark(build, "append"))


class PandasCounting(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "count long, total long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        count, total = self.seen.get() if self.seen.exists() else (0, 0)
        for frame in rows:
            count += len(frame)
            total += int(frame["value"].sum())
        self.seen.update((count, total))
        yield pd.DataFrame({"sensor": [key[0]], "count": [count], "total": [total]})

    def close(self) -> None:
        pass


def test_pandas(beside: Beside) -> None:
    def build(df: Any) -> Any:
        return df.groupBy("sensor").transformWithStateInPandas(
            PandasCounting(), "sensor string, count long, total long", "Update", "None"
        )

    same(beside.on_ferryman(build), beside.on_spark(build))


class Started(Counting):
    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        count, total = self.seen.get() or (0, 0)
        self.seen.update((count + initialState.n, total + 1))


def test_initial_state(beside: Beside) -> None:
    initial = beside.spark.createDataFrame([("s1", 10), ("s1", 5), ("nobody", 7)], "sensor string, n long")

    def build(df: Any) -> Any:
        return df.groupBy("sensor").transformWithState(
            Started(),
            "sensor string, count long, total long",
            "Update",
            "None",
            initialState=initial.groupBy("sensor"),
        )

    same(beside.on_ferryman(build), beside.on_spark(build))


def test_a_function_with_a_group_state_and_timeouts(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.streaming.state import GroupStateTimeout

    beside = Beside(spark, tmp_path, "sensor string, time timestamp")
    beside.give(
        [("a", at(0)), ("b", at(1)), ("c", at(2))],
        [("a", at(20)), ("d", at(5))],
        [("a", at(25)), ("late", at(4))],
        [("b", at(60)), ("e", at(61))],
        [("z", at(90))],
    )

    def silent(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        import pandas as pd

        if state.hasTimedOut:
            count = state.get[0]
            state.remove()
            what = "silent"
        else:
            count = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
            state.update((count,))
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 10_000)
            what = "seen"
        yield pd.DataFrame({"sensor": [key[0]], "what": [what], "count": [count]})

    def build(df: Any) -> Any:
        mark = df.withWatermark
        return (
            mark("time", "5 seconds")
            .groupBy("sensor")
            .applyInPandasWithState(
                silent,
                "sensor string, what string, count long",
                "count long",
                "append",
                GroupStateTimeout.EventTimeTimeout,
            )
        )

    same(beside.on_ferryman(build), beside.on_spark(build, "append"))


class PandasStarted(PandasCounting):
    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        calls, _ = self.seen.get() or (0, 0)
        # All rows of a key come at once.
        self.seen.update((calls + 1, int(initialState["n"].sum()) * 1000 + len(initialState)))


def test_pandas_with_an_initial_state(beside: Beside) -> None:
    initial = beside.spark.createDataFrame([("s1", 10), ("s2", 3), ("s1", 5), ("nobody", 7)], "sensor string, n long")

    def build(df: Any) -> Any:
        return df.groupBy("sensor").transformWithStateInPandas(
            PandasStarted(),
            "sensor string, count long, total long",
            "Update",
            "None",
            initialState=initial.groupBy("sensor"),
        )

    same(beside.on_ferryman(build), beside.on_spark(build))
