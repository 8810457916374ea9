"""Keys of records in an ordered database: the key group in two bytes, then the key's canonical bytes.

So the records of a group are neighbours, and within it they are in the order of their keys. Knows keys only.
"""

from __future__ import annotations

import numpy as np

from ferryman._state.compiled import Ints
from ferryman._state.keys import Keys

PREFIX = 2


def prefix(group: int) -> bytes:
    """Give what the records of a group start with."""
    return group.to_bytes(PREFIX, "big")


def of(keys: Keys, groups: Ints) -> list[bytes]:
    """Give the record key of each key."""
    n = len(keys)
    if keys.schema.kind == "word":
        cells = np.empty((n, PREFIX + 8), np.uint8)
        cells[:, :PREFIX] = groups.astype(">u2").view(np.uint8).reshape(n, PREFIX)
        cells[:, PREFIX:] = keys.words.view(np.uint8).reshape(n, 8)
        records: list[bytes] = cells.view(f"V{PREFIX + 8}").reshape(n).tolist()
        return records
    start = int(keys.offsets[0])
    data = keys.data[start : int(keys.offsets[-1])].tobytes()
    bounds = (keys.offsets - start).tolist()
    heads = {group: prefix(group) for group in np.unique(groups).tolist()}
    return [heads[group] + data[a:b] for group, a, b in zip(groups.tolist(), bounds[:-1], bounds[1:], strict=True)]
