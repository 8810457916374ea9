"""Choose who owns which key group and pinned key next: rescaling, moving, rebalancing, with as few moves as can be.

Pure: from a routing table and what its parts cost to another routing table. What it takes to get there, and
when, is the migration's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ferryman._model.errors import InvalidPlan
from ferryman._model.records import Pin, RoutingTable

Floats = npt.NDArray[np.float64]

# Every row is looked up among the pinned keys.
MOST_PINS = 1000


@dataclass(frozen=True, order=True)
class Move:
    """One key group, or one key of it, goes from an instance to another.

    Attributes
    ----------
    group
        The key group.
    source, target
        From where to where.
    key
        The key as people read it; empty if the group goes, with all its keys that are not pinned.
    pins
        Whether the key is pinned where it goes; else it goes to where its group is, and so is its state.
    """

    group: int
    source: int
    target: int
    key: str = ""
    pins: bool = False


@dataclass(frozen=True)
class Load:
    """What the parts of a job cost, in whatever unit.

    Attributes
    ----------
    groups
        Each key group, without its pinned keys.
    keys
        Each pinned key that anything is known of, by its hash.
    """

    groups: Sequence[float]
    keys: Mapping[int, float] = field(default_factory=dict)

    def of(self, table: RoutingTable) -> Floats:
        """Give what each instance has to bear."""
        found: Floats = np.bincount(table.owner, self.groups, table.instances).astype(np.float64)
        for pin in table.pins:
            found[pin.instance] += self.keys.get(pin.hash, 0.0)
        return found


def moves(before: RoutingTable, after: RoutingTable) -> tuple[Move, ...]:
    """List what has to move between two tables.

    Examples
    --------
    >>> moves(RoutingTable(1, 2, (0, 0, 1)), RoutingTable(2, 2, (0, 1, 1)))
    (Move(group=1, source=0, target=1, key='', pins=False),)
    """
    pairs = enumerate(zip(before.owner, after.owner, strict=True))
    found = [Move(group, old, new) for group, (old, new) in pairs if old != new]
    kept = after.pinned
    for hash, key in sorted({pin.hash: pin.key for pin in (*before.pins, *after.pins)}.items()):
        group, old, new = after.group(hash), before.owner_of(hash), after.owner_of(hash)
        along = hash not in kept and hash not in before.pinned
        if old != new and not along:
            found.append(Move(group, old, new, key, hash in kept))
    return tuple(found)


def rescaled(table: RoutingTable, instances: int, load: Load | Sequence[float] | None = None) -> RoutingTable:
    """Spread the groups over another number of instances; groups that can stay do, and so do pinned keys.

    A key that is pinned to an instance that goes is where its group is from then on.

    Parameters
    ----------
    table
        Who owns what now.
    instances
        How many instances there are to be.
    load
        What each group costs, in whatever unit; all groups alike if left out.

    Examples
    --------
    >>> rescaled(RoutingTable.even(1, 6, 2), 3).owner
    (2, 0, 0, 2, 1, 1)
    >>> rescaled(RoutingTable.even(1, 6, 3), 2).owner
    (0, 0, 1, 1, 0, 1)
    """
    groups = len(table.owner)
    if not 1 <= instances <= groups:
        raise InvalidPlan(
            f"{instances} instances: the job has {groups} key groups, and an instance owns one at the least. Give a "
            f"whole number from 1 to {groups}."
        )
    if instances == table.instances:
        raise InvalidPlan(
            f"the job has {instances} instances already. To even out their load, rebalance; to move particular key "
            "groups, move."
        )
    return _spread(table, instances, _load(table, load))


def rebalanced(table: RoutingTable, load: Load | Sequence[float] | None = None, within: float = 0.1) -> RoutingTable:
    """Even out the load of the instances; the table itself where it is even enough. Pinned keys stay.

    Parameters
    ----------
    table
        Who owns what now.
    load
        What each group costs; all alike if left out.
    within
        How much above the mean an instance may be, as a part of it.
    """
    loads = _load(table, load)
    totals = loads.of(table)
    if totals.max() <= totals.mean() * (1 + within):
        return table
    after = _spread(table, table.instances, loads)
    return table if after.owner == table.owner else after


def moved(table: RoutingTable, to: Mapping[int, int]) -> RoutingTable:
    """Give particular groups to particular instances; their pinned keys stay.

    Parameters
    ----------
    table
        Who owns what now.
    to
        The instance for each group that is to move.
    """
    _refuse_unknown(table, to)
    owner = tuple(to.get(group, now) for group, now in enumerate(table.owner))
    if owner == table.owner:
        raise InvalidPlan("nothing moves: every one of these key groups is where it is to go already.")
    return replace(table, version=table.version + 1, owner=owner)


def pinned(table: RoutingTable, keys: Mapping[int, str], to: int, *, hot: bool = False) -> RoutingTable:
    """Give particular keys to an instance; a key whose group is there is not pinned any more.

    Parameters
    ----------
    table
        Who owns what now.
    keys
        The keys that are to move, as people read them, by their hashes.
    to
        The instance they go to.
    hot
        Whether they are pinned as they are hot. A hot key stays pinned even if its group is there, as that may go.

    Examples
    --------
    >>> pinned(RoutingTable.even(1, 4, 2), {5: "k"}, 1).pins
    (Pin(hash=5, instance=1, key='k', hot=False),)
    """
    _refuse_unknown(table, {0: to})
    pins = {pin.hash: pin for pin in table.pins}
    for hash, key in keys.items():
        if table.owner[table.group(hash)] == to and not hot:
            pins.pop(hash, None)
        else:
            pins[hash] = Pin(hash, to, key, hot)
    if len(pins) > MOST_PINS:
        raise InvalidPlan(
            f"{len(pins)} pinned keys: {MOST_PINS} is the most, as every row is compared with them. Move key groups, "
            "or take pins back first (job.unpin)."
        )
    return _with_pins(table, pins, "every one of these keys is where it is to go already")


def unpinned(table: RoutingTable, keys: Iterable[int]) -> RoutingTable:
    """Have keys go back to where their groups are."""
    gone = set(keys)
    pins = {pin.hash: pin for pin in table.pins if pin.hash not in gone}
    return _with_pins(table, pins, "none of these keys is pinned")


def isolated(table: RoutingTable, hash: int, key: str, load: Load) -> RoutingTable:
    """Pin a hot key to the instance with the least of other pinned keys, and move the groups there that are too much.

    The key stays where it is if it can: then only groups move.
    """
    others = Load([0.0] * len(table.owner), {one: rows for one, rows in load.keys.items() if one != hash}).of(table)
    now = table.owner_of(hash)
    to = now if others[now] <= others.min() else int(np.argmin(others))
    return _spread(pinned(table, {hash: key}, to, hot=True), table.instances, _load(table, load))


def relabelled(after: RoutingTable, were: Sequence[str], are: Sequence[str]) -> RoutingTable:
    """Give instances the numbers with which as many as can be stay on the host they were on.

    Parameters
    ----------
    after
        The table to come.
    were
        The host of each instance of the table there is.
    are
        The host of each instance of the table to come.

    Examples
    --------
    >>> relabelled(RoutingTable(2, 3, (0, 1, 2)), ["a", "b"], ["b", "b", "a"]).owner
    (2, 0, 1)
    """
    free = list(range(after.instances))
    number: dict[int, int] = {}
    for old in range(min(len(were), after.instances)):
        same = next((new for new in free if are[new] == were[old]), None)
        if same is not None:
            number[old] = same
            free.remove(same)
    for old in range(after.instances):
        if old not in number:
            number[old] = free.pop(0)
    pins = tuple(replace(pin, instance=number[pin.instance]) for pin in after.pins)
    return replace(after, owner=tuple(number[owner] for owner in after.owner), pins=pins)


def _refuse_unknown(table: RoutingTable, to: Mapping[int, int]) -> None:
    def unknown(numbers: Iterable[int], below: int) -> list[int]:
        return sorted({one for one in numbers if not 0 <= one < below})

    if groups := unknown(to, len(table.owner)):
        raise InvalidPlan(
            f"key group {groups[0]} does not exist: the job has the groups 0 to {len(table.owner) - 1}. `job.group_of` "
            "tells the group of a key."
        )
    if instances := unknown(to.values(), table.instances):
        raise InvalidPlan(
            f"instance {instances[0]} does not exist: the job has the instances 0 to {table.instances - 1}. Rescale "
            "first to have more."
        )


def _with_pins(table: RoutingTable, pins: Mapping[int, Pin], otherwise: str) -> RoutingTable:
    after = replace(table, version=table.version + 1, pins=tuple(sorted(pins.values())))
    if after.pins == table.pins:
        raise InvalidPlan(f"nothing moves: {otherwise}.")
    return after


def _load(table: RoutingTable, load: Load | Sequence[float] | None) -> Load:
    given = load if isinstance(load, Load) else Load(np.ones(len(table.owner)).tolist() if load is None else load)
    loads: Floats = np.array(given.groups, np.float64)
    if loads.sum() == 0:
        loads = np.ones(len(table.owner))
    # A group that nothing is known of still is one: without this all idle groups would end up on one instance.
    loads += loads.mean() * 1e-3
    return Load(loads.tolist(), given.keys)


def _spread(table: RoutingTable, instances: int, load: Load) -> RoutingTable:
    """Keep what can stay, place what has no instance any more, then move from the fullest to the emptiest."""
    owner = np.array(table.owner)
    loads: Floats = np.array(load.groups)
    pins = tuple(pin for pin in table.pins if pin.instance < instances)
    for pin in table.pins:
        if pin.instance >= instances:
            loads[table.group(pin.hash)] += load.keys.get(pin.hash, 0.0)
    homeless = np.flatnonzero(owner >= instances)
    stays = owner < instances
    totals = np.bincount(owner[stays], loads[stays], instances)
    for pin in pins:
        totals[pin.instance] += load.keys.get(pin.hash, 0.0)
    for group in homeless[np.argsort(-loads[homeless], kind="stable")].tolist():
        owner[group] = np.argmin(totals)
        totals[owner[group]] += loads[group]
    can_give = np.ones(instances, np.bool_)
    while can_give.any():
        fullest, emptiest = int(np.argmax(np.where(can_give, totals, -1.0))), int(np.argmin(totals))
        gap = totals[fullest] - totals[emptiest]
        mine = np.flatnonzero(owner == fullest)
        # Only a group smaller than the gap makes the fuller of the two less full than it was; a last one stays.
        mine = mine[loads[mine] < gap * (1 - 1e-9)] if len(mine) > 1 else mine[:0]
        if not len(mine):
            can_give[fullest] = False
            continue
        group = int(mine[np.argmin(np.abs(loads[mine] - gap / 2))])
        owner[group] = emptiest
        totals[fullest] -= loads[group]
        totals[emptiest] += loads[group]
    return RoutingTable(table.version + 1, instances, tuple(owner.tolist()), pins)
