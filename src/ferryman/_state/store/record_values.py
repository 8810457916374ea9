"""Values of records in an ordered database: rows of state as msgpack, and back, exactly.

Arrow columns are first seen as their plain storage (a timestamp as its int64, a decimal as its 16
bytes, inside lists, structs and maps too), which costs nothing, loses nothing, whatever the unit, and
leaves only values that msgpack has itself. Calls pyarrow and msgpack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgpack
import pyarrow as pa

_NULL = b"\xc0"
# The values of a row that come before its state: the hash, and the key if it was cut.
_BEFORE_STATE = 2


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """Give the type with the same memory layout whose Python values msgpack can write."""
    t = pa.types
    if t.is_decimal(dtype):
        return pa.binary(dtype.byte_width)
    if t.is_temporal(dtype) and not t.is_interval(dtype):
        return pa.int32() if dtype.bit_width == 32 else pa.int64()
    if t.is_float16(dtype):
        return pa.uint16()
    if t.is_map(dtype):
        return pa.map_(_plain_field(dtype.key_field), _plain_field(dtype.item_field))
    if t.is_struct(dtype):
        return pa.struct([_plain_field(dtype.field(i)) for i in range(dtype.num_fields)])
    if t.is_large_list(dtype):
        return pa.large_list(_plain_field(dtype.value_field))
    if t.is_fixed_size_list(dtype):
        return pa.list_(_plain_field(dtype.value_field), dtype.list_size)
    if t.is_list(dtype):
        return pa.list_(_plain_field(dtype.value_field))
    return dtype


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def pack(hashes: Sequence[int], long_keys: Sequence[bytes | None], columns: list[pa.Array]) -> list[bytes]:
    """Write rows as msgpack: each an array of the hash, the key if its record has only a part of it, and the state."""
    plain = [column.view(plain_type(column.type)).to_pylist() for column in columns]
    writer = msgpack.Packer(use_bin_type=True)
    return [writer.pack(row) for row in zip(hashes, long_keys, *plain, strict=True)]


@dataclass(frozen=True, eq=False)
class Unpacked:
    """Rows that were read: their hashes, their keys where `pack` was given one, and their state."""

    hashes: Sequence[int]
    long_keys: Sequence[bytes | None]
    columns: list[pa.Array]


def unpack(values: Sequence[bytes | None], state: pa.Schema) -> Unpacked:
    """Read rows that `pack` wrote; a row that is None has nothing but nulls."""
    width = _BEFORE_STATE + len(state)
    header = len(msgpack.Packer().pack_array_header(width))
    blank = _NULL * width
    # One flat message of all values instead of one per row: a list per row would wake the garbage
    # collector again and again, which took longer than everything else.
    flat = [blank if value is None else value[header:] for value in values]
    message = b"\xdd" + (width * len(flat)).to_bytes(4, "big") + b"".join(flat)
    cells = msgpack.unpackb(message, raw=False, use_list=False, strict_map_key=False)
    columns = [
        pa.array(cells[_BEFORE_STATE + i :: width], plain_type(dtype)).view(dtype)
        for i, dtype in enumerate(state.types)
    ]
    return Unpacked(cells[::width], cells[1::width], columns)
