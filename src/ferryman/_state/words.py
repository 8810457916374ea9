"""Fixed-width Arrow columns as 64-bit words, and back, without looking at what the bits mean.

Keys and the columnar store share this: any value of at most 8 bytes becomes one int64 and returns as
exactly the same bits. Calls pyarrow and numpy only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._state.compiled import Ints

Mask = npt.NDArray[np.bool_]


def one_array(column: pa.Array | pa.ChunkedArray, dtype: pa.DataType) -> pa.Array:
    """Give a column as one contiguous array of the wanted type, copying only if it must."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column if column.type == dtype else column.cast(dtype)


def fits_word(dtype: pa.DataType) -> bool:
    """Tell whether every value of a type is at most 8 bytes of plain bits."""
    return bool(pa.types.is_primitive(dtype) and dtype.bit_width <= 64)


def to_words(array: pa.Array) -> Ints:
    """Widen an array to one word per value; a null gives some word, its validity is kept elsewhere."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), np.int64)
    cells = np.frombuffer(buffer, f"i{array.type.bit_width // 8}")
    return np.require(cells[array.offset : array.offset + len(array)], np.int64, ["C", "A"])


def from_words(words: Ints, dtype: pa.DataType, valid: Mask | None = None) -> pa.Array:
    """Narrow words back to an array of their type; None for `valid` means no nulls."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if pa.types.is_boolean(dtype):
        cells = np.packbits(words.astype(np.bool_), bitorder="little")
    else:
        cells = np.ascontiguousarray(words.astype(f"i{dtype.bit_width // 8}", copy=False))
    return pa.Array.from_buffers(dtype, len(words), [bitmap, pa.py_buffer(cells)])


def validity(array: pa.Array) -> Mask | None:
    """Give which values are not null, or None if all are there."""
    if array.null_count == 0:
        return None
    valid: Mask = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return valid
