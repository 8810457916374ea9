"""Tell which operators are chained: their rows are with their instances already, so no shuffle comes before them.

That is so where an operator reads declared aggregates on the very same key: they put out one row per key, by the
instance that owns it, and the next operator has the same owners. Steps of Spark's may lie between, if they go row by
row and leave the key as it is. What a user's code puts out may have any key, so it is never taken for granted: whether
it holds would be known only when sinks have begun to write. A step may do something else in an epoch than when it was
declared; then that epoch goes with a shuffle (`planner`).
"""

from __future__ import annotations

from ferryman._operator.run.aggregate_runner import AggregateRunner
from ferryman._spark.api.stream import Operated, Parted, Transformed


def is_chained(operator: Operated) -> bool:
    """Tell whether an operator gets its rows from the one before it without a shuffle."""
    key, stream = operator.spec.routed.names, operator.parent
    while isinstance(stream, Transformed):
        if not stream.passes_on.issuperset(key):
            return False
        stream = stream.parent
    if isinstance(stream, Parted) and stream.name is None:
        stream = stream.parent
    return (
        isinstance(stream, Operated)
        and isinstance(stream.spec.runner, AggregateRunner)
        and stream.spec.routed.names == key
        # Its rows come from elsewhere.
        and operator.initial is None
    )
