"""Find the keys that have a considerable part of all rows. Calls `keys`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._state.compiled import Ints
from ferryman._state.keys import Keys

# A key is worth a word if it has this part of a task's rows, and so many.
PART = 0.1
ROWS = 25
# How much of a key is shown to people.
_LONGEST = 200

Weight = Mapping[str, Any]


def heavy(keys: Keys, index: Ints, watched: Iterable[int] = ()) -> list[Weight]:
    """List the keys with many of the rows, as {"hash", "key", "rows"}; the watched ones however many they have.

    Parameters
    ----------
    keys
        The distinct keys.
    index
        For each row, the number of its key.
    watched
        Hashes of keys to list in any case, if they have rows.
    """
    some = list(watched)
    if len(index) < ROWS and not some:
        return []
    counts = np.bincount(index, minlength=len(keys))
    wanted = counts >= max(ROWS, len(index) * PART)
    if some:
        wanted |= np.isin(keys.hash, np.array(some, np.int64)) & (counts > 0)
    places = np.flatnonzero(wanted)
    if not len(places):
        return []
    found = keys.take(places)
    shown = shown_keys(found.columns())
    rows = counts[places].tolist()
    return [
        {"hash": hash, "key": key, "rows": n} for hash, key, n in zip(found.hash.tolist(), shown, rows, strict=True)
    ]


def shown_keys(columns: list[pa.Array]) -> list[str]:
    """Write keys for people.

    Examples
    --------
    >>> shown_keys([pa.array(["a", "b"]), pa.array([1, 2])])
    ['a, 1', 'b, 2']
    """
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [", ".join(map(str, row))[:_LONGEST] for row in rows]
