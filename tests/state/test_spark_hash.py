"""Keys are hashed here as Spark hashes them."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ferryman._spark.plan.planner import hash_of
from ferryman._spark.plan.schema import to_arrow
from ferryman._state.spark_hash import spark_hash

UTC = datetime.timezone.utc
VALUES = {
    "boolean": [True, False],
    "byte": [0, 1, -1, 127, -128],
    "short": [0, -1, 32767, -32768],
    "int": [0, 1, -1, 2**31 - 1, -(2**31)],
    "long": [0, 1, -1, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, 0.1, -2.5, math.inf, -math.inf, math.nan],
    "double": [0.0, -0.0, 0.1, -2.5, 1e300, math.inf, -math.inf, math.nan],
    "string": ["", "a", "ä\U0001f600", "x" * 31, "x" * 32, "x" * 100],
    "binary": [b"", b"\x00", b"\xff" * 33],
    "date": [datetime.date(1970, 1, 1), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp": [datetime.datetime(1970, 1, 1, tzinfo=UTC), datetime.datetime(2026, 11, 18, 1, 2, 3, 4, UTC)],
    "timestamp_ntz": [datetime.datetime(1970, 1, 1), datetime.datetime(1900, 1, 1, 0, 0, 0, 1)],
    "decimal(9,2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("9999999.99")],
    "decimal(18,0)": [Decimal(10**18 - 1), Decimal(-(10**18) + 1)],
    "decimal(38,4)": [
        Decimal(0),
        Decimal("-0.0001"),
        Decimal("0.0128"),
        Decimal("1234567890123456789012345678901234.5678"),
        Decimal("-" + "9" * 34 + ".9999"),
    ],
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_column_of_every_type_is_hashed_as_spark_does_it(spark, kind):
    values = [*VALUES[kind], None]
    pairs = [(value, value if number % 2 else None, "b") for number, value in enumerate(values)]
    schema = StructType.fromDDL(f"a {kind}, b {kind}, c string")
    # By way of Arrow: of a decimal of Python's, Spark keeps 28 digits.
    typed = zip(zip(*pairs, strict=True), to_arrow(schema).types, strict=True)
    arrays = [_array(column, kind) for column, kind in typed]
    frame = spark.createDataFrame(pa.table(arrays, names=schema.names), schema).coalesce(1)
    columns = [F.col(name) for name in schema.names]
    made = frame.select("*", hash_of(list(schema), columns).alias("hash")).toArrow()
    assert spark_hash([made.column(name) for name in schema.names]).tolist() == made.column("hash").to_pylist()
    # A part of an array has the values of its part.
    part = made.slice(1)
    assert spark_hash([part.column(name) for name in schema.names]).tolist() == part.column("hash").to_pylist()


def _array(values, kind):
    if not pa.types.is_decimal(kind):
        return pa.array(values, kind)
    return pa.array([None if value is None else str(value) for value in values]).cast(kind)


def test_a_string_of_any_bytes_is_hashed_as_spark_does_it(spark):
    """A binary key that was cast to a string need not be UTF-8."""
    column = F.expr("CAST(unhex(text) AS STRING)")
    frame = spark.createDataFrame([("FFFE",), ("61",), ("C3",)], "text string").select(column.alias("a")).coalesce(1)
    made = frame.select("a", hash_of(list(frame.schema), [F.col("a")]).alias("hash")).toArrow()
    assert spark_hash([made.column("a")]).tolist() == made.column("hash").to_pylist()
