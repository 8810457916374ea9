"""Windows close when their time is over, by the clock or the watermark, with what was added up in them."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from random_history import KEYS, SMALL, Kind, run_histories

from ferryman import List, Operator, Reducing, SessionWindow, SlidingWindow, Span, TumblingWindow
from ferryman.errors import InvalidConfiguration
from ferryman.testing import Harness

SUM = Reducing(int, operator.add)


def windowed(window: Any, *, event_time: bool) -> Any:
    class Sums(Operator):
        by_event_time = event_time
        sums = window
        output = "key string, start long, stop long, total long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            if not self.sums.add(row.time, row.value):
                yield key, round(row.time.timestamp() * 1000), -1, row.value

        def closed(self, key: Any, span: Span, result: int) -> Iterator[Any]:
            yield key, span.start, span.end, result

    def build(stream: Any) -> Any:
        return (stream.with_watermark("time", 0.0) if event_time else stream).key_by("key").process(Sums)

    return build


def at(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)


INPUT = "key string, time timestamp, value long"


def test_tumbling_windows_close_by_the_clock() -> None:
    with Harness(windowed(TumblingWindow(100, SUM), event_time=False), INPUT, now_ms=0, instances=2) as harness:
        assert harness.epoch([("a", at(10), 1), ("a", at(20), 2), ("a", at(150), 4), ("b", at(99), 8)]) == []
        assert harness.tick(99) == []
        assert sorted(harness.tick(1)) == [("a", 0, 100, 3), ("b", 0, 100, 8)]
        assert harness.epoch([("a", at(50), 7)]) == [("a", 50, -1, 7)]
        harness.restart()
        assert harness.tick(1000) == [("a", 100, 200, 4)]
        assert harness.tick(1000) == []
        assert [harness.state(name) for name in harness.checkpoint.job_card().tables] == [[], [], []]


def test_sliding_windows_overlap() -> None:
    window = SlidingWindow(100, 30, SUM)
    assert window.spans(100) == [Span(90, 190), Span(60, 160), Span(30, 130)]
    assert SlidingWindow(10, 30, SUM).spans(15) == []
    with Harness(windowed(window, event_time=False), INPUT, now_ms=0) as harness:
        harness.epoch([("a", at(100), 1), ("a", at(125), 2)])
        assert sorted(harness.tick(10_000)) == [
            ("a", 30, 130, 3), ("a", 60, 160, 3), ("a", 90, 190, 3), ("a", 120, 220, 2),
        ]  # fmt: skip


def test_sessions_join() -> None:
    with Harness(windowed(SessionWindow(100, SUM), event_time=False), INPUT, now_ms=0) as harness:
        assert harness.epoch([("a", at(1000), 1), ("a", at(1300), 2)]) == []
        assert harness.epoch([("a", at(1090), 4), ("a", at(1200), 8)]) == []
        # 1000 to 1190 is over; what came at 1200 and 1300 touches, and goes on to 1400.
        harness.now_ms = 1390
        assert harness.epoch() == [("a", 1000, 1190, 5)]
        assert harness.epoch([("a", at(1395), 16)]) == []
        assert harness.tick(10) == []
        assert harness.tick(1000) == [("a", 1200, 1495, 26)]


class Windows:
    """The open windows of all keys: (key, start, end) to the sum of what was added."""

    def __init__(self, window: Any, event_time: bool) -> None:
        self.window, self.event_time = window, event_time
        self.open: dict[tuple[str, int, int], int] = {}
        self.watermark_ms: int | None = None
        self.late_ms: int | None = None

    def spans(self, ms: int) -> list[tuple[int, int]]:
        """Find them by trying all."""
        if isinstance(self.window, SessionWindow):
            return [(ms, ms + self.window.gap_ms)]
        size, every = self.window.size_ms, getattr(self.window, "every_ms", self.window.size_ms)
        return [(start, start + size) for start in range(-2 * size, 5000, 1) if start % every == 0 <= ms - start < size]

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        until, told = self.late_ms if self.event_time else harness.now_ms, []
        for key, ms, value in done:
            if self.event_time and until is not None and ms <= until:
                continue
            spans = [span for span in self.spans(ms) if until is None or span[1] > until]
            for start, end in spans:
                self.add(key, start, end, value)
            if not spans:
                told.append((key, ms, -1, value))
        over = self.watermark_ms if self.event_time else harness.now_ms
        for key, start, end in list(self.open):
            if over is not None and end <= over:
                told.append((key, start, end, self.open.pop((key, start, end))))
        self.late_ms = self.watermark_ms
        if done:
            self.watermark_ms = max(self.watermark_ms or 0, *(ms for _, ms, _ in done))
        return told

    def add(self, key: str, start: int, end: int, value: int) -> None:
        if isinstance(self.window, SessionWindow):
            touched = [span for span in self.open if span[0] == key and span[1] <= end and start <= span[2]]
            start, end = min([start, *(span[1] for span in touched)]), max([end, *(span[2] for span in touched)])
            value += sum(self.open.pop(span) for span in touched)
        self.open[key, start, end] = self.open.get((key, start, end), 0) + value

    def check(self, harness: Harness) -> None:
        rows = harness.state("Sums.sums")
        kept = {(row["key"], row["_key.start"], row["_key.end"]): row["_value"]["kept"] for row in rows}
        assert kept == self.open


WINDOWS = {
    "tumbling": TumblingWindow(250, SUM),
    "sliding": SlidingWindow(300, 100, SUM),
    "sliding with gaps": SlidingWindow(100, 130, SUM),
    "session": SessionWindow(120, SUM),
}


@pytest.mark.parametrize("event_time", [False, True])
@pytest.mark.parametrize("name", list(WINDOWS))
def test_a_random_history_equals_sums_by_span(name: str, event_time: bool) -> None:
    # By the clock, which begins at 1000, before and after it.
    step = st.tuples(KEYS, st.integers(0, 3000), SMALL)
    kind = Kind(
        windowed(WINDOWS[name], event_time=event_time),
        INPUT,
        step,
        lambda: Windows(WINDOWS[name], event_time),
        lambda done: {"rows": [(key, at(ms), value) for key, ms, value in done]},
    )
    run_histories(kind)


def test_windows_of_two_parts_merge() -> None:
    assert TumblingWindow(10, SUM).merge({Span(0, 10): 1}, {Span(0, 10): 2, Span(10, 20): 3}) == {
        Span(0, 10): 3, Span(10, 20): 3,
    }  # fmt: skip
    assert SessionWindow(10, SUM).merge({Span(0, 10): 1, Span(50, 60): 5}, {Span(5, 15): 2, Span(14, 24): 3}) == {
        Span(0, 24): 6, Span(50, 60): 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TumblingWindow(0, SUM), "size_ms=0"),
        (lambda: SlidingWindow(10, -1, SUM), "every_ms=-1"),
        (lambda: SessionWindow("1 minute", SUM), "gap_ms='1 minute'"),
        (lambda: TumblingWindow(10, List(int)), "a Reducing or an Aggregating"),
        (lambda: TumblingWindow(10, Reducing(int, max, ttl=1000)), "a Reducing with ttl=1000, and has no use for it"),
    ],
)
def test_a_window_that_cannot_be_is_refused(make: Any, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        make()


def test_time_to_live_by_event_time() -> None:
    class Fades(Operator):
        by_event_time = True
        seen = List(int, ttl=1000)
        output = "key string, seen string"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            if row.value:
                self.seen.append(row.value)
            yield key, repr(list(self.seen))

    def build(stream: Any) -> Any:
        return stream.with_watermark("time", 0.0).key_by("key").process(Fades)

    with Harness(build, INPUT) as harness:
        assert harness.epoch([("a", at(5000), 1)]) == [("a", "[1]")]
        assert harness.epoch([("a", at(5900), 2)]) == [("a", "[1, 2]")]
        # Both were written while the watermark was at 5000, and now it is at 5900.
        assert harness.epoch([("a", at(5950), 0), ("a", at(6100), 0)]) == [("a", "[1, 2]")] * 2
        assert harness.epoch([("a", at(6200), 0)]) == [("a", "[]")]
        assert harness.state("Fades.seen") == []
