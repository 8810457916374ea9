"""The rows of an initial state, as `initialState=df.groupBy(...)` gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ferryman._model.errors import InvalidConfiguration
from ferryman._spark.compat.session import grouping
from ferryman._spark.plan.schema import to_arrow
from ferryman._spark.processor.processor_runner import INITIAL
from ferryman._state.earlier_columns import widens

if TYPE_CHECKING:
    from ferryman._spark.api.keyed import KeyedStream


def initial_rows(grouped: GroupedData, keyed: KeyedStream, label: str) -> DataFrame:
    """Give the rows of an initial state in one column, beside the stream's key: what they are grouped by, in order."""
    if not isinstance(grouped, GroupedData):
        raise InvalidConfiguration(
            f"operator {label!r}: initialState={grouped!r}. Give a grouped batch DataFrame: df.groupBy(...)."
        )
    frame, columns = grouping(grouped)
    if frame.isStreaming:
        raise InvalidConfiguration(
            f"operator {label!r}: initialState is a streaming DataFrame. Give a batch DataFrame, grouped by "
            f"what stands for {', '.join(keyed.names)}."
        )
    found = frame.select(*columns).schema
    wanted = StructType([keyed.parent.schema[name] for name in keyed.names])
    if not _fits(found, wanted):
        raise InvalidConfiguration(
            f"operator {label!r}: initialState is grouped by {_listed(found)}, and the stream by {_listed(wanted)}. "
            "Group both by as many columns, of the same types and in the same order; names may differ."
        )
    keys = [column.cast(field.dataType).alias(field.name) for column, field in zip(columns, wanted, strict=True)]
    return frame.select(*keys, F.struct(*(F.col(f"`{name}`") for name in frame.columns)).alias(INITIAL))


def _fits(found: StructType, wanted: StructType) -> bool:
    have, want = to_arrow(found).types, to_arrow(wanted).types
    return len(have) == len(want) and all(widens(before, after) for before, after in zip(have, want, strict=True))


def _listed(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema) or "nothing"
