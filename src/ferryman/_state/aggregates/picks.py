"""Folds that keep one of the values they saw: min, max, first and last, min_by and max_by.

All choose a row per key and then take its value, whatever its type; so the state has the type of
the input, and equal inputs give equal bytes, NaN payloads included. Calls `numpy_columns` and `kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._state.aggregates import kernels
from ferryman._state.aggregates.kernels import Ints, frozen
from ferryman._state.aggregates.numpy_columns import floats, integers, is_varying, take, valid, varying


@dataclass(frozen=True)
class Pick:
    """Keep the least, greatest, first or last value of a column."""

    name: str
    column: str
    kind: str
    state: tuple[pa.Field, ...]
    output: pa.Field

    @classmethod
    def of(cls, name: str, column: str, kind: str, type: pa.DataType) -> Pick:
        """Declare state and output."""
        field = pa.field(name, type)
        return cls(name, column, kind, (field,), field)

    def partial(self, rows: pa.Array | None, index: Ints, n: int) -> list[pa.Array]:
        """Pick among the rows of each key."""
        assert rows is not None
        return [take(rows, self.choose(rows, index, n))]

    def merge(self, state: Sequence[pa.Array], partials: Sequence[pa.Array], index: Ints, n: int) -> list[pa.Array]:
        """Pick among the state and the partials: the same choice, with the state as the earliest row."""
        rows = pa.concat_arrays([state[0], partials[0]])
        return self.partial(rows, frozen(np.concatenate([np.arange(n, dtype=np.int64), index])), n)

    def result(self, state: Sequence[pa.Array]) -> pa.Array:
        """Give the value kept."""
        return state[0]

    def choose(self, rows: pa.Array, index: Ints, n: int) -> Ints:
        """Give the row of each key; -1 where there is none with a value."""
        chosen = np.full(n, -1, np.int64)
        if self.kind == "first":
            kernels.choose_first(valid(rows), index, chosen)
        elif self.kind == "last":
            kernels.choose_last(valid(rows), index, chosen)
        elif is_varying(rows.type):
            kernels.choose_extreme_bytes(*varying(rows), valid(rows), index, self.kind == "max", chosen)
        else:
            values = floats(rows) if pa.types.is_floating(rows.type) else integers(rows)
            kernels.choose_extreme(values, valid(rows), index, self.kind == "max", chosen)
        return chosen


@dataclass(frozen=True)
class PickBy:
    """Keep the value of one column from the row in which another is least or greatest.

    Its rows are structs of both, `value` and `by`.
    """

    name: str
    column: str
    by: Pick
    state: tuple[pa.Field, ...]
    output: pa.Field

    @classmethod
    def of(cls, name: str, column: str, kind: str, type: pa.DataType, by: str, by_type: pa.DataType) -> PickBy:
        """Declare state and output."""
        chooser = Pick.of(f"{name}_by", by, kind.removesuffix("_by"), by_type)
        field = pa.field(name, type)
        return cls(name, column, chooser, (field, *chooser.state), field)

    def partial(self, rows: pa.Array | None, index: Ints, n: int) -> list[pa.Array]:
        """Choose among the rows of each key."""
        assert rows is not None
        values, by = rows.flatten()
        chosen = self.by.choose(by, index, n)
        return [_taken(values, chosen), take(by, chosen)]

    def merge(self, state: Sequence[pa.Array], partials: Sequence[pa.Array], index: Ints, n: int) -> list[pa.Array]:
        """Choose among the state and the partials, with the state as the earliest row."""
        values, by = (pa.concat_arrays([old, new]) for old, new in zip(state, partials, strict=True))
        chosen = self.by.choose(by, frozen(np.concatenate([np.arange(n, dtype=np.int64), index])), n)
        return [_taken(values, chosen), take(by, chosen)]

    def result(self, state: Sequence[pa.Array]) -> pa.Array:
        """Give the value kept."""
        return state[0]


def _taken(values: pa.Array, chosen: Ints) -> pa.Array:
    """Pick rows of a column whose values may be null; -1 gives null."""
    return values.take(pa.array(chosen, mask=chosen < 0))
