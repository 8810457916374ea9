"""Arrow columns as numpy arrays and back, without a copy wherever the layout allows it.

Works on the buffers themselves: an epoch may have fifty rows, and then the fixed cost of a call into
pyarrow's compute functions is what the epoch costs. Calls `kernels` only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._state.aggregates.kernels import Bools, Bytes, Floats, Ints, frozen

ALL_VALID: Bools = frozen(np.zeros(0, np.bool_))

_STORED: dict[int, type[np.generic]] = {
    pa.int8().id: np.int8,
    pa.int16().id: np.int16,
    pa.int32().id: np.int32,
    pa.int64().id: np.int64,
    pa.uint8().id: np.uint8,
    pa.uint16().id: np.uint16,
    pa.uint32().id: np.uint32,
    pa.uint64().id: np.uint64,
    pa.float32().id: np.float32,
    pa.float64().id: np.float64,
    pa.date32().id: np.int32,
    pa.date64().id: np.int64,
    pa.time32("s").id: np.int32,
    pa.time64("us").id: np.int64,
    pa.timestamp("us").id: np.int64,
    pa.duration("us").id: np.int64,
}
_BOOLEAN = pa.bool_().id
_OFFSETS: dict[int, type[np.generic]] = {
    pa.string().id: np.int32,
    pa.binary().id: np.int32,
    pa.large_string().id: np.int64,
    pa.large_binary().id: np.int64,
}


def is_fixed(kind: pa.DataType) -> bool:
    """Tell whether values of this type have one width, booleans included."""
    return kind.id in _STORED or kind.id == _BOOLEAN


def is_varying(kind: pa.DataType) -> bool:
    """Tell whether values of this type are strings or bytes."""
    return kind.id in _OFFSETS


def valid(array: pa.Array) -> Bools:
    """Tell which values are not null; empty if all are."""
    if array.null_count == 0:
        return ALL_VALID
    bitmap = array.buffers()[0]
    return _bits(bitmap, array.offset, len(array))


def stored(array: pa.Array) -> npt.NDArray[Any]:
    """View the values of a fixed-width column as they are stored; booleans are unpacked."""
    size, kind = len(array), array.type.id
    if kind not in _STORED:
        bits = _bits(array.buffers()[1], array.offset, size) if size else ALL_VALID
        return bits.view(np.uint8)
    dtype = _STORED[kind]
    if size == 0:
        return frozen(np.zeros(0, dtype))
    values = np.frombuffer(array.buffers()[1], dtype, size, array.offset * np.dtype(dtype).itemsize)
    # A buffer that numpy allocated is writable, and the kernels are compiled for read-only input.
    values.setflags(write=False)
    return values


def integers(array: pa.Array) -> Ints:
    """Give the values of an integer-like column as int64, in an order-preserving way."""
    values = stored(array)
    if values.dtype == np.int64:
        return values
    if values.dtype == np.uint64:
        return frozen((values ^ np.uint64(1 << 63)).view(np.int64))
    return frozen(values.astype(np.int64))


def floats(array: pa.Array) -> Floats:
    """Give the values of a numeric column as float64."""
    values = stored(array)
    return values if values.dtype == np.float64 else frozen(values.astype(np.float64))


def varying(array: pa.Array) -> tuple[Ints, Bytes]:
    """View a column of strings or bytes as offsets and data."""
    if len(array) == 0:
        return frozen(np.zeros(1, np.int64)), frozen(np.zeros(0, np.uint8))
    _, where, what = array.buffers()
    dtype = _OFFSETS[array.type.id]
    offsets = np.frombuffer(where, dtype, len(array) + 1, array.offset * np.dtype(dtype).itemsize)
    data = np.frombuffer(what, np.uint8) if what is not None and what.size else np.zeros(0, np.uint8)
    return frozen(offsets.astype(np.int64, copy=False)), frozen(data)


def seed(array: pa.Array) -> npt.NDArray[Any]:
    """Copy the values of a fixed-width column, nulls as zero: what a merge adds into."""
    nulls = array.null_count
    if nulls == len(array) and array.type.id in _STORED:
        # Keys that are all new: no bitmap needs to be read.
        return np.zeros(nulls, _STORED[array.type.id])
    values: npt.NDArray[Any] = stored(array).copy()
    if nulls:
        values[~valid(array)] = 0
    return values


def seed_valid(array: pa.Array) -> Bools:
    """Copy which values are not null."""
    nulls = array.null_count
    if nulls in (0, len(array)):
        return np.full(len(array), nulls == 0, np.bool_)
    return np.array(valid(array))


def filled(array: pa.Array) -> npt.NDArray[Any]:
    """Give the values of a fixed-width column, nulls as zero, to be read only."""
    return stored(array) if array.null_count == 0 else frozen(seed(array))


def wrap(kind: pa.DataType, values: npt.NDArray[Any], seen: Bools | None = None) -> pa.Array:
    """Wrap numpy values as a column; where `seen` is False the value is null and must be zero."""
    size = len(values)
    nulls = 0 if seen is None else size - int(np.count_nonzero(seen))
    bitmap = pa.py_buffer(np.packbits(seen, bitorder="little")) if seen is not None and nulls else None
    if kind.id == _BOOLEAN:
        values = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(kind, size, [bitmap, pa.py_buffer(values)], nulls)


def take(array: pa.Array, chosen: Ints) -> pa.Array:
    """Pick rows of a column; -1 gives null."""
    missing = chosen < 0
    none = not missing.any()
    if is_varying(array.type):
        return array.take(pa.array(chosen, mask=None if none else missing))
    if len(array) == 0:
        return pa.nulls(len(chosen), array.type)
    values = stored(array).take(chosen, mode="clip")
    if none:
        return wrap(array.type, values)
    values[missing] = 0
    return wrap(array.type, values, ~missing)


def _bits(buffer: pa.Buffer, offset: int, size: int) -> Bools:
    packed = np.frombuffer(buffer, np.uint8, offset=offset // 8)
    start = offset % 8
    bits = np.unpackbits(packed, count=start + size, bitorder="little")[start:].view(np.bool_)
    bits.setflags(write=False)
    return bits
