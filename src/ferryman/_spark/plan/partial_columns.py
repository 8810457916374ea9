"""What declared aggregates keep of some rows, as expressions of Spark's: then its own compiled code makes the partials.

Only of those for which Spark gives the very state that ours have: counts, sums, averages, least and greatest values.
A sum of longs is not among them: whether Spark notices that one does not fit is for the session to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType, LongType, StructType

from ferryman._spark.plan.segments import is_hashed
from ferryman._state.aggregates import Aggregation
from ferryman._state.aggregates.aggregate_fold import Fold
from ferryman._state.aggregates.numpy_columns import is_varying
from ferryman._state.aggregates.picks import Pick
from ferryman._state.aggregates.totals import Average, Count, Sum


def partial_columns(aggregation: Aggregation, rows: StructType, keys: list[str]) -> list[Column] | None:
    """Give the columns of a partial's state; None if Spark cannot make the same.

    Parameters
    ----------
    aggregation
        The declared aggregates.
    rows
        The columns of the rows.
    keys
        Which of them are the key.
    """
    if not all(_is_one_value(rows[name].dataType) for name in keys):
        return None
    made: list[Column] = []
    for fold in aggregation.folds:
        columns = list(_columns(fold, rows))
        if not columns:
            return None
        made += [column.alias(part.name) for column, part in zip(columns, fold.state, strict=True)]
    return made


def _is_one_value(kind: DataType) -> bool:
    """Tell whether values that are grouped together are equal in every bit: 0.0 and -0.0 are not."""
    return is_hashed(kind) and not isinstance(kind, (FloatType, DoubleType))


def _columns(fold: Fold, rows: StructType) -> Iterator[Column]:
    column = F.lit(1) if fold.column is None else F.col(f"`{fold.column}`")
    if isinstance(fold, Count):
        yield F.count(column)
    elif isinstance(fold, Sum) and not (fold.whole and isinstance(rows[fold.column].dataType, LongType)):
        yield F.sum(column.cast("long" if fold.whole else "double"))
    elif isinstance(fold, Average):
        yield F.coalesce(F.sum(column.cast("double")), F.lit(0.0))
        yield F.count(column)
    elif isinstance(fold, Pick) and fold.kind in ("min", "max") and not is_varying(fold.output.type):
        yield (F.min if fold.kind == "min" else F.max)(column)
