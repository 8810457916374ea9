"""Keys as LMDB holds them: the key group in two bytes, then the key's canonical bytes.

LMDB takes at most 511 bytes. A longer key is cut and closed with a digest; such records, and only
they, are exactly 511 long, and carry the whole key in their value.
"""

from __future__ import annotations

import hashlib

import numpy as np

from ferryman._state.compiled import Ints
from ferryman._state.keys import Keys

_LONGEST = 511
_DIGEST = 32
PREFIX = 2
WHOLE = _LONGEST - PREFIX - 1


def prefix(group: int) -> bytes:
    """Give what the records of a group start with."""
    return group.to_bytes(PREFIX, "big")


def of(keys: Keys, groups: Ints) -> tuple[list[bytes], list[bytes | None]]:
    """Give the record key of each key, and the whole key of those that are cut."""
    n = len(keys)
    if keys.schema.kind == "word":
        cells = np.empty((n, PREFIX + 8), np.uint8)
        cells[:, :PREFIX] = groups.astype(">u2").view(np.uint8).reshape(n, PREFIX)
        cells[:, PREFIX:] = keys.words.view(np.uint8).reshape(n, 8)
        return cells.view(f"V{PREFIX + 8}").reshape(n).tolist(), [None] * n
    start = int(keys.offsets[0])
    data = keys.data[start : int(keys.offsets[-1])].tobytes()
    bounds = (keys.offsets - start).tolist()
    heads = {group: prefix(group) for group in np.unique(groups).tolist()}
    records = [heads[group] + data[a:b] for group, a, b in zip(groups.tolist(), bounds[:-1], bounds[1:], strict=True)]
    whole: list[bytes | None] = [None] * n
    for i in np.flatnonzero(np.diff(keys.offsets) > WHOLE).tolist():
        key = data[bounds[i] : bounds[i + 1]]
        digest = hashlib.blake2b(key, digest_size=_DIGEST).digest()
        whole[i] = key
        records[i] = records[i][: _LONGEST - _DIGEST] + digest
    return records, whole
