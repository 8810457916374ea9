"""Keys that are longer than LMDB takes, which is 511 bytes with the key group before them.

A longer key is cut and closed with a digest; such records, and only they, are exactly 511 long, and carry
the whole key in their value. Calls the record keys that ordered databases share.
"""

from __future__ import annotations

import hashlib

import numpy as np

from ferryman._state.compiled import Ints
from ferryman._state.keys import Keys
from ferryman._state.store import record_keys

LONGEST = 511
_DIGEST = 32
WHOLE = LONGEST - record_keys.PREFIX - 1
# What a record keeps of a key that is cut.
KEPT = LONGEST - record_keys.PREFIX - _DIGEST


def cut(key: bytes) -> bytes:
    """Give the part of a key that every record of it begins with."""
    return key[:KEPT]


def records_of(keys: Keys, groups: Ints) -> tuple[list[bytes], list[bytes | None]]:
    """Give the record key of each key, and the whole key of those that are cut."""
    records = record_keys.of(keys, groups)
    whole: list[bytes | None] = [None] * len(keys)
    for i in np.flatnonzero(np.diff(keys.offsets) > WHOLE).tolist():
        key = records[i][record_keys.PREFIX :]
        digest = hashlib.blake2b(key, digest_size=_DIGEST).digest()
        whole[i] = key
        records[i] = records[i][: LONGEST - _DIGEST] + digest
    return records, whole
