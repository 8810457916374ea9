"""Folds that add up: count, sum, avg, variance and stddev.

State of a key not seen before is null and counts as zero. Calls `numpy_columns` and `kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._model.errors import OutputMismatch
from ferryman._state.aggregates import kernels
from ferryman._state.aggregates.kernels import Bools, Ints
from ferryman._state.aggregates.numpy_columns import (
    ALL_VALID,
    filled,
    floats,
    integers,
    seed,
    seed_valid,
    stored,
    valid,
    wrap,
)

_LONG, _DOUBLE = pa.int64(), pa.float64()


@dataclass(frozen=True)
class Count:
    """Count rows, or the values of a column that are not null."""

    name: str
    column: str | None
    state: tuple[pa.Field, ...]
    output: pa.Field

    @classmethod
    def of(cls, name: str, column: str | None) -> Count:
        """Declare state and output."""
        field = pa.field(name, _LONG)
        return cls(name, column, (field,), field)

    def partial(self, rows: pa.Array | None, index: Ints, n: int) -> list[pa.Array]:
        """Count the rows of each key."""
        counts = np.zeros(n, np.int64)
        kernels.tally(ALL_VALID if rows is None else valid(rows), index, counts)
        return [wrap(_LONG, counts)]

    def merge(self, state: Sequence[pa.Array], partials: Sequence[pa.Array], index: Ints, n: int) -> list[pa.Array]:
        """Add the counts."""
        return [_added(state[0], partials[0], index)]

    def result(self, state: Sequence[pa.Array]) -> pa.Array:
        """Give the count; of a key never seen, zero."""
        return state[0] if state[0].null_count == 0 else wrap(_LONG, seed(state[0]))


@dataclass(frozen=True)
class Sum:
    """Sum a column: integers exactly, failing beyond 64 bits; floats as double."""

    name: str
    column: str
    whole: bool
    state: tuple[pa.Field, ...]
    output: pa.Field

    @classmethod
    def of(cls, name: str, column: str, whole: bool) -> Sum:
        """Declare state and output."""
        field = pa.field(name, _LONG if whole else _DOUBLE)
        return cls(name, column, whole, (field,), field)

    def partial(self, rows: pa.Array | None, index: Ints, n: int) -> list[pa.Array]:
        """Sum the values of each key."""
        assert rows is not None
        totals = np.zeros(n, np.int64 if self.whole else np.float64)
        return self._add(rows, index, totals, np.zeros(n, np.bool_))

    def merge(self, state: Sequence[pa.Array], partials: Sequence[pa.Array], index: Ints, n: int) -> list[pa.Array]:
        """Add the sums."""
        return self._add(partials[0], index, seed(state[0]), seed_valid(state[0]))

    def result(self, state: Sequence[pa.Array]) -> pa.Array:
        """Give the sum."""
        return state[0]

    def _add(self, values: pa.Array, index: Ints, totals: np.ndarray, seen: Bools) -> list[pa.Array]:
        if not self.whole:
            kernels.add_seen(floats(values), valid(values), index, totals, seen)
        elif kernels.add_checked(integers(values), valid(values), index, totals, seen):
            raise OutputMismatch(
                f"aggregate {self.name!r}, sum({self.column!r}), left the range of a 64-bit integer: the "
                f"values of one key add up to more than a long can hold. Cast {self.column!r} to double "
                "before the aggregate, or scale it down."
            )
        return [wrap(_LONG if self.whole else _DOUBLE, totals, seen)]


@dataclass(frozen=True)
class Average:
    """Average a column, from the sum as double and the number of values."""

    name: str
    column: str
    state: tuple[pa.Field, ...]
    output: pa.Field

    @classmethod
    def of(cls, name: str, column: str) -> Average:
        """Declare state and output."""
        state = (pa.field(f"{name}_sum", _DOUBLE), pa.field(f"{name}_n", _LONG))
        return cls(name, column, state, pa.field(name, _DOUBLE))

    def partial(self, rows: pa.Array | None, index: Ints, n: int) -> list[pa.Array]:
        """Sum and count the values of each key."""
        assert rows is not None
        totals, counts = np.zeros(n), np.zeros(n, np.int64)
        kernels.add_counted(floats(rows), valid(rows), index, totals, counts)
        return [wrap(_DOUBLE, totals), wrap(_LONG, counts)]

    def merge(self, state: Sequence[pa.Array], partials: Sequence[pa.Array], index: Ints, n: int) -> list[pa.Array]:
        """Add sums and counts."""
        return [_added(state[0], partials[0], index), _added(state[1], partials[1], index)]

    def result(self, state: Sequence[pa.Array]) -> pa.Array:
        """Divide the sum by the count; null without a value."""
        return _quotient(state[0], state[1], less=0)


@dataclass(frozen=True)
class Spread:
    """Give the sample variance, or its root, from count, mean and sum of squared deviations."""

    name: str
    column: str
    root: bool
    state: tuple[pa.Field, ...]
    output: pa.Field

    @classmethod
    def of(cls, name: str, column: str, root: bool) -> Spread:
        """Declare state and output."""
        state = tuple(pa.field(f"{name}_{part}", kind) for part, kind in _SPREAD)
        return cls(name, column, root, state, pa.field(name, _DOUBLE))

    def partial(self, rows: pa.Array | None, index: Ints, n: int) -> list[pa.Array]:
        """Fold the values of each key by Welford's recurrence."""
        assert rows is not None
        counts, means, m2 = np.zeros(n, np.int64), np.zeros(n), np.zeros(n)
        kernels.add_spread(floats(rows), valid(rows), index, counts, means, m2)
        return [wrap(_LONG, counts), wrap(_DOUBLE, means), wrap(_DOUBLE, m2)]

    def merge(self, state: Sequence[pa.Array], partials: Sequence[pa.Array], index: Ints, n: int) -> list[pa.Array]:
        """Merge by Chan's formula."""
        counts, means, m2 = (seed(part) for part in state)
        from_counts, from_means, from_m2 = (filled(part) for part in partials)
        kernels.merge_spread(from_counts, from_means, from_m2, index, counts, means, m2)
        return [wrap(_LONG, counts), wrap(_DOUBLE, means), wrap(_DOUBLE, m2)]

    def result(self, state: Sequence[pa.Array]) -> pa.Array:
        """Divide by one less than the count; null below two values."""
        spread = _quotient(state[2], state[0], less=1)
        if not self.root:
            return spread
        # Nulls are stored as zero and stay zero under the root, so the bitmap can be shared.
        values = np.sqrt(stored(spread))
        return pa.Array.from_buffers(
            _DOUBLE, len(spread), [spread.buffers()[0], pa.py_buffer(values)], spread.null_count
        )


_SPREAD = (("n", _LONG), ("mean", _DOUBLE), ("m2", _DOUBLE))


def _added(state: pa.Array, partials: pa.Array, index: Ints) -> pa.Array:
    totals = seed(state)
    kernels.add(filled(partials), index, totals)
    return wrap(state.type, totals)


def _quotient(totals: pa.Array, counts: pa.Array, less: int) -> pa.Array:
    out, seen = np.zeros(len(counts)), np.zeros(len(counts), np.bool_)
    kernels.divide(filled(totals), filled(counts), less, out, seen)
    return wrap(_DOUBLE, out, seen)
