"""Which values in a frame an output column takes: those that Spark's own conversion does, and as the same value."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from ferryman._operator.run.python_columns import Misfit
from ferryman._spark.plan.schema import declared_struct, to_arrow
from ferryman._spark.processor.output_frames import _array

conversion = pytest.importorskip("pyspark.sql.conversion")
if not hasattr(conversion, "PandasToArrowConversion"):
    pytest.skip("this Spark converts frames elsewhere", allow_module_level=True)

ZONE = "Europe/Berlin"
DAY, NOON = datetime.date(2024, 7, 1), datetime.datetime(2024, 7, 1, 12)
ONE = decimal.Decimal("1")
VALUES: dict[str, Any] = {
    "text": ["a"],
    "text of pandas": pd.array(["a"], "string"),
    "text of a number": ["7"],
    "text of a day": ["2024-07-01"],
    "text of a time": ["2024-07-01 12:00:00Z"],
    "a category": pd.Series(["a"], dtype="category"),
    "a category of numbers": pd.Series([1], dtype="category"),
    "bytes": [b"a"],
    "long": [1],
    "int": pd.Series([1], dtype="int32"),
    "byte": pd.Series([1], dtype="int8"),
    "an object": pd.Series([1], dtype=object),
    "a number or none": pd.array([1, None], "Int64"),
    "double": [1.5],
    "whole double": [2.0],
    "float": pd.Series([1.5], dtype="float32"),
    "not a number": [float("nan")],
    "boolean": [True],
    "a boolean or none": pd.Series([True, None], dtype=object),
    "decimal": [ONE],
    "day": [DAY],
    "time": pd.Series([NOON], dtype="datetime64[ns]"),
    "time of a zone": pd.Series([pd.Timestamp(NOON, tz="UTC")]),
    "time as an object": pd.Series([NOON], dtype=object),
    "time in winter": pd.Series([datetime.datetime(2024, 10, 27, 2, 30)], dtype="datetime64[ns]"),
    "time that is none": pd.Series([NOON, datetime.datetime(2024, 3, 31, 2, 30)], dtype="datetime64[ns]"),
    "duration": pd.Series([pd.Timedelta(5, "s")]),
    "none": [None],
}
TYPES = (
    *("string", "date", "timestamp", "timestamp_ntz", "long", "int", "byte", "double", "float", "boolean", "binary"),
    "decimal(10,2)",
)


def theirs(values: Any, schema: StructType) -> pa.Array:
    frame = pd.DataFrame({"s": values})
    options = {"arrow_cast": True, "assign_cols_by_name": True, "ignore_unexpected_complex_type_values": True}
    return conversion.PandasToArrowConversion.convert(frame, schema, timezone=ZONE, **options).column(0)


def ours(values: Any, schema: StructType) -> pa.Array:
    series = pd.DataFrame({"s": values})["s"]
    given = series.to_numpy() if isinstance(series.dtype, np.dtype) else series
    return _array(given, to_arrow(schema).field(0), ZONE)


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_takes_what_spark_takes_and_nothing_else(kind: str) -> None:
    schema = declared_struct(f"s {kind}", "output")
    for name, values in VALUES.items():
        try:
            wanted = theirs(values, schema)
        except Exception:
            # A column of nulls fits everywhere, and a whole number is a decimal, as the page says.
            if name == "not a number" or ("decimal" in kind and pd.Series(values).dtype.kind in "iO"):
                continue
            with pytest.raises(Misfit, match="column 's' is declared as"):
                pytest.fail(f"{name}: {ours(values, schema)}")
            continue
        # Numbers as they lie in memory: Spark takes some for bytes, and for days and times.
        if (kind == "binary" and name not in ("text", "bytes")) or name in ("decimal", "int", "an object"):
            continue
        assert ours(values, schema).cast(wanted.type).equals(wanted), name


def test_the_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(Misfit, match=r"declared as timestamp.*2024-03-31 02:30:00") as told:
        ours(VALUES["time that is none"], declared_struct("s timestamp", "output"))
    assert told.value.position == 1
    with pytest.raises(Misfit, match=r"declared as string, and got .*5") as told:
        ours([None, 5.0], declared_struct("s string", "output"))
    assert told.value.position == 1
