"""When an epoch is worth beginning while key groups are on their way and rows wait for them."""

from __future__ import annotations

from collections.abc import Mapping


class Crossing:
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
    >>> crossing = Crossing({0: 10, 1: 10, 2: 10}, began=0.0)
    >>> crossing.arrived(0)
    >>> crossing.left_s(now=1.0)
    2.0
    >>> crossing.wait_s(now=1.0, epoch_s=0.2), crossing.wait_s(now=1.0, epoch_s=3.0)
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
