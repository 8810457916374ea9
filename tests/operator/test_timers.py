"""Calls at a time, by the clock and by the watermark: none is lost, none comes twice, whatever happens between."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from random_history import KEYS, Kind, run_histories

from ferryman import Operator, Value
from ferryman.testing import Harness

INPUT = "key string, what string, time timestamp"


def at(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(milliseconds=ms)


def calling(event_time: bool) -> Any:
    class Calls(Operator):
        by_event_time = event_time
        called = Value(int, 0)
        output = "key string, what string"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            ms = round(row.time.timestamp() * 1000) // 10 * 10
            if row.what == "call":
                self.call_at(ms + 200)
            elif row.what == "cancel":
                self.cancel(ms + 200)
            else:
                self.clear()
            yield key, f"{row.what} {self.called}"

        def due(self, key: Any, at: int) -> Iterator[Any]:
            self.called += 1
            yield key, f"due at {at}, {self.called}"
            if at % 100 == 0:
                self.call_at(at + 450)

    def build(stream: Any) -> Any:
        return (stream.with_watermark("time", 0.0) if event_time else stream).key_by("key").process(Calls)

    return build


class Timers:
    """Each key's times, and how often it was called since it was cleared."""

    def __init__(self, event_time: bool) -> None:
        self.event_time = event_time
        self.times: set[tuple[int, str]] = set()
        self.called: dict[str, int] = {}
        self.watermark_ms: int | None = None
        self.late_ms: int | None = None

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        told = []
        for key, what, ms in done:
            if self.event_time and self.late_ms is not None and ms <= self.late_ms:
                continue
            timer = (ms // 10 * 10 + 200, key)
            if what == "call":
                self.times.add(timer)
            elif what == "cancel":
                self.times.discard(timer)
            else:
                self.called.pop(key, None)
            told.append((key, f"{what} {self.called.get(key, 0)}"))
        until = self.watermark_ms if self.event_time else harness.now_ms
        for ms, key in sorted(due for due in self.times if until is not None and due[0] <= until):
            self.times.discard((ms, key))
            self.called[key] = self.called.get(key, 0) + 1
            told.append((key, f"due at {ms}, {self.called[key]}"))
            if ms % 100 == 0:
                self.times.add((ms + 450, key))
        self.late_ms = self.watermark_ms
        if done:
            self.watermark_ms = max(self.watermark_ms or 0, *(ms for _, _, ms in done))
        return told

    def check(self, harness: Harness) -> None:
        rows = harness.state("Calls._time")
        assert {(row["_time"], row["key"]) for row in rows} == self.times
        kept = {row["key"]: row["called"] for row in harness.state("Calls") if row["called"]}
        assert kept == self.called


@pytest.mark.parametrize("store", [None, "rocksdb"])
@pytest.mark.parametrize("event_time", [False, True])
def test_a_random_history_equals_a_set_of_times(event_time: bool, store: str | None) -> None:
    kind = Kind(
        calling(event_time),
        INPUT,
        # By the clock, which begins at 1000, before and after it.
        st.tuples(KEYS, st.sampled_from(["call", "call", "cancel", "clear"]), st.sampled_from(range(500, 3000, 50))),
        lambda: Timers(event_time),
        lambda done: {"rows": [(key, what, at(ms)) for key, what, ms in done]},
    )
    run_histories(kind, store=store, examples=4 if store else 10)
