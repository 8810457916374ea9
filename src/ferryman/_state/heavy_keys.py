"""Find the keys that have a considerable part of all rows. Calls `keys` and `tables`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from ferryman._model.receipt import HeavyKey
from ferryman._state.compiled import Ints
from ferryman._state.keys import Keys
from ferryman._state.tables import PANE

# A key is worth a word if it has this part of a task's rows, and so many.
PART = 0.1
ROWS = 25
# How much of a key is shown to people.
_LONGEST = 200


def heavy(keys: Keys, index: Ints, watched: Iterable[int] = ()) -> list[HeavyKey]:
    """List the keys with many of the rows; the watched ones however many they have.

    Parameters
    ----------
    keys
        The distinct keys.
    index
        For each row, the number of its key.
    watched
        Hashes of keys to list in any case, if they have rows.
    """
    asked_for = list(watched)
    if len(index) < ROWS and not asked_for:
        return []
    return heavy_by_count(keys, np.bincount(index, minlength=len(keys)), asked_for)


def heavy_by_count(keys: Keys, counts: Ints, asked_for: Sequence[int] = ()) -> list[HeavyKey]:
    """List the keys with many of the rows, given how many each of them has."""
    wanted = counts >= max(ROWS, int(counts.sum()) * PART)
    if asked_for:
        wanted |= np.isin(keys.hash, np.array(asked_for, np.int64)) & (counts > 0)
    places = np.flatnonzero(wanted)
    if not len(places):
        return []
    found = keys.take(places)
    # As the user has them: a pane is no part of that.
    named = zip(found.schema.fields.names, found.columns(), strict=True)
    shown = shown_keys([column for name, column in named if name != PANE])
    rows = counts[places].tolist()
    return list(map(HeavyKey, found.hash.tolist(), shown, rows))


def shown_keys(columns: list[pa.Array]) -> list[str]:
    """Write keys for people.

    Examples
    --------
    >>> shown_keys([pa.array(["a", "b"]), pa.array([1, 2])])
    ['a, 1', 'b, 2']
    """
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [", ".join(map(str, row))[:_LONGEST] for row in rows]
