"""The harness on a clock that jumps forward a year and back: timers and time to live go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ferryman import Operator, Value
from ferryman.testing import Crash, Harness

NOW = 1_700_000_000_000
YEAR = 365 * 86_400_000
INPUT = "key string, id long"


class Calls(Operator):
    """Have a call a second after each row, and remember the last row for two seconds."""

    last = Value(int, 0, ttl=2000)
    output = "key string, what string, id long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        yield key, "row", self.last
        self.last = row.id
        self.call_at(self.now_ms + 1000)

    def due(self, key: Any, at_ms: int) -> Iterator[Any]:
        yield key, "due", self.last


def row(number: int) -> tuple[str, int]:
    return "k", number


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("store", [None, "rocksdb"])
def test_time_goes_on_after_a_clock_was_a_year_ahead(store: str | None, restarted: bool) -> None:
    build = lambda stream: stream.key_by("key").process(Calls)  # noqa: E731
    with Harness(build, INPUT, now_ms=NOW, store=store) as harness:
        harness.epoch([row(1)])
        harness.now_ms = NOW + YEAR
        assert sorted(harness.epoch([row(2)])) == [("k", "due", 2), ("k", "row", 0)], "what was a year ago is gone"
        harness.now_ms = NOW + 10_000
        if restarted:
            harness.restart()
        harness.epoch([row(3)])
        assert harness.tick(999) == []
        assert harness.tick(1) == [("k", "due", 3)], "a call is made when it is due by the clock as it is now"
        assert harness.tick(1500) == []
        assert harness.epoch([row(4)]) == [("k", "row", 0)], "what was written after the jump has expired"


def test_time_stands_still_while_a_clock_is_a_little_behind() -> None:
    with Harness(lambda stream: stream.key_by("key").process(Calls), INPUT, now_ms=NOW) as harness:
        harness.epoch([row(1)])
        harness.now_ms = NOW - 30_000
        assert harness.epoch([row(2)]) == [("k", "row", 1)]
        assert harness.tick(30_999) == []
        assert harness.tick(1) == [("k", "due", 2)]


def test_an_epoch_is_redone_at_the_time_it_was_begun() -> None:
    with Harness(lambda stream: stream.key_by("key").process(Calls), INPUT, now_ms=NOW) as harness:
        with pytest.raises(Crash):
            harness.epoch([row(1)], crash="before-commit")
        harness.now_ms += 500
        harness.redo()
        assert harness.tick(500) == [("k", "due", 1)]
