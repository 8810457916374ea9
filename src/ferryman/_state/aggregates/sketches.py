"""The fold that estimates: approx_distinct, a serialised HyperLogLog sketch per key.

The sketches are Apache DataSketches', whose bytes Spark's ``hll_sketch_estimate`` and other engines
read too. The package is an extra, imported on first use. Calls `numpy_columns` and `kernels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._model.errors import CorruptCheckpoint
from ferryman._state.aggregates.kernels import Ints, group
from ferryman._state.aggregates.numpy_columns import ALL_VALID, integers, is_varying, stored, valid

LEAST_LG_K, GREATEST_LG_K = 7, 21

# The library ignores an empty string; this number stands for it, so that it counts as the value it is.
_EMPTY = -0x5BD1E9955BD1E995


def datasketches() -> ModuleType | None:
    """Import the sketch library; None if the extra is not installed."""
    try:
        import datasketches
    except ImportError:
        return None
    return datasketches  # type: ignore[no-any-return,unused-ignore]


@dataclass(frozen=True)
class ApproxDistinct:
    """Estimate the number of distinct values of a column."""

    name: str
    column: str
    lg_k: int
    state: tuple[pa.Field, ...]
    output: pa.Field

    @classmethod
    def of(cls, name: str, column: str, lg_k: int) -> ApproxDistinct:
        """Declare state and output."""
        return cls(name, column, lg_k, (pa.field(name, pa.binary()),), pa.field(name, pa.int64()))

    def partial(self, rows: pa.Array | None, index: Ints, n: int) -> list[pa.Array]:
        """Sketch the values of each key; null without a value."""
        assert rows is not None
        library = _library()
        kind = library.tgt_hll_type.HLL_8
        order, starts = group(valid(rows), index, n)
        values, runs = _values(rows, order), starts.tolist()
        sketched: list[bytes | None] = [None] * n
        for key in range(n):
            if runs[key] == runs[key + 1]:
                continue
            sketch = library.hll_sketch(self.lg_k, kind)
            update = sketch.update
            for value in values[runs[key] : runs[key + 1]]:
                update(value)
            sketched[key] = sketch.serialize_compact()
        return [pa.array(sketched, pa.binary())]

    def merge(self, state: Sequence[pa.Array], partials: Sequence[pa.Array], index: Ints, n: int) -> list[pa.Array]:
        """Unite the sketches of each key."""
        library = _library()
        order, starts = group(ALL_VALID, index, n)
        merged, parts = state[0].to_pylist(), partials[0].to_pylist()
        places, runs = order.tolist(), starts.tolist()
        for key in range(n):
            found = [parts[at] for at in places[runs[key] : runs[key + 1]] if parts[at] is not None]
            if merged[key] is not None:
                found.insert(0, merged[key])
            if len(found) > 1:
                union = library.hll_union(self.lg_k)
                for part in found:
                    union.update(self._read(library, part))
                merged[key] = union.get_result(library.tgt_hll_type.HLL_8).serialize_compact()
            elif found:
                merged[key] = found[0]
        return [pa.array(merged, pa.binary())]

    def result(self, state: Sequence[pa.Array]) -> pa.Array:
        """Give the estimate; zero without a value."""
        library = _library()
        estimates = np.zeros(len(state[0]), np.int64)
        for key, part in enumerate(state[0].to_pylist()):
            if part is not None:
                sketch = self._read(library, part)
                # A sketch that was never united estimates from the order of its updates. United with
                # itself it estimates from its registers alone, which no split into epochs changes.
                union = library.hll_union(self.lg_k)
                union.update(sketch)
                union.update(sketch)
                estimates[key] = round(union.get_estimate())
        return pa.array(estimates)

    def _read(self, library: ModuleType, part: bytes) -> Any:
        try:
            return library.hll_sketch.deserialize(part)
        except Exception as error:
            raise CorruptCheckpoint(
                f"the sketch of aggregate {self.name!r} cannot be read ({error}): its bytes were altered or "
                "are not a HyperLogLog sketch. Restore the checkpoint, or start from an earlier epoch."
            ) from error


def _library() -> ModuleType:
    library = datasketches()
    # Compiling the aggregate has already told the user what to install.
    assert library is not None
    return library


def _values(rows: pa.Array, order: Ints) -> list[Any]:
    if not is_varying(rows.type):
        values = stored(rows) if pa.types.is_floating(rows.type) else integers(rows)
        return list(values[order].tolist())
    listed = rows.take(pa.array(order)).to_pylist()
    if pa.types.is_string(rows.type) or pa.types.is_large_string(rows.type):
        return [value or _EMPTY for value in listed]
    # The library takes no bytes; latin-1 maps every byte to a character of its own.
    return [value.decode("latin-1") or _EMPTY for value in listed]
