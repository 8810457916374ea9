"""State columns as 64-bit cells, and back: the words of a row as the pages hold them.

The cells of a row are its validity, one bit per state column in as many words as that takes, and then
one word per state column. Calls `words`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._state.compiled import Ints
from ferryman._state.words import Mask, from_words, to_words, validity

_BITS = 64


def validity_words(state: pa.Schema) -> int:
    """Give how many words the validity bits of a row take."""
    return -(-len(state) // _BITS)


def to_cells(columns: list[pa.Array], rows: int) -> Ints:
    """Turn state columns into cells, one line per cell and one column per row."""
    bits = -(-len(columns) // _BITS)
    cells = np.zeros((bits + len(columns), rows), np.int64)
    for i, column in enumerate(columns):
        valid = validity(column)
        bit: npt.NDArray[np.int64] | np.int64 = np.uint64(1 << (i % _BITS)).astype(np.int64)
        cells[i // _BITS] |= bit if valid is None else np.where(valid, bit, 0)
        cells[bits + i] = to_words(column)
    return cells


def from_cells(cells: Ints, state: pa.Schema, present: Mask | None = None) -> list[pa.Array]:
    """Turn cells back into state columns, all null where a row is not present."""
    bits = validity_words(state)
    columns = []
    for i, dtype in enumerate(state.types):
        bit = np.uint64(1 << (i % _BITS)).astype(np.int64)
        valid: Mask = (cells[i // _BITS] & bit) != 0
        if present is not None:
            valid &= present
        columns.append(from_words(cells[bits + i], dtype, None if valid.all() else valid))
    return columns
