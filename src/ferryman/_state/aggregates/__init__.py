"""Declared aggregates: what a user declares, compiled into folds over Arrow columns.

`declared_aggregates` holds the declarations, `compile` checks them against a schema and gives an `Aggregation`;
`totals`, `picks`, `collected` and `sketches` each hold one family of folds, which rest on `numpy_columns` (Arrow to
numpy and back) and `kernels` (numba). Nothing in here knows Spark or a store.
"""

from __future__ import annotations

from ferryman._state.aggregates.compile import Aggregation, compile_aggregates
from ferryman._state.aggregates.declared_aggregates import Aggregate
from ferryman._state.aggregates.kernels import warm

__all__ = ["Aggregate", "Aggregation", "compile_aggregates", "warm"]
