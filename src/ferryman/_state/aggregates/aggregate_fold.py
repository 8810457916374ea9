"""The contract of a fold: how one declared aggregate becomes state, merges, and gives its result.

`totals`, `picks` and `sketches` implement it, `compile` calls it. Calls nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from ferryman._state.aggregates.kernels import Ints


class Fold(Protocol):
    """One aggregate over one input column."""

    @property
    def name(self) -> str:
        """Name of the output column."""

    @property
    def column(self) -> str | None:
        """Name of the input column; None where rows are counted."""

    @property
    def state(self) -> tuple[pa.Field, ...]:
        """The columns of the state, which are also those of a partial; all may be null."""

    @property
    def output(self) -> pa.Field:
        """The column of the result."""

    def partial(self, rows: pa.Array | None, index: Ints, n: int) -> list[pa.Array]:
        """Fold rows, in order, into one partial for each of n keys."""

    def merge(self, state: Sequence[pa.Array], partials: Sequence[pa.Array], index: Ints, n: int) -> list[pa.Array]:
        """Fold partials, in order, into the state of n keys."""

    def result(self, state: Sequence[pa.Array]) -> pa.Array:
        """Give the result of each state."""
