"""Which store a table is kept in, where the user has not chosen one."""

from __future__ import annotations

import pyarrow as pa

from ferryman._state import flat_structs
from ferryman._state.keys import KeySchema
from ferryman._state.words import fits_word

# Those that hold any state, and can be asked for by name; the first is taken where nobody asks.
GENERAL = ("lmdb", "rocksdb")


def choose(key: KeySchema, state: pa.Schema, *, in_order: bool | None = None) -> str:
    """Name the store for a table: columnar if its columns are narrow and nobody reads ranges of it, else lmdb.

    Unless told, ranges are read of a table whose keys have entries.
    """
    ranges = key.entries if in_order is None else in_order
    narrow = not ranges and all(fits_word(kind) for kind in flat_structs.schema(state).types)
    return "columnar" if narrow else GENERAL[0]
