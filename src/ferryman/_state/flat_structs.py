"""Structs as flat columns, and back: so that the columnar store holds a struct of narrow fields.

A struct falls into one boolean column, whether it is there, and its fields, structs among them likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa


def schema(state: pa.Schema) -> pa.Schema:
    """Give the flat columns of a state.

    Examples
    --------
    >>> schema(pa.schema([("a", pa.int64()), ("b", pa.struct([("x", pa.int32())]))])).names
    ['a', 'b', 'b.x']
    """
    return pa.schema(list(_fields(state)))


def _fields(fields: Sequence[pa.Field] | pa.Schema, before: str = "") -> Iterator[pa.Field]:
    for field in fields:
        name = before + field.name
        if pa.types.is_struct(field.type):
            yield pa.field(name, pa.bool_())
            yield from _fields([field.type.field(i) for i in range(field.type.num_fields)], f"{name}.")
        else:
            yield field.with_name(name)


def fall(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Flatten columns."""
    flat: list[pa.Array] = []
    for column in columns:
        if pa.types.is_struct(column.type):
            flat.append(column.is_valid())
            flat += fall([column.field(i) for i in range(column.type.num_fields)])
        else:
            flat.append(column)
    return flat


def rise(flat: Sequence[pa.Array], state: pa.Schema) -> list[pa.Array]:
    """Make flat columns into those of a state again."""
    left = iter(flat)
    return [_risen(left, field.type) for field in state]


def _risen(left: Iterator[pa.Array], dtype: pa.DataType) -> pa.Array:
    column = next(left)
    if not pa.types.is_struct(dtype):
        return column
    there = np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)
    fields = [dtype.field(i).with_nullable(True) for i in range(dtype.num_fields)]
    children = [_risen(left, field.type) for field in fields]
    mask = None if there.all() else pa.array(~there)
    made = pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    return made if made.type == dtype else made.cast(dtype)
