"""Aggregates to declare on a keyed stream: ``aggregate(n=count(), mean=avg("value"))``."""

from __future__ import annotations

from ferryman._state.aggregates.declared_aggregates import (
    Aggregate,
    approx_distinct,
    avg,
    count,
    first,
    last,
    max,
    mean,
    min,
    stddev,
    sum,
    variance,
)

__all__ = [
    "Aggregate",
    "approx_distinct",
    "avg",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "stddev",
    "sum",
    "variance",
]
