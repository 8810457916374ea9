"""Side outputs: rows of another kind than an operator's own, each kind with columns of its own.

All rows of a task leave it in one table. Where an operator has side outputs, that table has one more column with the
side's name, null for the operator's own rows, and a struct column for each side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

SIDE = "_side"
LATE = "late"


class Aside:
    """A row for a side output; `side` makes it."""

    __slots__ = ("name", "row")

    def __init__(self, name: str, row: tuple[Any, ...]) -> None:
        self.name = name
        self.row = row


def side(name: str, *values: Any) -> Aside:
    """Give a row to a side output instead of the operator's own: `yield side("alarms", key, value)`.

    The operator declares its sides as `sides = {"alarms": "sensor string, value double"}`; `stream.side("alarms")` is
    the stream of them.
    """
    return Aside(name, values)


def column(name: str) -> str:
    """Name the column that holds the rows of a side."""
    return f"{SIDE}_{name}"


def sided_schema(own: pa.Schema, sides: Mapping[str, pa.Schema]) -> pa.Schema:
    """Give the columns of an operator's rows together with those of its sides."""
    if not sides:
        return own
    fields = [pa.field(column(name), pa.struct(list(schema))) for name, schema in sides.items()]
    return pa.schema([*own, pa.field(SIDE, pa.string()), *fields])


def with_sides(own: pa.Table, sides: Mapping[str, pa.Table], schema: pa.Schema) -> pa.Table:
    """Put an operator's rows and those of its sides into one table."""
    if SIDE not in schema.names:
        return own
    tables = [_widened(own, schema)]
    for name, rows in sides.items():
        if rows.num_rows:
            kind = schema.field(column(name)).type
            arrays = [column.combine_chunks() for column in rows.columns]
            struct = pa.StructArray.from_arrays(arrays, fields=[kind.field(i) for i in range(kind.num_fields)])
            marked = pa.table({SIDE: pa.repeat(pa.scalar(name, pa.string()), rows.num_rows), column(name): struct})
            tables.append(_widened(marked, schema))
    return pa.concat_tables(tables)


def _widened(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns: Sequence[Any] = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def own_rows(rows: pa.Table, own: Sequence[str]) -> pa.Table:
    """Take an operator's own rows out of such a table."""
    return rows.filter(rows.column(SIDE).is_null()).select(list(own)) if SIDE in rows.column_names else rows


def rows_aside(rows: pa.Table, name: str) -> pa.Table:
    """Take the rows of a side out of such a table."""
    kept = rows.filter(pc.equal(rows.column(SIDE), name)).column(column(name)).combine_chunks()
    return pa.Table.from_arrays([kept.field(i) for i in range(kept.type.num_fields)], names=kept.type.names)
