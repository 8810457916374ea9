"""Which keys are hot, and what should become of them: a view of the load of late.

A key is hot if it has half of what an instance has to bear when all bear the same: then it decides how full its
instance is. It is isolated when it has been hot for some epochs in a row and that makes the fullest instance less full,
and put back when it has been cool for longer, by another measure: so it does not go to and fro.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ferryman._migrate.placement import Load
from ferryman._migrate.planning import MOST_PINS, isolated, rebalanced, unpinned
from ferryman._model.routing import RoutingTable
from ferryman._routing.sites import SiteMap

if TYPE_CHECKING:
    # It counts for how long keys have been hot, by what is hot here.
    from ferryman._migrate.load_history import LoadHistory

# A key is hot from this part of an instance's fair share on, and cool below half of that.
_HOT = 0.5
_COOL = _HOT / 2
# For how many epochs with rows a key has to be hot, or cool.
_HOT_EPOCHS = 5
_COOL_EPOCHS = 20
# How much less full the fullest instance has to become for a key to be isolated.
_WORTH = 0.95


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


def is_hot(rows: float, fair: float) -> bool:
    """Tell whether a key with so many rows is hot, where an instance's fair share is so many.

    Examples
    --------
    >>> is_hot(50, fair=100), is_hot(49, fair=100), is_cool(25, fair=100), is_cool(24, fair=100)
    (True, False, False, True)
    """
    return rows >= fair * _HOT


def is_cool(rows: float, fair: float) -> bool:
    """Tell whether a key that was hot is not any more; between the two it stays what it was."""
    return rows < fair * _COOL


def hot_keys(history: LoadHistory, table: RoutingTable) -> list[HotKey]:
    """List the keys that are hot now, and those that are pinned because they were; the hottest first."""
    total, keys = history.rows, history.keys
    kept = {pin.hash: pin.key for pin in table.pins if pin.hot}
    found = []
    for hash, key in {**kept, **history.shown}.items():
        rows = keys.get(hash, 0.0)
        if total and (is_hot(rows, total / table.instances) or hash in kept):
            share, where = rows / total, table.owner_of(hash)
            found.append(HotKey(key, rows / history.epochs, share, where, hash in table.pinned))
    return sorted(found, key=lambda hot: -hot.rows)


def wish(history: LoadHistory, table: RoutingTable, at: SiteMap | None = None) -> tuple[str, RoutingTable] | None:
    """Say what should become of hot and of cooled keys: a name for it and the table to come; None for nothing."""
    cooled = [hash for hash, epochs in history.cool_for.items() if epochs >= _COOL_EPOCHS and hash in table.pinned]
    if cooled:
        after = unpinned(table, cooled)
        return "put back", rebalanced(after, history.load(after), at)
    pinned = table.pinned
    for hash in sorted(history.hot_for, key=lambda hash: -history.keys[hash]):
        # Not in every epoch: it takes some arithmetic to see whether it is worth it.
        no_room = table.instances == 1 or len(table.pins) >= MOST_PINS
        if hash in pinned or no_room or history.hot_for[hash] % _HOT_EPOCHS:
            continue
        after = isolated(table, hash, history.shown[hash], _load_if_pinned(history, table, hash), at)
        load = history.load(after)
        if load.of(after).max() < _WORTH * history.load(table).of(table).max():
            return "isolate", after
    return None


def _load_if_pinned(history: LoadHistory, table: RoutingTable, hash: int) -> Load:
    load, rows = history.load(table), history.keys[hash]
    groups = list(load.groups)
    group = table.group(hash)
    groups[group] = max(0.0, groups[group] - rows)
    return Load(groups, {**load.keys, hash: rows})
