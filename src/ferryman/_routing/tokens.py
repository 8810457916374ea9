"""Choose tokens: ints that Spark's own hash partitioning sends to the partition we want.

`repartition(N, token)` puts a row into partition pmod(murmur3(token, seed 42), N). A token per
instance, found by trying small ints, makes partition number and instance number the same.
"""

from __future__ import annotations

from functools import lru_cache

_MASK = 0xFFFFFFFF


def _rotate(x: int, by: int) -> int:
    return ((x << by) | (x >> (32 - by))) & _MASK


def murmur3(value: int, seed: int = 42) -> int:
    """Hash an int as Spark's `hash(int)` does.

    Examples
    --------
    >>> murmur3(1)
    -559580957
    """
    k = _rotate((value & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotate(seed ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _MASK
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


@lru_cache(maxsize=64)
def tokens(instances: int) -> tuple[int, ...]:
    """Find, for each instance, the smallest int that Spark hashes to its partition.

    Examples
    --------
    >>> [murmur3(token) % 3 for token in tokens(3)]
    [0, 1, 2]
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < instances:
        found.setdefault(murmur3(candidate) % instances, candidate)
        candidate += 1
    return tuple(found[instance] for instance in range(instances))
