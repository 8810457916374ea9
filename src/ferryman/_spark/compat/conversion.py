"""Between Spark's types and Arrow's, Python's and pandas', by the conversions that Spark itself has.

Calls nobody of ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas.types import _create_converter_to_pandas, from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType

if TYPE_CHECKING:
    import pandas as pd

Convert = Callable[[Any], Any]

_PARAMETERS = inspect.signature(to_arrow_schema).parameters


def arrow_schema(schema: StructType) -> pa.Schema:
    """Give the Arrow types of a Spark schema, timestamps in UTC. The argument has another name on 4.1 than on 4.3."""
    utc: dict[str, Any] = {"timezone": "UTC"} if "timezone" in _PARAMETERS else {"timestamp_utc": True}
    return to_arrow_schema(schema, **utc)


def spark_schema(schema: pa.Schema) -> StructType:
    """Give the Spark schema of an Arrow one; times without a zone stay so. Tried on 4.3."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def from_arrow(kind: DataType) -> Convert | None:
    """Give what makes of Arrow's Python values those that Spark hands out; None for nothing to do. For 4.1 and 4.3."""
    return _converter(ArrowTableToRowsConversion._create_converter, kind)


def into_arrow(kind: DataType) -> Convert | None:
    """Give what makes of a user's values those that Arrow takes; None where nothing is to be done. For 4.1, 4.3."""
    return _converter(LocalDataToArrowConversion._create_converter, kind)


def _converter(create: Callable[..., Any], kind: DataType) -> Convert | None:
    # 4.1 has no way to ask for None where nothing is to be done.
    asked = {"none_on_identity": True} if "none_on_identity" in inspect.signature(create).parameters else {}
    converter: Convert | None = create(kind, **asked)
    return converter


def into_pandas(kind: DataType, timezone: str) -> Callable[[pd.Series], pd.Series]:
    """Give what makes of Arrow's nested values in a column those that Spark has in pandas. Tried on 4.3."""
    convert: Callable[[pd.Series], pd.Series] = _create_converter_to_pandas(
        kind, timezone=timezone, struct_in_pandas="dict", error_on_duplicated_field_names=False
    )
    return convert
