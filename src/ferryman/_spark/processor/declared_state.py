"""What a processor declares in `init`, and the cells it gets for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.types import DataType, StructType

from ferryman._operator.cells import ListVariable, MapVariable, Record, ValueVariable, Variable
from ferryman._spark.compat.conversion import from_arrow, into_arrow
from ferryman._spark.plan.schema import to_arrow
from ferryman._spark.processor.nested_values import prepared
from ferryman._spark.processor.processor_rows import row_class
from ferryman._spark.processor.single_values import leaf

Kind = Literal["value", "list", "map"]


@dataclass(frozen=True)
class DeclaredState:
    """One state as a processor declared it, and the name that it has in files and columns.

    Schemas travel as JSON: Spark's own types are not hashable.
    """

    kind: Kind
    name: str
    stored: str
    schema: str
    key: str | None = None
    ttl_ms: int | None = None

    def variable(self) -> Variable:
        """Give the state as Ferryman keeps it."""
        if self.kind == "value":
            return ValueVariable(self.stored, _record(self.schema), self.ttl_ms)
        if self.kind == "list":
            return ListVariable(self.stored, _record(self.schema), self.ttl_ms)
        assert self.key is not None, "a map has a key"
        return MapVariable(self.stored, _record(self.schema, rows=True), self.ttl_ms, _record(self.key))


def stored_name(name: str, taken: Collection[str]) -> str:
    """Give a name for files and columns to a state that Spark lets have any; its own if it can be.

    Examples
    --------
    >>> stored_name("count", ("sensor",)), stored_name("my-state", ()), stored_name("sensor", ("sensor",))
    ('count', 'state_my_2d_state', 'state_sensor')
    """
    plain = re.sub(r"\W", lambda found: f"_{ord(found[0]):x}_", name)
    return plain if plain == name and not re.match(r"_|\d", name) and name not in taken else f"state_{plain}"


@lru_cache(maxsize=256)
def _record(json: str, *, rows: bool = False) -> Record:
    """Give the record of a Spark schema, with Spark's own conversions where a type needs one.

    Spark hands values out as tuples, and as rows only what `MapState.getValue` gives.
    """
    import json as text

    struct = StructType.fromJson(text.loads(json))
    fields = tuple(to_arrow(struct))
    load = tuple(from_arrow(field.dataType) for field in struct)
    dump = tuple(_dumper(arrow, field.dataType) for arrow, field in zip(fields, struct, strict=True))
    row = row_class(tuple(struct.names)) if rows else tuple
    return Record(fields, load, dump, row, nulls=True, plain=plain)


def plain(value: Any) -> Any:
    """Make a plain Python value of what numpy and pandas have, as Spark does with what goes into a state."""
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist())
    if isinstance(value, Row) or hasattr(value, "_fields"):
        return type(value)(*map(plain, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if value is pd.NaT:
        return None
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime(warn=False)
    return value.to_pytimedelta() if isinstance(value, pd.Timedelta) else value


def _dumper(field: pa.Field, kind: DataType) -> Callable[[Any], Any] | None:
    t = pa.types
    if not (t.is_nested(field.type) or t.is_timestamp(field.type)):
        # The most frequent types go to Arrow as whole columns.
        return leaf(kind) if t.is_temporal(field.type) or t.is_decimal(field.type) else None
    convert, prepare = into_arrow(kind), prepared(kind)
    if convert is None or prepare is None:
        return convert or prepare
    return lambda value: convert(prepare(value))
