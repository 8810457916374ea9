"""Folds that keep values: collect_list, collect_set, count_distinct, top, bottom and percentile.

State is a list of values per key; a key not seen before has null. Lists are put together, thinned and sorted as a
whole, for all keys at once. Calls `numpy_columns` and `kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._state import kernels as key_kernels
from ferryman._state.aggregates.kernels import Ints, frozen, group
from ferryman._state.aggregates.numpy_columns import ALL_VALID

KINDS = ("collect_list", "collect_set", "count_distinct", "top", "bottom", "percentile")
_SPREAD = np.int64(-7046029254386353131)


@dataclass(frozen=True)
class Collected:
    """Keep values of a column: all of them, each once, or the greatest or least few.

    Attributes
    ----------
    number
        How many `top` and `bottom` keep; of what part of the values `percentile` gives the greatest.
    """

    name: str
    column: str
    kind: str
    number: float
    state: tuple[pa.Field, ...]
    output: pa.Field

    @classmethod
    def of(cls, name: str, column: str, kind: str, type: pa.DataType, number: float) -> Collected:
        """Declare state and output."""
        kept = pa.list_(type)
        shown = {"count_distinct": pa.int64(), "percentile": pa.float64()}.get(kind, kept)
        return cls(name, column, kind, number, (pa.field(name, kept),), pa.field(name, shown))

    def partial(self, rows: pa.Array | None, index: Ints, n: int) -> list[pa.Array]:
        """Keep of each key's values what is to be kept."""
        assert rows is not None
        if rows.null_count:
            there = pc.is_valid(rows)
            rows, index = rows.filter(there), index[there.to_numpy(zero_copy_only=False)]
        return [self._kept(rows, index, n)]

    def merge(self, state: Sequence[pa.Array], partials: Sequence[pa.Array], index: Ints, n: int) -> list[pa.Array]:
        """Put what partials have behind what is there, and keep of both what is to be kept."""
        owners = np.concatenate([np.repeat(np.arange(n), _lengths(state[0])), np.repeat(index, _lengths(partials[0]))])
        values = pa.concat_arrays([state[0].flatten(), partials[0].flatten()])
        return [self._kept(values, owners, n)]

    def result(self, state: Sequence[pa.Array]) -> pa.Array:
        """Give the values, or what they come to."""
        lengths = _lengths(state[0])
        if self.kind == "count_distinct":
            return pa.array(lengths)
        if self.kind == "percentile":
            return self._percentile(state[0].flatten(), lengths)
        return _lists(state[0].flatten(), lengths)

    def _kept(self, values: pa.Array, owners: Ints, n: int) -> pa.Array:
        if self.kind in ("collect_set", "count_distinct"):
            # -0.0 and 0.0 are one value.
            same = pc.add(values, pa.scalar(0, values.type)) if pa.types.is_floating(values.type) else values
            codes = same.dictionary_encode().indices.to_numpy().astype(np.int64)
            numbers = owners * (codes.max(initial=0) + 1) + codes
            first = key_kernels.distinct_words(numbers * _SPREAD, numbers)[1]
            values, owners = values.take(pa.array(first)), owners[first]
        if self.kind in ("top", "bottom"):
            order = "descending" if self.kind == "top" else "ascending"
            rows = pa.table({"owner": owners, "value": values})
            places = pc.sort_indices(rows, [("owner", "ascending"), ("value", order)]).to_numpy()
            values, owners = values.take(pa.array(places)), owners[places]
            counts = np.bincount(owners, minlength=n)
            rank = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
            values, owners = values.filter(pa.array(rank < self.number)), owners[rank < self.number]
        places, starts = group(ALL_VALID, frozen(np.ascontiguousarray(owners, np.int64)), n)
        return _lists(values.take(pa.array(places)), np.diff(starts))

    def _percentile(self, values: pa.Array, lengths: Ints) -> pa.Array:
        """Give what lies at a part of the sorted values, between two of them in proportion, as Spark does."""
        keys = np.repeat(np.arange(len(lengths)), lengths)
        found = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        found = found[np.lexsort((found, keys))]
        starts = np.cumsum(lengths) - lengths
        there = lengths > 0
        place = (starts + self.number * (lengths - 1))[there]
        low, high = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
        part = place - low
        made = np.zeros(len(lengths))
        # Not the sum where both are one: an infinite value would become NaN.
        made[there] = np.where(low == high, found[low], (1 - part) * found[low] + part * found[high])
        return pa.array(made, mask=~there)


def _lengths(lists: pa.Array) -> Ints:
    lengths: Ints = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return lengths


def _lists(values: pa.Array, lengths: Ints) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)
