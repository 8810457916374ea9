"""What the parts of a job cost of late, and which keys are hot: from the receipts of one epoch after the other.

Pure but for what it remembers. A key is hot if it has half of what an instance has to bear when all bear the same:
then it decides how full its instance is. It is isolated when it has been hot for some epochs in a row and that makes
the fullest instance less full, and put back when it has been cool for longer, by another measure: so it does not go
to and fro.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ferryman._model.records import RoutingTable
from ferryman._routing.planning import MOST_PINS, Load, isolated, rebalanced, unpinned
from ferryman._routing.sites import Places

# How fast the load of long ago is forgotten: after an epoch this part of it is left.
KEPT = 0.9
# A key is hot from this part of an instance's fair share on, and cool below half of that.
_HOT = 0.5
_COOL = _HOT / 2
# For how many epochs with rows it has to be so.
_HOT_EPOCHS = 5
_COOL_EPOCHS = 20
# How much less full the fullest instance has to become for a key to be isolated.
_WORTH = 0.95
# What has less than this part of all rows is forgotten.
_LEAST = 1e-3


@dataclass(frozen=True)
class HotKey:
    """A key with a considerable part of all rows.

    Attributes
    ----------
    key
        The key.
    rows
        How many rows of an epoch it has of late, over all operators.
    share
        What part of all rows that is.
    instance
        Who owns it.
    pinned
        Whether it is pinned there.
    """

    key: str
    rows: float
    share: float
    instance: int
    pinned: bool


class Heat:
    """Remember the load of key groups and of heavy keys; the longer ago, the less it counts."""

    def __init__(self, groups: int) -> None:
        self._groups = np.zeros(groups)
        self._keys: dict[int, float] = {}
        self._busy = np.zeros(groups)
        self._busy_keys: dict[int, float] = {}
        self._shown: dict[int, str] = {}
        self._weight = 0.0
        self._hot_for: dict[int, int] = {}
        self._cool_for: dict[int, int] = {}

    def count(self, receipts: Sequence[Mapping[str, Any]], table: RoutingTable) -> None:
        """Take in the rows of an epoch's tasks; an epoch without rows tells nothing."""
        if not any(receipt["load"] for receipt in receipts):
            return
        self._groups *= KEPT
        self._busy *= KEPT
        self._weight = self._weight * KEPT + 1
        # Whoever looks meanwhile has the dicts of the epoch before.
        keys = {hash: rows * KEPT for hash, rows in self._keys.items()}
        busy = {hash: ms * KEPT for hash, ms in self._busy_keys.items()}
        shown = dict(self._shown)
        for receipt in receipts:
            load = receipt["load"]
            # A row costs what a row of its task costs, so that it costs more where all is slow.
            each = receipt["busy_ms"] / (sum(load.values()) or 1)
            for group, rows in load.items():
                self._groups[int(group)] += rows
                self._busy[int(group)] += rows * each
            for one in receipt["heavy"]:
                keys[one["hash"]] = keys.get(one["hash"], 0.0) + one["rows"]
                busy[one["hash"]] = busy.get(one["hash"], 0.0) + one["rows"] * each
                shown[one["hash"]] = one["key"]
        total = self._groups.sum()
        self._keys = {hash: rows for hash, rows in keys.items() if rows > total * _LEAST}
        self._busy_keys = {hash: busy.get(hash, 0.0) for hash in self._keys}
        self._shown = {hash: shown[hash] for hash in self._keys}
        fair = total / table.instances
        now = {one["hash"] for receipt in receipts for one in receipt["heavy"]}
        hot = {hash for hash, rows in self._keys.items() if rows >= fair * _HOT and hash in now}
        self._hot_for = {hash: self._hot_for.get(hash, 0) + 1 for hash in hot}
        cool = {pin.hash for pin in table.pins if pin.hot and self._keys.get(pin.hash, 0.0) < fair * _COOL}
        self._cool_for = {hash: self._cool_for.get(hash, 0) + 1 for hash in cool}

    def load(self, table: RoutingTable, *, busy: bool = False) -> Load:
        """Give what groups and pinned keys cost, in rows of late, or in milliseconds of work on them."""
        groups, known = (self._busy.copy(), self._busy_keys) if busy else (self._groups.copy(), self._keys)
        keys = {}
        for pin in table.pins:
            keys[pin.hash] = known.get(pin.hash, 0.0)
            groups[table.group(pin.hash)] -= keys[pin.hash]
        return Load(np.maximum(groups, 0.0).tolist(), keys)

    def rows_per_epoch(self) -> list[float]:
        """Give the rows that an epoch brings each key group of late."""
        per_epoch: list[float] = (self._groups / self.epochs).tolist()
        return per_epoch

    @property
    def epochs(self) -> float:
        """Give over how many epochs' worth a load sums up: less than all, as those of long ago count less."""
        return self._weight or 1.0

    def shown(self) -> dict[int, str]:
        """Give the keys that were heavy of late, as people read them, by their hashes."""
        return dict(self._shown)

    def hot_keys(self, table: RoutingTable) -> list[HotKey]:
        """List the keys that are hot now, and those that are pinned because they were; the hottest first."""
        total, keys = float(self._groups.sum()), self._keys
        kept = {pin.hash: pin.key for pin in table.pins if pin.hot}
        found = []
        for hash, key in {**kept, **self._shown}.items():
            rows = keys.get(hash, 0.0)
            if total and (rows >= total / table.instances * _HOT or hash in kept):
                where = table.owner_of(hash)
                found.append(HotKey(key, rows / self._weight, rows / total, where, hash in table.pinned))
        return sorted(found, key=lambda one: -one.rows)

    def wish(self, table: RoutingTable, places: Places | None = None) -> tuple[str, RoutingTable] | None:
        """Say what should become of hot and of cooled keys: a name for it and the table to come; None for nothing."""
        cooled = [hash for hash, epochs in self._cool_for.items() if epochs >= _COOL_EPOCHS]
        if cooled:
            after = unpinned(table, cooled)
            return "put back", rebalanced(after, self.load(after), places)
        pinned = table.pinned
        for hash in sorted(self._hot_for, key=lambda one: -self._keys[one]):
            # Not in every epoch: it takes some arithmetic to see whether it is worth it.
            no_room = table.instances == 1 or len(table.pins) >= MOST_PINS
            if hash in pinned or no_room or self._hot_for[hash] % _HOT_EPOCHS:
                continue
            after = isolated(table, hash, self._shown[hash], self._load_if_pinned(table, hash), places)
            load = self.load(after)
            if load.of(after).max() < _WORTH * self.load(table).of(table).max():
                return "isolate", after
        return None

    def _load_if_pinned(self, table: RoutingTable, hash: int) -> Load:
        load = self.load(table)
        groups = list(load.groups)
        group = table.group(hash)
        groups[group] = max(0.0, groups[group] - self._keys[hash])
        return Load(groups, {**load.keys, hash: self._keys[hash]})
