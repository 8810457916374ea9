"""State rows as msgpack, and back, exactly.

Arrow columns are first seen as their plain storage (a timestamp as its int64, a decimal as its 16
bytes, inside lists, structs and maps too), which costs nothing, loses nothing, whatever the unit, and
leaves only values that msgpack has itself. Calls pyarrow and msgpack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgpack
import pyarrow as pa

_ABSENT = b"\xc0"


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
    """Write rows as msgpack: each an array of the hash, the key if LMDB cannot hold it, and the state."""
    plain = [each.view(plain_type(each.type)).to_pylist() for each in columns]
    writer = msgpack.Packer(use_bin_type=True)
    return [writer.pack(row) for row in zip(hashes, long_keys, *plain, strict=True)]


def unpack(values: Iterable[bytes | None]) -> list[tuple[object, ...] | None]:
    """Read rows that `pack` wrote; None stays None."""
    # One message instead of thousands: the header of an array, and the values are its elements.
    listed = [_ABSENT if each is None else each for each in values]
    message = b"\xdd" + len(listed).to_bytes(4, "big") + b"".join(listed)
    rows = msgpack.unpackb(message, raw=False, use_list=False, strict_map_key=False)
    return list(rows)


def to_columns(rows: Sequence[Sequence[object] | None], skip: int, state: pa.Schema) -> list[pa.Array]:
    """Build state columns from unpacked rows, leaving out their first `skip` values; None is all null."""
    blank = (None,) * (skip + len(state))
    filled = [blank if row is None else row for row in rows]
    columns: list[Sequence[object]] = list(zip(*filled, strict=True)) if filled else [()] * (skip + len(state))
    return [
        pa.array(values, plain_type(dtype)).view(dtype)
        for values, dtype in zip(columns[skip:], state.types, strict=True)
    ]
