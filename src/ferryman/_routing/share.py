"""What of the state is an instance's in one epoch: its key groups, and the groups of the keys that are pinned to it.

The group of a pinned key is kept whole by everybody who owns a key of it. So who walks through a group meets keys
of others, and has to ask whether a key is its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ferryman._model.key_groups import group_of
from ferryman._routing.owners import routed

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Share:
    """The share of one instance.

    Attributes
    ----------
    mine
        The key groups that the instance owns.
    kept
        The key groups whose main copies it needs: its own, and those of keys that are pinned to it.
    shared
        Those of them that others need as well, as keys of theirs are in them.
    workers
        Who owns keys of the shared groups.
    """

    instance: int
    owner: Sequence[int]
    pinned: Mapping[int, int]
    mine: Ints
    kept: Ints
    shared: Ints
    workers: frozenset[int]

    @classmethod
    def of(cls, instance: int, owner: Sequence[int], pinned: Mapping[int, int], held: frozenset[int]) -> Share:
        """Find the share of an instance, less the groups that only collect rows in this epoch."""
        mine = np.flatnonzero(np.array(owner) == instance)
        if held:
            mine = mine[~np.isin(mine, list(held))]
        if not pinned:
            return cls(
                instance=instance,
                owner=owner,
                pinned=pinned,
                mine=mine,
                kept=mine,
                shared=mine[:0],
                workers=frozenset(),
            )
        groups = {hash: group for hash in pinned if (group := group_of(hash, len(owner))) not in held}
        guests = [group for hash, group in groups.items() if pinned[hash] == instance]
        kept = np.union1d(mine, np.array(guests, np.int64))
        shared = np.intersect1d(kept, np.array(list(groups.values()), np.int64))
        both = set(shared.tolist())
        workers = {owner[group] for group in both} | {pinned[hash] for hash, group in groups.items() if group in both}
        return cls(
            instance=instance,
            owner=owner,
            pinned=pinned,
            mine=mine,
            kept=kept,
            shared=shared,
            workers=frozenset(workers),
        )

    @property
    def unshared(self) -> Ints:
        """Give the groups that nobody else needs."""
        return np.setdiff1d(self.kept, self.shared, assume_unique=True) if len(self.shared) else self.kept

    def owns(self, hashes: Ints) -> npt.NDArray[np.bool_]:
        """Tell of keys whether they are the instance's."""
        mine: npt.NDArray[np.bool_] = routed(hashes, np.array(self.owner), self.pinned) == self.instance
        return mine
