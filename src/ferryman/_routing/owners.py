"""Tell where keys go: by their key group, but for those that are pinned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ferryman._model.key_groups import group_of

T = TypeVar("T", bound=np.integer)


def routed(hashes: npt.NDArray[np.int64], by_group: npt.NDArray[T], pinned: Mapping[int, int]) -> npt.NDArray[T]:
    """Look up what each key is given: its group's, or its own where it is pinned.

    Parameters
    ----------
    hashes
        The hash of each key.
    by_group
        What every key group is given, an instance say.
    pinned
        What pinned keys are given, by their hash.

    Examples
    --------
    >>> routed(np.array([0, 1, 2, 3]), np.array([7, 8]), {2: 9})
    array([7, 8, 9, 8])
    """
    found = by_group[group_of(hashes, len(by_group))]
    if pinned and len(found):
        known = np.array(sorted(pinned), np.int64)
        own = np.array([pinned[hash] for hash in known.tolist()], by_group.dtype)
        place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        found = np.where(known[place] == hashes, own[place], found)
    return found
