"""What time an epoch has, by a clock that may have been wrong.

An epoch's time is the clock's, and does not go back by a little: clocks are put right by seconds all the time, and
what was done is not to be done again. But a clock that was a year ahead for a moment must not stop time for a year.
So, where the clock is behind the time of the epoch before:

- by up to a minute, time stands still until the clock has come up to it;
- by more, the clock was wrong before: time follows it back at once.

It depends on the clock and the committed epoch before alone, so an epoch that is redone has the same time.
"""

from __future__ import annotations

from typing import NamedTuple

CLOCK_SLACK_MS = 60_000


class EpochTime(NamedTuple):
    """The time of an epoch, in milliseconds since 1970, and by how much it is behind that of the epoch before."""

    time_ms: int
    back_ms: int = 0


def epoch_time(clock_ms: int, before_ms: int | None) -> EpochTime:
    """Give the time of an epoch, from what the clock says and the time of the epoch before.

    Examples
    --------
    >>> epoch_time(5_000, before_ms=4_000)
    EpochTime(time_ms=5000, back_ms=0)
    >>> epoch_time(5_000, before_ms=60_000)
    EpochTime(time_ms=60000, back_ms=0)
    >>> epoch_time(5_000, before_ms=600_000)
    EpochTime(time_ms=5000, back_ms=595000)
    """
    if before_ms is None or clock_ms >= before_ms:
        return EpochTime(clock_ms)
    behind = before_ms - clock_ms
    return EpochTime(clock_ms, behind) if behind > CLOCK_SLACK_MS else EpochTime(before_ms)
