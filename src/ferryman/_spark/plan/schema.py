"""Between Spark's schemas and Arrow's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.declare import ddl
from ferryman._spark.compat.conversion import arrow_schema, spark_schema
from ferryman._spark.compat.start import active_context


def to_arrow(schema: StructType) -> pa.Schema:
    """Give the Arrow types of a Spark schema; timestamps in UTC, every column nullable."""
    try:
        return pa.schema([pa.field(field.name, field.type) for field in arrow_schema(schema)])
    except PySparkException as error:
        raise InvalidConfiguration(
            f"a column of {schema.simpleString()} has a type that Spark cannot hand to Python ({error}). Leave the "
            "column out (select) or cast it to another type before Ferryman sees it."
        ) from error


def to_spark(schema: pa.Schema) -> StructType:
    """Give the Spark schema of an Arrow one."""
    return spark_schema(schema)


def from_ddl(text: str) -> Any:
    """Read a schema in DDL: with Spark where it runs, and without it otherwise."""
    return StructType.fromDDL(text) if active_context() is not None else to_spark(ddl.parse(text))


def declared_struct(declared: Any, operator: str) -> StructType:
    """Read an operator's declared output: DDL, a StructType or a pyarrow schema."""
    if isinstance(declared, StructType):
        return declared
    if isinstance(declared, pa.Schema):
        return to_spark(declared)
    if isinstance(declared, str):
        return _ddl(declared, operator)
    raise InvalidConfiguration(
        f"operator {operator!r} does not declare its output. Set `output` on the class, for example "
        'output = "sensor string, mean double".'
    )


def parse_ddl(declared: Any, where: str) -> StructType:
    """Read a schema that a user gave as DDL or as a StructType."""
    if isinstance(declared, StructType):
        return declared
    try:
        parsed = from_ddl(declared) if isinstance(declared, str) else None
    except (PySparkException, ValueError) as error:
        raise InvalidConfiguration(f"{where}: {declared!r} is not a schema Spark can read ({error}).") from error
    if not isinstance(parsed, StructType):
        raise InvalidConfiguration(
            f'{where}: {declared!r} is not a schema. Give a StructType, or text such as "count int, total double".'
        )
    return parsed


def _ddl(text: str, operator: str) -> StructType:
    try:
        parsed = from_ddl(text)
    except (PySparkException, ValueError) as error:
        raise InvalidConfiguration(
            f"operator {operator!r}: its output {text!r} is not a schema Spark can read. Write it as "
            '"sensor string, mean double".'
        ) from error
    if not isinstance(parsed, StructType):
        raise InvalidConfiguration(
            f'operator {operator!r}: its output {text!r} has no column names. Write it as "sensor string, mean double".'
        )
    return parsed
