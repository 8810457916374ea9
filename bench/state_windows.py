"""The windows that are measured."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from operator import add
from typing import Any

import ferryman as fm
from bench.state_kind import MINUTE_MS, NOW_MS, Held, Kind, Row


class Minutes(Held):
    held: Any = fm.TumblingWindow(MINUTE_MS, fm.Reducing(int, add))

    def process(self, key: Any, row: Any) -> None:
        self.held.add(_at(row.part), row.n)


class TwoMinutes(Minutes):
    held: Any = fm.SlidingWindow(2 * MINUTE_MS, MINUTE_MS, fm.Reducing(int, add))


class Sessions(Held):
    held: Any = fm.SessionWindow(MINUTE_MS, fm.Reducing(int, add))

    def process(self, key: Any, row: Any) -> None:
        self.held.add(_paired(row.part), row.n)


def _at(part: int) -> int:
    return NOW_MS + part * MINUTE_MS


def _paired(part: int) -> int:
    """Give times of which each two are in one session."""
    return NOW_MS + part // 2 * 5 * MINUTE_MS + part % 2 * MINUTE_MS // 2


def _spans(held: Any) -> list[tuple[int, int, int]]:
    return [(span.start, span.end, total) for span, total in held.spans()]


def _fixed(rows: list[Row], size_ms: int) -> list[tuple[int, int, int]]:
    totals: collections.Counter[int] = collections.Counter()
    for row in rows:
        last = _at(row.part) // MINUTE_MS * MINUTE_MS
        for start in range(last, last - size_ms, -MINUTE_MS):
            totals[start] += row.n
    return sorted((start, start + size_ms, total) for start, total in totals.items())


def _sessions(rows: list[Row]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for at, n in sorted((_paired(row.part), row.n) for row in rows):
        start, end, total = found.pop() if found and at <= found[-1][1] else (at, at, 0)
        found.append((start, max(end, at + MINUTE_MS), total + n))
    return found


WINDOWS: Mapping[str, Kind] = {
    "tumbling": Kind(Minutes, _spans, lambda rows: _fixed(rows, MINUTE_MS)),
    "sliding": Kind(TwoMinutes, _spans, lambda rows: _fixed(rows, 2 * MINUTE_MS)),
    "session": Kind(Sessions, _spans, _sessions),
}
