"""What a processor declares in `init`, and the cells it gets for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.types import DataType, StructType

from ferryman._operator.cells import ListVariable, MapVariable, Record, ValueVariable, Variable
from ferryman._spark.processor.rows import row_class
from ferryman._spark.schema import to_arrow

Kind = Literal["value", "list", "map"]


@dataclass(frozen=True)
class Declared:
    """One state as a processor declared it. Schemas travel as JSON: Spark's own types are not hashable."""

    kind: Kind
    name: str
    schema: str
    key: str | None = None
    ttl_ms: int | None = None

    def variable(self) -> Variable:
        """Give the state as Ferryman keeps it."""
        record = _record(self.schema)
        if self.kind == "value":
            return ValueVariable(self.name, record, self.ttl_ms)
        if self.kind == "list":
            return ListVariable(self.name, record, self.ttl_ms)
        assert self.key is not None, "a map has a key"
        return MapVariable(self.name, record, self.ttl_ms, _record(self.key))


@lru_cache(maxsize=256)
def _record(json: str) -> Record:
    import json as text

    struct = StructType.fromJson(text.loads(json))
    return record_of(struct)


def record_of(struct: StructType) -> Record:
    """Give the record of a Spark schema, with Spark's own conversions where a type needs one."""
    fields = tuple(to_arrow(struct))
    load = tuple(_converter(ArrowTableToRowsConversion._create_converter, one.dataType) for one in struct)
    dump = tuple(_dumper(field, one.dataType) for field, one in zip(fields, struct, strict=True))
    return Record(fields, load, dump, row_class(tuple(struct.names)))


def _dumper(field: pa.Field, kind: DataType) -> Callable[[Any], Any] | None:
    # Spark would make a string of anything; a value of another type than declared is to be refused.
    if not (pa.types.is_nested(field.type) or pa.types.is_timestamp(field.type)):
        return None
    return _converter(LocalDataToArrowConversion._create_converter, kind)


def _converter(create: Callable[..., Any], kind: DataType) -> Callable[[Any], Any] | None:
    # PySpark 4.1 has no way to ask for None where nothing is to be done.
    if "none_on_identity" in inspect.signature(create).parameters:
        made: Callable[[Any], Any] | None = create(kind, none_on_identity=True)
        return made
    converter: Callable[[Any], Any] = create(kind)
    return converter
