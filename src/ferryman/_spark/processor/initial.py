"""The rows of an initial state, as `initialState=df.groupBy(...)` gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ferryman._model.errors import InvalidConfiguration
from ferryman._spark.processor.run import INITIAL
from ferryman._spark.schema import to_arrow
from ferryman._state.evolve import widens

if TYPE_CHECKING:
    from ferryman._spark.keyed import KeyedStream


def initial_rows(grouped: GroupedData, keyed: KeyedStream, label: str) -> DataFrame:
    """Give the rows of an initial state in one column, beside the stream's key: what they are grouped by, in order."""
    if not isinstance(grouped, GroupedData):
        raise InvalidConfiguration(
            f"operator {label!r}: initialState={grouped!r}. Give a grouped batch DataFrame: df.groupBy(...)."
        )
    frame = grouped._df
    if frame.isStreaming:
        raise InvalidConfiguration(
            f"operator {label!r}: initialState is a streaming DataFrame. Give a batch DataFrame, grouped by "
            f"what stands for {', '.join(keyed.names)}."
        )
    columns = _grouping(grouped)
    found = frame.select(*columns).schema
    wanted = StructType([keyed.parent.schema[name] for name in keyed.names])
    if not _fits(found, wanted):
        raise InvalidConfiguration(
            f"operator {label!r}: initialState is grouped by {_listed(found)}, and the stream by {_listed(wanted)}. "
            "Group both by as many columns, of the same types and in the same order; names may differ."
        )
    keys = [one.cast(field.dataType).alias(field.name) for one, field in zip(columns, wanted, strict=True)]
    return frame.select(*keys, F.struct(*(F.col(f"`{name}`") for name in frame.columns)).alias(INITIAL))


def _grouping(grouped: GroupedData) -> list[Column]:
    """Give what a DataFrame is grouped by, as columns of it."""
    jvm: Any = grouped.session._jvm
    expressions: Any = grouped._jgd.groupingExprs()
    columns = jvm.org.apache.spark.sql.classic.ExpressionUtils
    return [_column(columns.column(expressions.apply(number))) for number in range(expressions.size())]


def _column(java: Any) -> Column:
    from pyspark.sql.classic.column import Column as Classic

    made: Column = Classic(java)
    return made


def _fits(found: StructType, wanted: StructType) -> bool:
    have, want = to_arrow(found).types, to_arrow(wanted).types
    return len(have) == len(want) and all(widens(one, other) for one, other in zip(have, want, strict=True))


def _listed(schema: StructType) -> str:
    return ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in schema) or "nothing"
