"""Which store a table is kept in, where the user has not chosen one."""

from __future__ import annotations

import pyarrow as pa

from ferryman._state import flat_structs
from ferryman._state.keys import KeySchema
from ferryman._state.words import fits_word

# Those that hold any state, and can be asked for by name; the first is taken where nobody asks.
GENERAL = ("lmdb", "rocksdb")


def choose(key: KeySchema, state: pa.Schema) -> str:
    """Name the store for a table: columnar if it has one row per key and narrow columns, else lmdb."""
    narrow = not key.entries and all(fits_word(kind) for kind in flat_structs.schema(state).types)
    return "columnar" if narrow else GENERAL[0]
