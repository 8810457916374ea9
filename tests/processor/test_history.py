"""A `StatefulProcessor` on the harness: all its states, with a time to live and without, and timers, beside a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from random_history import KEYS, SMALL, Kind, run_histories

from ferryman.testing import Harness

TTL = 1000


class Everything(StatefulProcessor):
    """A row does one thing to one state, and tells what all of them have then."""

    def __init__(self, ttl_ms: int | None) -> None:
        self.ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long", self.ttl_ms)
        self.list = handle.getListState("list", "n long", self.ttl_ms)
        self.map = handle.getMapState("map", "k long", "n long", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        for row in rows:
            self.do(row.what, row.x, now_ms)
            yield Row(key=key[0], found=self.found())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(key=key[0], found=f"{expiredTimerInfo.getExpiryTimeInMs()} {self.found()}")

    def do(self, what: str, x: int, now_ms: int) -> None:
        if what == "update":
            self.value.update((x,))
        elif what == "append":
            self.list.appendValue((x,))
        elif what == "put":
            self.list.put([(number,) for number in range(1, x + 2)])
        elif what == "set":
            self.map.updateValue((x,), (x * 2,))
        elif what == "remove":
            self.map.removeKey((x,))
        elif what == "clear":
            [self.value, self.list, self.map][x % 3].clear()
        elif what == "timer":
            self.handle.registerTimer(now_ms + x * 300 + 1)
        elif what == "no timer":
            self.handle.deleteTimer(now_ms + x * 300 + 1)

    def found(self) -> str:
        value = self.value.get()
        entries = sorted((key[0], kept[0]) for key, kept in self.map.iterator())
        there = (self.value.exists(), self.list.exists(), self.map.exists(), self.map.containsKey((1,)))
        listed = [item[0] for item in self.list.get()]
        return repr((value and value[0], listed, entries, there, list(self.handle.listTimers())))

    def close(self) -> None:
        pass


WHATS = ["update", "append", "put", "set", "remove", "clear", "timer", "no timer", "look"]


class Kept:
    """Per key: a list of (when it expires, what) for each state, and times."""

    def __init__(self, ttl_ms: int | None) -> None:
        self.ttl_ms = ttl_ms if ttl_ms is not None else 1 << 60
        self.keys: dict[str, list[list[Any]]] = {}
        self.timers: dict[str, set[int]] = {}

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        now_ms, told = harness.now_ms, []
        for key, what, x in done:
            value, listed, entries = self.alive(key, now_ms)
            until = now_ms + self.ttl_ms
            timers = self.timers.setdefault(key, set())
            if what == "update":
                value[:] = [(until, x)]
            elif what == "append":
                listed.append((until, x))
            elif what == "put":
                listed[:] = [(until, number) for number in range(1, x + 2)]
            elif what in ("set", "remove"):
                entries[:] = [entry for entry in entries if entry[1][0] != x] + [(until, (x, x * 2))] * (what == "set")
            elif what == "clear":
                [value, listed, entries][x % 3].clear()
            elif what == "timer":
                timers.add(now_ms + x * 300 + 1)
            elif what == "no timer":
                timers.discard(now_ms + x * 300 + 1)
            told.append((key, self.found(key, now_ms)))
        for at, key in sorted((at, key) for key, some in self.timers.items() for at in some if at <= now_ms):
            told.append((key, f"{at} {self.found(key, now_ms)}"))
            self.timers[key].discard(at)
        return told

    def alive(self, key: str, now_ms: int) -> list[list[Any]]:
        states = self.keys.setdefault(key, [[], [], []])
        for state in states:
            state[:] = [item for item in state if item[0] > now_ms]
        return states

    def found(self, key: str, now_ms: int) -> str:
        value, listed, entries = ([item[1] for item in state] for state in self.alive(key, now_ms))
        there = (bool(value), bool(listed), bool(entries), any(entry[0] == 1 for entry in entries))
        return repr((value[0] if value else None, listed, sorted(entries), there, sorted(self.timers.get(key, ()))))

    def check(self, harness: Harness) -> None:
        rows = harness.state("Everything")
        assert {row["key"]: set(row["_timers"]) for row in rows if row["_timers"]} == {
            key: some for key, some in self.timers.items() if some
        }


@pytest.mark.parametrize("store", [None, "rocksdb"])
@pytest.mark.parametrize("ttl_ms", [None, TTL])
def test_a_random_history_equals_lists_with_times(ttl_ms: int | None, store: str | None) -> None:
    def build(stream: Any) -> Any:
        return stream.groupBy("key").transformWithState(
            Everything(ttl_ms), "key string, found string", "Update", "ProcessingTime"
        )

    step = st.tuples(KEYS, st.sampled_from(WHATS), SMALL)
    kind = Kind(build, "key string, what string, x long", step, lambda: Kept(ttl_ms))
    run_histories(kind, store=store, examples=4 if store else 10)
