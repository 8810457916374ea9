"""Processors on rows that go by time: timers, late rows, time to live, an initial state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from processor.kind import Kind, Telling, at, shown
from pyspark.sql import Row, SparkSession


class Alarms(Telling):
    """Tell of a key that was silent for ten seconds; every row puts it off."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.armed = handle.getValueState("armed", "at long, rows long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        times = [int(row.t.timestamp() * 1000) for row in rows]
        before = self.armed.get()
        if before is not None:
            self.handle.deleteTimer(before[0])
        self.armed.update((max(times) + 10_000, (before[1] if before else 0) + len(times)))
        self.handle.registerTimer(max(times) + 10_000)
        yield self.say(key, self.armed.get(), list(self.handle.listTimers()), timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield self.say("silent", key, self.armed.get(), expiredTimerInfo.getExpiryTimeInMs())
        self.armed.clear()


class ManyTimers(Telling):
    """Several timers at once, in the past and for the same time; they set and delete others when they fire."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        listed = self.handle.listTimers()
        for second in (5, 3, 9, 3, 10**12):
            self.handle.registerTimer(second * 1000)
        yield self.say(key, sorted(listed), timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        time_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield self.say(key, "due", time_ms, sorted(self.handle.listTimers()))
        if time_ms == 3000:
            self.handle.deleteTimer(5000)
            for other in (4000, 3000, 9500):
                self.handle.registerTimer(other)
        yield self.say(key, "done", time_ms, sorted(self.handle.listTimers()))


class Restless(Telling):
    """A timer that sets itself again, for a time that has come; and another that sets one before it."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 5000)
        yield self.say(key, [row.n for row in rows], timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        time_ms, watermark_ms = expiredTimerInfo.getExpiryTimeInMs(), timerValues.getCurrentWatermarkInMs()
        yield self.say(key, "due", time_ms, watermark_ms)
        for again in (watermark_ms, time_ms - 1):
            if again != time_ms:
                self.handle.registerTimer(again)


class Sessions(Telling):
    """Sessions that end when nothing came for five seconds; rows may come out of order, and join two of them."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.open = handle.getMapState("open", "start long", "end long, rows long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            start = end = int(row.t.timestamp() * 1000)
            count = 1
            for (other,), (other_end, other_count) in list(self.open.iterator()):
                if other - 5000 <= start <= other_end + 5000 or other - 5000 <= end <= other_end + 5000:
                    start, end, count = min(start, other), max(end, other_end), count + other_count
                    self.open.removeKey((other,))
                    self.handle.deleteTimer(other_end + 5000)
            self.open.updateValue((start,), (end, count))
            self.handle.registerTimer(end + 5000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        for (start,), (end, count) in sorted(self.open.iterator()):
            if end + 5000 == expiredTimerInfo.getExpiryTimeInMs():
                self.open.removeKey((start,))
                yield self.say(key, start, end, count)


class Late(Telling):
    """Which rows come at all."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield self.say(key, [row.n for row in rows], timerValues.getCurrentWatermarkInMs())


class Fading(Telling):
    """State that lives for a millisecond: it is there in its own batch, and gone in the next."""

    TTL = 1

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n long", self.TTL)
        self.list = handle.getListState("list", "n long", self.TTL)
        self.map = handle.getMapState("map", "k long", "n long", self.TTL)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield self.say(key, "before", *self.found(row.n))
            self.value.update((row.n,))
            self.list.appendValue((row.n,))
            self.map.updateValue((row.n,), (row.n,))
            yield self.say(key, "after", *self.found(row.n))

    def found(self, n: int) -> Iterator[Any]:
        yield from (self.value.exists(), self.value.get(), self.list.exists(), list(self.list.get()))
        yield from (self.map.exists(), sorted(self.map.iterator()), sorted(self.map.keys()), sorted(self.map.values()))
        yield from (self.map.containsKey((n,)), self.map.getValue((n,)))


class Lasting(Fading):
    """The same for an hour: nothing is gone, and what is cleared is."""

    TTL = 3_600_000

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield from super().handleInputRows(key, rows, timerValues)
        if len(list(self.list.get())) > 2:
            self.list.put([(0,)])
            self.map.clear()
            self.value.clear()
        yield self.say(key, *self.found(0))


class Begun(Telling):
    """Count on from an initial state, that sets timers as well."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.total = handle.getValueState("total", "n long")
        self.list = handle.getListState("list", "what string")

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        self.total.update(((self.total.get() or (0,))[0] + initialState.n,))
        self.list.appendValue((f"{shown(key)} {shown(initialState)} {timerValues.getCurrentWatermarkInMs()}",))
        self.handle.registerTimer(5000 + initialState.n)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self.total.get()
        self.total.update(((before or (0,))[0] + len(list(rows)),))
        yield self.say(key, before, sorted(self.list.get()), sorted(self.handle.listTimers()))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield self.say("due", key, expiredTimerInfo.getExpiryTimeInMs(), self.total.get())


def initial(spark: SparkSession) -> Any:
    rows = [("a", 1), ("a", 2), ("z", 3), (None, 4)]
    return spark.createDataFrame(rows, "name string, n long").groupBy("name")


ROWS = "k string, t timestamp, n long"
LATE = [
    [("a", at(100), 1), ("b", at(100), 2)],
    [("a", at(200), 3)],
    [("a", at(99), 4), ("b", at(50), 5), ("b", None, 6)],
    [("a", at(189), 7), ("a", at(190), 8), ("a", at(191), 9)],
]
TIMES = [
    [("a", at(0), 1), ("b", at(1), 2), ("a", at(3), 3)],
    [("a", at(20), 4), ("a", at(16), 5), ("c", at(18), 6)],
    [("b", at(40), 7), ("c", at(22), 8)],
    [("a", at(90), 9)],
]
EVENT: dict[str, Any] = {"time": "EventTime", "watermark": ("t", "1 second")}
FEW = [[("a", at(0), 1)], [("b", at(10), 2)], [("c", at(20), 3)]]
TWO = [[("a", at(0), 1), ("a", at(0), 2)], [("a", at(0), 1)], [("a", at(0), 3), ("b", at(0), 3)]]

KINDS = [
    Kind("alarms", ROWS, TIMES, Alarms, **EVENT),
    Kind("timers that set and delete others", ROWS, FEW, ManyTimers, **EVENT),
    Kind("such timers by the clock", ROWS, FEW, ManyTimers, time="ProcessingTime", until=27),
    Kind("timers that set themselves again", ROWS, TIMES[:3], Restless, **EVENT),
    Kind("sessions", ROWS, TIMES, Sessions, **EVENT),
    Kind("late rows by event time", ROWS, LATE, Late, time="EventTime", watermark=("t", "10 seconds")),
    Kind("late rows without a time mode", ROWS, LATE, Late, watermark=("t", "10 seconds")),
    Kind("late rows by the clock", ROWS, LATE, Late, time="ProcessingTime", watermark=("t", "10 seconds"), until=6),
    Kind("a millisecond to live", ROWS, TWO, Fading, time="ProcessingTime", until=10),
    Kind("an hour to live", ROWS, TWO, Lasting, time="ProcessingTime", until=14),
    Kind("an initial state", ROWS, [[("a", at(0), 1), (None, at(0), 2)], *TIMES], Begun, initial=initial, **EVENT),
]
