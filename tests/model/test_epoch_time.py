"""The time of an epoch: it does not go back by a little, and follows a clock that was far ahead back at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferryman._model.epoch_time import CLOCK_SLACK_MS, EpochTime, epoch_time

YEAR = 365 * 86_400_000
NOW = 1_700_000_000_000


def test_time_goes_with_the_clock() -> None:
    assert epoch_time(NOW, None) == EpochTime(NOW)
    assert epoch_time(NOW + 1, NOW) == EpochTime(NOW + 1)
    assert epoch_time(NOW + YEAR, NOW) == EpochTime(NOW + YEAR)


def test_time_stands_still_while_the_clock_is_a_little_behind() -> None:
    assert epoch_time(NOW - 1, NOW) == EpochTime(NOW)
    assert epoch_time(NOW - CLOCK_SLACK_MS, NOW) == EpochTime(NOW)


def test_time_follows_a_clock_that_was_far_ahead() -> None:
    assert epoch_time(NOW - CLOCK_SLACK_MS - 1, NOW) == EpochTime(NOW - CLOCK_SLACK_MS - 1, CLOCK_SLACK_MS + 1)
    assert epoch_time(NOW, NOW + YEAR) == EpochTime(NOW, YEAR)


@given(st.lists(st.integers(NOW - 2 * YEAR, NOW + 2 * YEAR), min_size=1))
def test_time_is_never_far_from_the_clock_and_never_a_little_behind_what_it_was(clock: list[int]) -> None:
    before: int | None = None
    for says in clock:
        time_ms, back_ms = epoch_time(says, before)
        assert 0 <= time_ms - says <= CLOCK_SLACK_MS
        assert back_ms == (max(0, before - time_ms) if before is not None else 0)
        assert back_ms == 0 or back_ms > CLOCK_SLACK_MS
        before = time_ms
