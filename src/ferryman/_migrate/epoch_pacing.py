"""When a plan has an epoch begin: at once, later, or not before rows come.

Rows that waited and could be processed want one, and so does a switch. How long each leaves it to the source, or to
more that is on its way, is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from ferryman._migrate.epoch_times import EpochTimes
from ferryman._migrate.machine import Migration, Phase

# An epoch with rows is not waited for any longer than this.
_LONGEST_WAIT_S = 1.0


class EpochPacing:
    """The groups that are on their way, and how fast they come.

    An epoch takes up the rows of all groups that have arrived when it begins, and costs some time whatever it does;
    what arrives meanwhile waits for the next. So the last row is done soonest if an epoch begins as soon as something
    can be processed, unless the rest is there before an epoch could be over: then one epoch does for all.

    Parameters
    ----------
    sizes
        About how many bytes each group has.
    began
        When the first of them left, in seconds.

    Examples
    --------
    >>> pacing = EpochPacing({0: 10, 1: 10, 2: 10}, began=0.0)
    >>> pacing.arrived(0)
    >>> pacing.left_s(now=1.0)
    2.0
    >>> pacing.wait_s(now=1.0, epoch_s=0.2), pacing.wait_s(now=1.0, epoch_s=3.0)
    (0.0, 3.0)
    """

    def __init__(self, sizes: Mapping[int, float], began: float) -> None:
        self._sizes = dict(sizes)
        self._began = began
        self._there = 0.0
        # Kept apart, as whoever looks does so without a lock.
        self._left = sum(sizes.values())

    def arrived(self, group: int) -> None:
        """Learn that a group is there, or is not to be waited for any more."""
        size = self._sizes.pop(group, 0.0)
        self._there += size
        self._left = self._left - size if self._sizes else 0.0

    def left_s(self, now: float) -> float:
        """Give how long the rest will take, at the speed of what has arrived; nothing is known before that."""
        if not self._left:
            return 0.0
        return (now - self._began) * self._left / self._there if self._there else float("inf")

    def wait_s(self, now: float, epoch_s: float) -> float:
        """Give how long to leave rows waiting that could be processed, where an epoch takes so long at the least."""
        return epoch_s if 0.0 < self.left_s(now) < epoch_s else 0.0


def overdue_s(times: EpochTimes, now: float) -> float:
    """Give in how many seconds the next epoch is later than usual: after twice the usual time, a second at most.

    Examples
    --------
    >>> times = EpochTimes()
    >>> for second in range(5):
    ...     times.begin(second * 0.25)
    ...     times.end(second * 0.25 + 0.125)
    >>> overdue_s(times, 1.125)
    0.25
    >>> overdue_s(times, 9.0)
    0.0
    """
    ended, between = times.ended, times.between_s
    if ended is None or between is None:
        return 0.0
    return max(0.0, ended + min(_LONGEST_WAIT_S, 2 * between) - now)


def epoch_wanted_s(
    machine: Migration | None,
    waiting: Set[int],
    held: Set[int],
    coming: EpochPacing | None,
    times: EpochTimes,
    now: float,
) -> float | None:
    """Give in how many seconds there should be an epoch, data or not; None if nothing waits for one.

    Parameters
    ----------
    machine
        That of the plan under way, if one is.
    waiting
        The groups that rows wait for.
    held
        The groups whose rows waited in the epoch under way, or in the last one.
    coming
        The groups that are on their way, if any are.
    times
        What epochs are like of late.
    now
        The time, by the clock of `times`.
    """
    if machine is None:
        # What was due in groups that waited nobody has looked at.
        return 0.0 if waiting or held else None
    if waiting - machine.assignment().held:
        return 0.0 if coming is None else coming.wait_s(now, times.overhead_s)
    if machine.phase is not Phase.SWITCH:
        return None
    # Where no row waits for the switch it can wait for rows: an epoch without them would be in their way.
    return overdue_s(times, now) if machine.plan.strategy.waits == "nothing" else 0.0
