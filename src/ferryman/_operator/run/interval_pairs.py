"""Find the pairs of rows that an interval join makes: of one key, and not too far apart in time. Pure, in columns."""

from __future__ import annotations

import numpy as np

from ferryman._state.compiled import Ints

# Times beyond it are so far away that it makes no difference how far: sums with bounds stay within 64 bits.
_FAR = np.int64(1 << 61)


def pairs(key: Ints, time: Ints, other_key: Ints, other_time: Ints, lower: int, upper: int) -> tuple[Ints, Ints]:
    """Give the places of the rows of each pair: those whose keys are one, and whose times differ by lower to upper.

    The pairs are in the order of the rows, and of one row in the order of the others' times.

    Examples
    --------
    >>> key, time = np.array([0, 1]), np.array([10, 10])
    >>> pairs(key, time, np.array([0, 0, 1]), np.array([15, 9, 30]), -5, 5)
    (array([0, 0]), array([1, 0]))
    """
    none = np.empty(0, np.int64)
    if not len(key) or not len(other_key):
        return none, none
    time, other_time = np.clip(time, -_FAR, _FAR), np.clip(other_time, -_FAR, _FAR)
    low, high = time + lower, time + upper
    first, last = int(other_time.min()), int(other_time.max())
    keys = int(max(key.max(), other_key.max())) + 1
    if keys * (last - first + 2) < 1 << 62:
        place, low, high = other_time - first, low - first, high - first
        width = last - first + 2
    else:
        # Too far apart to count in one number with the key: by the order of the times then.
        known = np.unique(other_time)
        place = np.searchsorted(known, other_time)
        low, high = np.searchsorted(known, low, "left"), np.searchsorted(known, high, "right") - 1
        width = len(known) + 1
    # Every key has a range of numbers of its own; the last of it is of no row, so that what is beyond finds none.
    of_other = other_key * width + place
    order = np.argsort(of_other, kind="stable")
    of_other = of_other[order]
    begin = np.searchsorted(of_other, key * width + np.clip(low, 0, width - 1), "left")
    end = np.searchsorted(of_other, key * width + np.clip(high, -1, width - 2), "right")
    counts = np.maximum(end - begin, 0)
    rows = np.repeat(np.arange(len(key)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, order[np.repeat(begin, counts) + within]
