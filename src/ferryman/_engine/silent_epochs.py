"""When a quiet job runs an epoch all the same: after a while, when something is due, or a plan wants one. Pure."""

from __future__ import annotations

# How long a job waits at the least, and at the most.
SHORTEST_S = 0.05
LONGEST_S = 60.0
# How long at the most where a clock of the user's own says what is due: it may run at any pace, so it is looked at.
LOOK_S = 0.2


def wait_s(
    *,
    quiet_s: float,
    idle_s: float | None,
    due_in_s: float | None,
    by_watermark: bool,
    wanted_in_s: float | None,
    own_clock: bool,
) -> float:
    """Give how long a job waits for data before an epoch comes without.

    Parameters
    ----------
    quiet_s
        How long ago the last epoch was.
    idle_s
        After how long a silent epoch comes; None for never.
    due_in_s
        When the clock comes to something that is due; None if nothing is.
    by_watermark
        Whether the watermark has come to something that is due.
    wanted_in_s
        When a plan under way wants an epoch; None if it wants none.
    own_clock
        Whether the clock is one of the user's own.

    Examples
    --------
    >>> wait_s(quiet_s=10, idle_s=30, due_in_s=None, by_watermark=False, wanted_in_s=None, own_clock=False)
    20
    >>> wait_s(quiet_s=10, idle_s=30, due_in_s=None, by_watermark=True, wanted_in_s=None, own_clock=False)
    0.05
    """
    left = LONGEST_S if idle_s is None else idle_s - quiet_s
    for other in (due_in_s, 0.0 if by_watermark else wanted_in_s):
        left = left if other is None else min(left, other)
    return min(max(left, SHORTEST_S), LOOK_S if due_in_s is not None and own_clock else LONGEST_S)
