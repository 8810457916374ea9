"""Between Arrow columns and Python values, by declared types: what does not fit is named, and nothing is cut off."""

from __future__ import annotations

import decimal
import functools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._model.errors import OutputMismatch

# Numbers that need not be whole.
BROKEN = (float, decimal.Decimal, np.floating)


def to_list(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Turn a column into Python values, by the short way where there is one."""
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values: list[Any] = column.to_numpy().tolist()
        return values
    listed: list[Any] = column.to_pylist()
    return listed


def key_values(columns: list[pa.Array]) -> list[Any]:
    """Give each key as the user sees it: one column as its value, several as a tuple."""
    if len(columns) == 1:
        return to_list(columns[0])
    return list(zip(*(to_list(column) for column in columns), strict=True))


def to_column(values: list[Any], field: pa.Field, where: str) -> pa.Array:
    """Turn Python values into a column of the declared type, or say which value does not fit."""
    try:
        if _has_integers(field.type):
            for position, value in enumerate(values) if _cuts(values, field.type) else ():
                if _cuts((value,), field.type):
                    raise Misfit(position, value, field, where)
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError, ValueError):
        for position, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
                raise Misfit(position, value, field, where) from error
        raise


@functools.cache
def _has_integers(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_integers(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_integer(kind))


def _cuts(values: Collection[Any], kind: pa.DataType) -> bool:
    """Tell whether Arrow would cut a number among some values to a whole one, at any depth; it does so in silence."""
    t = pa.types
    if t.is_integer(kind):
        if isinstance(values, np.ndarray) and values.dtype.kind in "iub":
            return False
        broken = any(issubclass(kind, BROKEN) for kind in set(map(type, values)))
        return broken and any(isinstance(value, BROKEN) and value != value // 1 for value in values)
    if not _has_integers(kind):
        return False
    if t.is_map(kind):
        entries = (
            value.items() if isinstance(value, Mapping) else value for value in values if isinstance(value, Collection)
        )
        pairs = [pair for several in entries for pair in several if isinstance(pair, tuple) and len(pair) == 2]
        return any(_cuts([pair[n] for pair in pairs], part) for n, part in enumerate((kind.key_type, kind.item_type)))
    if t.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return any(_cuts(_parts(values, number, field.name), field.type) for number, field in enumerate(fields))
    return any(_cuts(value, kind.value_type) for value in values if isinstance(value, (Collection, np.ndarray)))


def _parts(values: Collection[Any], number: int, name: str) -> list[Any]:
    """Give a field of structs, however they are given; what is none does not fit anyway."""
    found = [value[name] for value in values if isinstance(value, Mapping) and name in value]
    return found + [value[number] for value in values if isinstance(value, (tuple, list)) and number < len(value)]


class Misfit(Exception):
    """A value that its declared column cannot hold; turned into an `OutputMismatch` with its key."""

    def __init__(self, position: int, value: Any, field: pa.Field, where: str) -> None:
        super().__init__(f"{where} {field.name!r} is declared as {field.type}, and got {value!r}")
        self.position = position

    def named(self, operator: str, epoch: int, subject: str) -> OutputMismatch:
        """Say it with the operator, the epoch, and the key or row."""
        return OutputMismatch(
            f"operator {operator!r}, epoch {epoch}, {subject}: {self}. Give a value of that type, or change "
            "the declared type. The epoch was not committed."
        )


def conform(table: pa.Table | pa.RecordBatch, schema: pa.Schema, operator: str, epoch: int, what: str) -> pa.Table:
    """Cast a table that a user made to the declared columns, or say what does not fit."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise OutputMismatch(
            f"operator {operator!r}, epoch {epoch}: its {what} is a {type(table).__name__}. Return a pyarrow Table."
        )
    if table.schema.equals(schema):
        return table
    try:
        return table.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowException) as error:
        have = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        want = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise OutputMismatch(
            f"operator {operator!r}, epoch {epoch}: its {what} has the columns ({have}) and is declared as ({want}): "
            f"{error}. Return the declared columns, or change the declaration. The epoch was not committed."
        ) from error
