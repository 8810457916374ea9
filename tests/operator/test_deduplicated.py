"""Deduplication against a model of ten lines, through crashes, restarts, moves and other numbers of instances."""

from __future__ import annotations

import contextlib
import datetime
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from ferryman import count
from ferryman.errors import NothingMoves, StateSchemaChanged
from ferryman.testing import Crash, Harness

INPUT = "k string, at timestamp, n int"
DELAY = 4


def at(second: float | None) -> Any:
    return None if second is None else datetime.datetime.fromtimestamp(second, datetime.timezone.utc)


BUILDS = {
    "for ever": lambda s: s.dropDuplicates(["k"]),
    "late": lambda s: s.withWatermark("at", f"{DELAY} seconds").dropDuplicates(["k"]),
    "by time": lambda s: s.withWatermark("at", f"{DELAY} seconds").dropDuplicates(["k", "at"]),
    "within": lambda s: s.withWatermark("at", f"{DELAY} seconds").dropDuplicatesWithinWatermark(["k"]),
}


class Model:
    """What Spark's documentation says, row by row."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.seen: dict[Any, float] = {}
        self.late: float | None = None
        self.watermark: float | None = None

    def epoch(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        out, latest = [], None
        for k, second, n in rows:
            latest = second if latest is None or second > latest else latest
            if self.how != "for ever" and self.late is not None and second <= self.late:
                continue
            key = (k, second) if self.how == "by time" else k
            if key not in self.seen:
                self.seen[key] = second + (DELAY if self.how == "within" else 0)
                out.append((k, second, n))
        if self.how in ("by time", "within") and self.watermark is not None:
            self.seen = {key: until for key, until in self.seen.items() if until > self.watermark}
        self.late = self.watermark
        if latest is not None and self.how != "for ever":
            self.watermark = max(latest - DELAY, self.watermark if self.watermark is not None else latest - DELAY)
        return out


KEYS = st.sampled_from(["a", "b", "c", None])
EVENTS = st.sampled_from(["", "", "crash", "restart", "rescale", "pin", "snapshot"])


@st.composite
def histories(draw: Any) -> list[Any]:
    epochs, now = [], 100
    for _ in range(draw(st.integers(1, 6))):
        rows = draw(st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=6))
        epochs.append(([(key, now - back) for key, back in rows], draw(EVENTS)))
        now += draw(st.integers(0, 6))
    return epochs


@hypothesis.settings(max_examples=8, suppress_health_check=[hypothesis.HealthCheck.too_slow])
@hypothesis.given(history=histories(), how=st.sampled_from(sorted(BUILDS)))
def test_the_first_row_of_each_key_passes_and_what_is_forgotten_is_gone(history: Any, how: str) -> None:
    model, n = Model(how), 0
    with Harness(BUILDS[how], INPUT, instances=2, groups=8) as harness:
        for epoch, event in history:
            rows = [(key, second, n := n + 1) for key, second in epoch]
            given = [(key, at(second), number) for key, second, number in rows]
            if event == "rescale":
                harness.rescale(3 if harness.epochs % 2 else 1)
            elif event == "pin":
                with contextlib.suppress(NothingMoves):
                    harness.pin("a", 0)
            elif event in ("restart", "snapshot"):
                getattr(harness, event)()
            if event == "crash":
                with pytest.raises(Crash):
                    harness.epoch(given, crash=True)
            out = harness.redo() if event == "crash" else harness.epoch(given)
            expected = model.epoch(rows)
            # Of the rows of a key the first passes; between keys there is no order.
            assert sorted((k or "", time.timestamp(), number) for k, time, number in out) == sorted(
                (k or "", second, number) for k, second, number in expected
            )
            assert len(harness.state()) == len(model.seen)


def test_windows_go_over_what_passes() -> None:
    def build(stream: Any) -> Any:
        once = stream.with_watermark("at", "5 seconds").dropDuplicatesWithinWatermark(["n"])
        return once.key_by("k").window("at", "10 seconds").aggregate(n=count())

    with Harness(build, INPUT) as harness:
        harness.epoch([("a", at(100), 1), ("a", at(100), 1), ("a", at(101), 2)])
        harness.epoch([("a", at(100), 1), ("b", at(200), 3)])
        assert [(key, n) for _, key, n in harness.epoch()] == [("a", 2)]


def test_what_cannot_be_is_refused_at_the_call() -> None:
    for build, why in (
        (lambda s: s.dropDuplicatesWithinWatermark(["k"]), "goes by event time, and the stream has no watermark"),
        (lambda s: s.dropDuplicates("k"), r"dropDuplicates\('k'\): give a list of names"),
        (lambda s: s.dropDuplicates(["x"]), "no column 'x'; it has 'k', 'at', 'n'"),
    ):
        with pytest.raises(Exception, match=why) as caught:
            Harness(build, INPUT)
        assert type(caught.value).__module__.startswith("ferryman")


def test_what_was_remembered_for_ever_is_not_taken_for_something_else(tmp_path: Any) -> None:
    with Harness(lambda s: s.dropDuplicates(["k"], name="once"), INPUT, checkpoint=tmp_path) as harness:
        harness.epoch([("a", at(100), 1)])

    def within(stream: Any) -> Any:
        return stream.withWatermark("at", "4 seconds").dropDuplicatesWithinWatermark(["k"], name="once")

    with pytest.raises(StateSchemaChanged, match=r"for ever.*within the watermark"):
        Harness(within, INPUT, checkpoint=tmp_path)
