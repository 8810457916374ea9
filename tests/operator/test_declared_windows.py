"""Declared windows, without Spark: what comes out when, what is late, and what is kept, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import datetime
import math
import zoneinfo
from typing import Any

import pytest
from hypothesis import strategies as st
from random_history import KEYS, SMALL, Kind, run_histories

from ferryman import aggregates as a
from ferryman.errors import InvalidConfiguration, NothingMoves, StateSchemaChanged
from ferryman.testing import Harness

INPUT = "key string, time timestamp, value long"
KEPT = {"n": a.count(), "total": a.sum("value"), "first": a.first("value"), "last": a.last("value")}


def at(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, zoneinfo.ZoneInfo("UTC"))


def ms_of(time: datetime.datetime) -> int:
    return round(time.timestamp() * 1000)


def windowed(delay: float = 0.0, *, keep_late: bool = False, **window: Any) -> Any:
    def build(stream: Any) -> Any:
        keyed = stream.with_watermark("time", delay, keep_late=keep_late).key_by("key")
        return keyed.window("time", **window).aggregate("Sums", **KEPT)

    return build


def shown(rows: list[Any]) -> list[tuple[Any, ...]]:
    """Give rows as (start in milliseconds, key, count, total)."""
    return sorted((ms_of(window["start"]), key, n, total) for window, key, n, total, *_ in rows)


def test_late_rows_go_aside_and_state_goes_with_the_watermark() -> None:
    with Harness(windowed(0.1, size=0.3, keep_late=True), INPUT, instances=2) as harness:
        assert harness.epoch([("a", at(50), 1), ("b", at(60), 2), ("a", None, 9)]) == []
        assert harness.epoch([("a", at(680), 4)]) == []
        assert shown(harness.epoch([("a", at(690), 8)])) == [(0, "a", 1, 1), (0, "b", 1, 2)]
        # The window of 80 is over. That of 500 is not, though the watermark is beyond that.
        assert harness.epoch([("a", at(80), 16), ("a", at(500), 32), ("b", at(710), 64)]) == []
        assert harness.sides["late"] == [("a", at(80), 16)]
        assert harness.epoch([("a", at(2000), 128)]) == [(({"start": at(300), "end": at(600)}), "a", 1, 32, 32, 32)]
        assert shown(harness.epoch([])) == [(600, "a", 2, 12), (600, "b", 1, 64)]
        assert [(ms_of(row["_pane"]), row["key"], row["n"]) for row in harness.state("Sums")] == [(1800, "a", 1)]


def test_windows_stay_open_for_late_rows_as_long_as_is_allowed() -> None:
    with Harness(windowed(size=0.3, every=0.15, allowed_lateness=0.6), INPUT) as harness:
        harness.epoch([("a", at(50), 1), ("b", at(50), 2)])
        harness.epoch([("a", at(600), 4)])
        assert shown(harness.epoch([])) == [(-150, "a", 1, 1), (-150, "b", 1, 2), (0, "a", 1, 1), (0, "b", 1, 2)]
        # Those that it falls into are over, and come once more; nothing else does.
        assert shown(harness.epoch([("a", at(80), 8)])) == [(-150, "a", 2, 9), (0, "a", 2, 9)]
        assert shown(harness.epoch([("a", at(899), 16)])) == []
        # One of them is forgotten by now.
        harness.epoch([])
        assert shown(harness.epoch([("b", at(80), 32)])) == [(0, "b", 2, 34)]


@pytest.mark.parametrize("every", [0.3, 0.1])
def test_keys_that_are_pinned_have_their_windows_once(every: float) -> None:
    def run(*pins: tuple[str, int]) -> list[list[Any]]:
        with Harness(windowed(size=0.3, every=every), INPUT, instances=3, groups=2) as harness:
            found = []
            for number in range(8):
                found.append(shown(harness.epoch([(key, at(number * 90 + 7), 1) for key in "abcdef"])))
                for key, to in pins if number == 1 else ():
                    # It may be there.
                    with contextlib.suppress(NothingMoves):
                        harness.pin(key, to)
            return found

    whole = run()
    assert sum(map(len, whole)) >= 6
    assert run(*((key, to) for key in "ab" for to in range(3)), ("c", 2), ("d", 0)) == whole


def test_windows_that_change_come_in_every_epoch() -> None:
    with Harness(windowed(size=0.3, every=0.15, updates=True), INPUT) as harness:
        assert shown(harness.epoch([("a", at(10), 1)])) == [(-150, "a", 1, 1), (0, "a", 1, 1)]
        assert shown(harness.epoch([("a", at(160), 2)])) == [(0, "a", 2, 3), (150, "a", 1, 2)]
        assert harness.epoch([]) == []
        # The first window is over: only the other one changes.
        assert shown(harness.epoch([("a", at(20), 4)])) == [(0, "a", 3, 7)]


def test_windows_keep_values_too() -> None:
    kept = {"all": a.collect_list("value"), "kinds": a.count_distinct("value"), "best": a.top("value", 2)}

    def build(stream: Any) -> Any:
        keyed = stream.with_watermark("time", 0.0).key_by("key")
        return keyed.window("time", 0.3, 0.15).aggregate("Kept", **kept, late=a.max_by("value", "time"))

    with Harness(build, INPUT) as harness:
        harness.epoch([("a", at(160), 3), ("a", at(140), 5), ("a", at(20), 5)])
        harness.restart()
        assert harness.epoch([("a", at(301), 1)]) == [({"start": at(-150), "end": at(150)}, "a", [5, 5], 1, [5, 5], 5)]
        (found,) = harness.epoch([])
        assert found[1:] == ("a", [5, 5, 3], 2, [5, 5], 3)


def test_a_key_cannot_have_the_name_of_what_is_kept_beside() -> None:
    with pytest.raises(InvalidConfiguration, match="'_seen', a name Ferryman uses"):
        Harness(
            lambda rows: rows.with_watermark("time", 0).key_by("_seen").window("time", 1).aggregate(n=a.count()),
            "_seen string, time timestamp",
        )


@pytest.mark.parametrize("name", ["_pane", "_PANE"])
def test_a_stream_that_has_a_column_of_the_name_of_panes_is_refused_in_any_case_of_letters(name: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"'{name}', a name Ferryman uses"):
        Harness(windowed(size=0.3), f"{INPUT}, {name} long")


def test_a_start_with_other_windows_is_refused() -> None:
    with Harness(windowed(size=0.3), INPUT) as harness:
        harness.epoch([("a", at(10), 1)])
        for other in (windowed(size=0.6), windowed(size=0.3, every=0.15), windowed(size=0.3, start=0.1), sessions):
            with pytest.raises(StateSchemaChanged, match="windows of 300000 us, every 300000 us, from 0 us"):
                harness.redeclare(other)
        harness.redeclare(windowed(size=0.3, updates=True, allowed_lateness=1))
        assert shown(harness.epoch([("a", at(20), 2)])) == [(0, "a", 2, 3)]


def counted(stream: Any) -> Any:
    kept = {"n": a.count(), "total": a.sum("value"), "all": a.collect_list("value")}
    return stream.key_by("key").count_window(3).aggregate("Sums", **kept)


class Counted:
    """The rows of each key that make no whole window yet."""

    def __init__(self) -> None:
        self.open: dict[str, list[int]] = {}

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        told = []
        for key, _, value in done:
            values = self.open.setdefault(key, [])
            values.append(value)
            if len(values) == 3:
                told.append((key, 3, sum(values), self.open.pop(key)))
        return told

    def check(self, harness: Harness) -> None:
        assert {row["key"]: row["all"] for row in harness.state("Sums")} == self.open


def test_a_random_history_equals_every_three_rows_of_a_key() -> None:
    step = st.tuples(KEYS, st.just(0), SMALL)
    run_histories(
        Kind(counted, INPUT, step, Counted, lambda done: {"rows": [(key, at(ms), value) for key, ms, value in done]})
    )


class Model:
    """All rows that were not late, and the windows found by trying all."""

    def __init__(self, window: dict[str, Any]) -> None:
        self.size, self.every, self.start, self.lateness = (
            round(1000 * window.get(name, other))
            for name, other in (("size", 0), ("every", window["size"]), ("start", 0), ("allowed_lateness", 0))
        )
        self.updates = window.get("updates", False)
        self.rows: list[tuple[str, int, int]] = []
        self.watermark_ms: int | None = None
        self.late_ms: int | None = None
        self.over_ms = -(10**9)

    def ends(self, ms: int) -> list[int]:
        return [end for end in range(ms + 1, ms + self.size + 1) if (end - self.size - self.start) % self.every == 0]

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        late = -(10**9) if self.late_ms is None else self.late_ms
        over = -(10**9) if self.watermark_ms is None else self.watermark_ms
        timely = [each for each in done if max(self.ends(each[1])) + self.lateness > late]
        self.rows += timely
        found: dict[tuple[int, str], list[int]] = {}
        for key, ms, value in sorted(self.rows, key=lambda each: pane_of(self, each[1])):
            for end in self.ends(ms):
                found.setdefault((end, key), []).append(value)
        changed = {(end, key) for key, ms, _ in timely for end in self.ends(ms)}
        told = []
        for (end, key), values in found.items():
            closes, again = late < end <= over, end <= late < end + self.lateness and (end, key) in changed
            if (end, key) in changed and end + self.lateness > late if self.updates else closes or again:
                span = {"start": at(end - self.size), "end": at(end)}
                told.append((span, key, len(values), sum(values), values[0], values[-1]))
        self.over_ms = over
        self.late_ms = self.watermark_ms
        if done:
            self.watermark_ms = max(over, *(ms for _, ms, _ in done))
        return told

    def check(self, harness: Harness) -> None:
        lasting = [each for each in self.rows if max(self.ends(each[1])) + self.lateness > self.over_ms]
        panes = {(pane_of(self, ms), key) for key, ms, _ in lasting}
        assert {(ms_of(row["_pane"]), row["key"]) for row in harness.state("Sums")} == panes


def pane_of(model: Model, ms: int) -> int:
    length = math.gcd(model.size, model.every)
    return (ms - model.start) // length * length + model.start


WINDOWS: dict[str, dict[str, Any]] = {
    "tumbling": {"size": 0.25, "start": 0.07},
    "tumbling, updates": {"size": 0.25, "updates": True},
    "tumbling, lateness": {"size": 0.25, "allowed_lateness": 0.4},
    "sliding": {"size": 0.3, "every": 0.1},
    "uneven": {"size": 0.25, "every": 0.1, "start": 0.03},
    "sliding, updates": {"size": 0.3, "every": 0.2, "updates": True},
    "sliding, lateness": {"size": 0.3, "every": 0.1, "allowed_lateness": 0.25},
    "sliding, updates, lateness": {"size": 0.3, "every": 0.1, "allowed_lateness": 0.25, "updates": True},
}


def sessions(stream: Any) -> Any:
    keyed = stream.with_watermark("time", 0.0).key_by("key")
    return keyed.session("time", 0.12).aggregate("Sums", **KEPT)


def test_sessions_last_as_long_as_rows_come() -> None:
    with Harness(sessions, INPUT, instances=2) as harness:
        assert harness.epoch([("a", at(1000), 1), ("a", at(1300), 2), ("b", at(1110), 4), ("b", at(1000), 8)]) == []
        # What comes between joins what was apart.
        assert harness.epoch([("a", at(1120), 16), ("a", at(1239), 32)]) == [
            ({"start": at(1000), "end": at(1230)}, "b", 2, 12, 8, 4)
        ]
        assert harness.epoch([("c", at(1421), 64)]) == []
        assert harness.epoch([]) == [({"start": at(1000), "end": at(1420)}, "a", 4, 51, 1, 32)]
        # A session of its own, as the one it would have joined is gone; and one that was over before.
        harness.epoch([("a", at(1410), 128), ("a", at(1301), 256), ("c", at(2000), 512)])
        assert sorted(harness.epoch([]), key=repr) == [
            ({"start": at(1410), "end": at(1530)}, "a", 1, 128, 128, 128),
            ({"start": at(1421), "end": at(1541)}, "c", 1, 64, 64, 64),
        ]
        assert [(row["key"], row["n"]) for row in harness.state("Sums")] == [("c", 1)]


class SessionModel:
    """The rows of sessions that are not over, and sessions found by going through them."""

    gap = 120

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int]] = []
        self.watermark_ms: int | None = None
        self.late_ms: int | None = None

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        late = -(10**9) if self.late_ms is None else self.late_ms
        over = -(10**9) if self.watermark_ms is None else self.watermark_ms
        self.rows += [each for each in done if each[1] + self.gap > late]
        told: list[Any] = []
        for key in sorted({key for key, _, _ in self.rows}):
            runs: list[list[tuple[str, int, int]]] = []
            for each in sorted((each for each in self.rows if each[0] == key), key=lambda each: each[1]):
                if runs and each[1] <= runs[-1][-1][1] + self.gap:
                    runs[-1].append(each)
                else:
                    runs.append([each])
            for run in runs:
                if run[-1][1] + self.gap <= over:
                    span = {"start": at(run[0][1]), "end": at(run[-1][1] + self.gap)}
                    # The first and the last pane, and in it the row that came first, or last.
                    by_pane = sorted((each for each in self.rows if each in run), key=lambda each: each[1] // self.gap)
                    values = [value for _, _, value in by_pane]
                    told.append((span, key, len(run), sum(values), values[0], values[-1]))
                    self.rows = [each for each in self.rows if each not in run]
        self.late_ms = self.watermark_ms
        if done:
            self.watermark_ms = max(over, *(ms for _, ms, _ in done))
        return told

    def check(self, harness: Harness) -> None:
        panes = {(ms // self.gap * self.gap, key) for key, ms, _ in self.rows}
        assert {(ms_of(row["_pane"]), row["key"]) for row in harness.state("Sums")} == panes


def test_a_random_history_equals_sessions_of_all_rows() -> None:
    step = st.tuples(KEYS, st.integers(-700, 1500), SMALL)
    given = lambda done: {"rows": [(key, at(ms), value) for key, ms, value in done]}  # noqa: E731
    run_histories(Kind(sessions, INPUT, step, SessionModel, given), examples=30)


@pytest.mark.parametrize(
    ("name", "store"),
    [*((name, None) for name in WINDOWS), pytest.param("sliding, lateness", "lmdb", marks=pytest.mark.slow)],
)
def test_a_random_history_equals_windows_of_all_rows(name: str, store: str | None) -> None:
    window = WINDOWS[name]

    def build(stream: Any) -> Any:
        return windowed(**window)(stream)

    run_histories(
        Kind(
            build,
            INPUT,
            st.tuples(KEYS, st.integers(-700, 2000), SMALL),
            lambda: Model(window),
            lambda done: {"rows": [(key, at(ms), value) for key, ms, value in done]},
        ),
        store=store,
    )
