"""Times in one zone: the same instant has the same type wherever a session's clock is.

Spark hands timestamps over with the zone of its session. That is a note on the column and changes no value, but an
aggregate, a key or a state that took it on would be another one in another session. Calls pyarrow only.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

UTC = "UTC"


def in_zone(rows: pa.Table, zone: str = UTC) -> pa.Table:
    """Give rows with all their times in a zone, those inside lists, structs and maps too; times without one stay.

    Examples
    --------
    >>> berlin = pa.table({"at": pa.array([0], pa.timestamp("us", "Europe/Berlin"))})
    >>> in_zone(berlin).schema.field("at").type
    TimestampType(timestamp[us, tz=UTC])
    """
    for number, wanted in _other(rows.schema, zone):
        rows = rows.set_column(number, wanted, rows.column(number).cast(wanted.type))
    return rows


@lru_cache(maxsize=256)
def _other(schema: pa.Schema, zone: str) -> tuple[tuple[int, pa.Field], ...]:
    """List the columns that have times of another zone, as they are to be."""
    fields = ((number, field, field.with_type(_zoned(field.type, zone))) for number, field in enumerate(schema))
    return tuple((number, after) for number, before, after in fields if after.type != before.type)


def _zoned(kind: pa.DataType, zone: str) -> pa.DataType:
    t = pa.types
    if t.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, zone)
    if t.is_struct(kind):
        return pa.struct([_field(kind.field(number), zone) for number in range(kind.num_fields)])
    if t.is_map(kind):
        return pa.map_(_field(kind.key_field, zone), _field(kind.item_field, zone), kind.keys_sorted)
    if t.is_large_list(kind):
        return pa.large_list(_field(kind.value_field, zone))
    if t.is_list(kind):
        return pa.list_(_field(kind.value_field, zone))
    return kind


def _field(field: pa.Field, zone: str) -> pa.Field:
    return field.with_type(_zoned(field.type, zone))
