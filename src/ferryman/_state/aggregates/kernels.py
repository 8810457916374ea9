"""The loops: every pass over rows that numpy cannot do in one call, compiled by numba.

Conventions that keep the number of compiled variants at one per value type: values come as int64 or
float64, `index` as int64, `valid` as bool (empty = every row is valid), and all of these are
read-only; the arrays a kernel adds into are writable. No kernel checks `index`: callers ask
`is_outside` once. Calls nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_Loop = TypeVar("_Loop", bound=Callable[..., Any])


def _kernel(loop: _Loop) -> _Loop:
    # numba's decorator is untyped; the cast keeps each kernel's own signature for its callers.
    try:
        return cast(_Loop, numba.njit(cache=True, nogil=True)(loop))
    except (RuntimeError, OSError):
        # No place for a cache can be written: a slow start beats none.
        return cast(_Loop, numba.njit(nogil=True)(loop))


@_kernel
def is_outside(index: Ints, n: int) -> bool:
    """Tell whether a position is not in 0..n-1: a kernel would write out of bounds."""
    wrong = False
    for i in range(index.size):
        wrong |= index[i] < 0 or index[i] >= n
    return wrong


@_kernel
def tally(valid: Bools, index: Ints, counts: Ints) -> None:
    """Count the valid rows of each key."""
    if valid.size == 0:
        for i in range(index.size):
            counts[index[i]] += 1
    else:
        for i in range(index.size):
            counts[index[i]] += valid[i]


@_kernel
def add(values: Any, index: Ints, totals: Any) -> None:
    """Add values, none of them null, to the totals of their keys."""
    for i in range(index.size):
        totals[index[i]] += values[i]


@_kernel
def add_seen(values: Floats, valid: Bools, index: Ints, totals: Floats, seen: Bools) -> None:
    """Add the valid values to the totals of their keys and mark the keys that got one."""
    if valid.size == 0:
        for i in range(index.size):
            totals[index[i]] += values[i]
            seen[index[i]] = True
    else:
        for i in range(index.size):
            if valid[i]:
                totals[index[i]] += values[i]
                seen[index[i]] = True


@_kernel
def add_checked(values: Ints, valid: Bools, index: Ints, totals: Ints, seen: Bools) -> bool:
    """Add as `add_seen` does; tell whether a total left 64 bits on the way."""
    overflow = np.int64(0)
    for i in range(index.size):
        if valid.size == 0 or valid[i]:
            key = index[i]
            before = totals[key]
            after = before + values[i]
            totals[key] = after
            seen[key] = True
            # The sign bit is set where both terms have one sign and the sum has the other.
            overflow |= (before ^ after) & (values[i] ^ after)
    return bool(overflow < 0)


@_kernel
def add_counted(values: Floats, valid: Bools, index: Ints, totals: Floats, counts: Ints) -> None:
    """Add the valid values to the totals of their keys and count them."""
    if valid.size == 0:
        for i in range(index.size):
            totals[index[i]] += values[i]
            counts[index[i]] += 1
    else:
        for i in range(index.size):
            if valid[i]:
                totals[index[i]] += values[i]
                counts[index[i]] += 1


@_kernel
def add_spread(values: Floats, valid: Bools, index: Ints, counts: Ints, means: Floats, m2: Floats) -> None:
    """Update count, mean and sum of squared deviations by each valid value (Welford)."""
    for i in range(index.size):
        if valid.size == 0 or valid[i]:
            key = index[i]
            counts[key] += 1
            off = values[i] - means[key]
            means[key] += off / counts[key]
            m2[key] += off * (values[i] - means[key])


@_kernel
def merge_spread(
    from_counts: Ints,
    from_means: Floats,
    from_m2: Floats,
    index: Ints,
    counts: Ints,
    means: Floats,
    m2: Floats,
) -> None:
    """Merge counts, means and sums of squared deviations into those of their keys (Chan)."""
    for i in range(index.size):
        key = index[i]
        here, there = counts[key], from_counts[i]
        if there == 0:
            continue
        if here == 0:
            # Taken over as it is: the formula would turn an infinite mean into NaN.
            counts[key], means[key], m2[key] = there, from_means[i], from_m2[i]
            continue
        both = here + there
        off = from_means[i] - means[key]
        counts[key] = both
        means[key] += off * (there / both)
        m2[key] += from_m2[i] + off * off * (here * (there / both))


@_kernel
def divide(totals: Floats, counts: Ints, less: int, out: Floats, seen: Bools) -> None:
    """Divide each total by its count minus `less`, where that leaves something to divide by."""
    for i in range(counts.size):
        if counts[i] > less:
            out[i] = totals[i] / (counts[i] - less)
            seen[i] = True


@_kernel
def choose_first(valid: Bools, index: Ints, chosen: Ints) -> None:
    """Choose each key's first valid row; `chosen` comes in as -1."""
    for i in range(index.size):
        if chosen[index[i]] < 0 and (valid.size == 0 or valid[i]):
            chosen[index[i]] = i


@_kernel
def choose_last(valid: Bools, index: Ints, chosen: Ints) -> None:
    """Choose each key's last valid row; `chosen` comes in as -1."""
    for i in range(index.size):
        if valid.size == 0 or valid[i]:
            chosen[index[i]] = i


@_kernel
def choose_extreme(values: Any, valid: Bools, index: Ints, greatest: bool, chosen: Ints) -> None:
    """Choose the row of each key's least or greatest number, the earliest of equals."""
    for i in range(index.size):
        if valid.size == 0 or valid[i]:
            key = index[i]
            at = chosen[key]
            if at < 0:
                chosen[key] = i
                continue
            new, old = values[i], values[at]
            # NaN is the greatest number, and equal to itself; an integer is never unequal to itself.
            if (new > old or (new != new and old == old)) if greatest else (new < old or (old != old and new == new)):
                chosen[key] = i


@_kernel
def choose_extreme_bytes(offsets: Ints, data: Bytes, valid: Bools, index: Ints, greatest: bool, chosen: Ints) -> None:
    """Choose the row of each key's least or greatest byte string, the earliest of equals.

    The order of UTF-8 bytes is the order of code points, and Spark's.
    """
    for i in range(index.size):
        if valid.size == 0 or valid[i]:
            key = index[i]
            at = chosen[key]
            if at < 0:
                chosen[key] = i
                continue
            new, old = offsets[i], offsets[at]
            new_size, old_size = offsets[i + 1] - new, offsets[at + 1] - old
            order = new_size - old_size
            for j in range(min(new_size, old_size)):
                if data[new + j] != data[old + j]:
                    order = 1 if data[new + j] > data[old + j] else -1
                    break
            if (order > 0) if greatest else (order < 0):
                chosen[key] = i


@_kernel
def group(valid: Bools, index: Ints, n: int) -> tuple[Ints, Ints]:
    """Sort the valid rows by key, stably: their order, and where each key's run starts in it."""
    starts = np.zeros(n + 1, np.int64)
    for i in range(index.size):
        if valid.size == 0 or valid[i]:
            starts[index[i] + 1] += 1
    for key in range(n):
        starts[key + 1] += starts[key]
    order = np.empty(starts[n], np.int64)
    at = starts.copy()
    for i in range(index.size):
        if valid.size == 0 or valid[i]:
            order[at[index[i]]] = i
            at[index[i]] += 1
    return order, starts


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give a read-only view: what a kernel takes as input."""
    view: npt.NDArray[Any] = array.view()
    view.setflags(write=False)
    return view


def warm() -> None:
    """Compile every kernel, or load it from numba's cache, for every type it is called with."""
    ints, floats, bools = np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.bool_)
    index, real, none = frozen(ints.copy()), frozen(floats.copy()), frozen(bools[:0])
    whole = index
    is_outside(index, 1)
    tally(none, index, ints)
    add(whole, index, ints)
    add(real, index, floats)
    add_seen(real, none, index, floats, bools)
    add_checked(whole, none, index, ints, bools)
    add_counted(real, none, index, floats, ints)
    add_spread(real, none, index, ints, floats, floats.copy())
    merge_spread(whole, real, real, index, ints, floats, floats.copy())
    divide(real, whole, 0, floats, bools)
    chosen = np.full(1, -1, np.int64)
    choose_first(none, index, chosen)
    choose_last(none, index, chosen)
    choose_extreme(whole, none, index, True, chosen)
    choose_extreme(real, none, index, True, chosen)
    offsets, data = frozen(np.zeros(2, np.int64)), frozen(np.zeros(0, np.uint8))
    choose_extreme_bytes(offsets, data, none, index, True, chosen)
    group(none, index, 1)
