"""Choose who owns which key group and pinned key next: rescaling, moving, rebalancing, with as few moves as can be.

Pure: from a routing table and what its parts cost to another routing table. Which instance gets what is decided by
`placement`; what it takes to get there, and when, is the migration's business.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ferryman._migrate.placement import WITHIN, Floats, Load, handed_out, spread
from ferryman._model.errors import InvalidPlan, NothingMoves
from ferryman._model.routing import Pin, RoutingTable
from ferryman._routing.sites import SiteMap, Target, targets

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


def rescaled(
    table: RoutingTable, instances: int, load: Load | Sequence[float] | None = None, at: SiteMap | None = None
) -> RoutingTable:
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
    at
        Where instances are, those to come and those to go: groups stay in their site while the load is even enough.

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
    return spread(table, instances, _load(table, load), at)


def rebalanced(
    table: RoutingTable, load: Load | Sequence[float] | None = None, at: SiteMap | None = None
) -> RoutingTable:
    """Even out the load of the instances; the table itself where it is even enough. Pinned keys stay.

    Parameters
    ----------
    table
        Who owns what now.
    load
        What each group costs; all alike if left out.
    at
        Where instances are: groups stay in their site while the load is even enough.
    """
    loads = _load(table, load)
    totals = loads.of(table)
    if totals.max() <= totals.mean() * (1 + WITHIN):
        return table
    after = spread(table, table.instances, loads, at)
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
    _refuse_unknown(table, to, to.values())
    owner = tuple(to.get(group, now) for group, now in enumerate(table.owner))
    if owner == table.owner:
        raise NothingMoves("nothing moves: every one of these key groups is where it is to go already.")
    return replace(table, version=table.version + 1, owner=owner)


def restored(table: RoutingTable, lost: Collection[int], costs: Sequence[float]) -> RoutingTable:
    """Spread groups whose host was lost over the other instances, so that all restore about as much.

    Each instance that loses some keeps the least costly of them: none is without.

    Parameters
    ----------
    table
        Who owns what now.
    lost
        The groups.
    costs
        What it costs to restore each group.

    Examples
    --------
    >>> restored(RoutingTable.even(1, 9, 3), {3, 4, 5}, [1.0] * 9).owner
    (0, 0, 0, 1, 0, 2, 2, 2, 2)
    """
    kept: dict[int, int] = {}
    for group in sorted(lost, key=lambda group: (costs[group], group)):
        kept.setdefault(table.owner[group], group)
    stay = [instance for instance in range(table.instances) if instance not in kept]
    go = {group: costs[group] for group in set(lost).difference(kept.values())}
    to = handed_out(go, dict.fromkeys(go, -1), stay, [0.0] * table.instances) if stay else {}
    owner = tuple(to.get(group, now) for group, now in enumerate(table.owner))
    return replace(table, version=table.version + 1, owner=owner)


def moved_to(table: RoutingTable, groups: Iterable[int], to: Target, load: Load, at: SiteMap) -> RoutingTable:
    """Give particular groups to an instance, or spread them over those of a host or a site."""
    some = set(groups)
    _refuse_unknown(table, some, ())
    costs = {group: load.groups[group] for group in some}
    owner = dict(enumerate(table.owner))
    return moved(table, handed_out(costs, owner, _known(table, to, at), load.of(table).tolist()))


def pinned_to(table: RoutingTable, keys: Mapping[int, str], to: Target, load: Load, at: SiteMap) -> RoutingTable:
    """Give particular keys to an instance, or spread them over those of a host or a site."""
    # A key of which nothing is known still is one: without this all of them would go to one instance.
    least = 1e-3 * (sum(load.groups) / len(load.groups) or 1.0)
    costs = {hash: max(least, load.keys.get(hash, 0.0)) for hash in keys}
    owner = {hash: table.owner_of(hash) for hash in keys}
    return pinned(table, keys, handed_out(costs, owner, _known(table, to, at), load.of(table).tolist()))


def pinned(
    table: RoutingTable, keys: Mapping[int, str], to: int | Mapping[int, int], *, hot: bool = False
) -> RoutingTable:
    """Give particular keys to an instance; a key whose group is there is not pinned any more.

    Parameters
    ----------
    table
        Who owns what now.
    keys
        The keys that are to move, as people read them, by their hashes.
    to
        The instance they go to, or that of each, by its hash.
    hot
        Whether they are pinned as they are hot. A hot key stays pinned even if its group is there, as that may go.

    Examples
    --------
    >>> pinned(RoutingTable.even(1, 4, 2), {5: "k"}, 1).pins
    (Pin(hash=5, instance=1, key='k', hot=False),)
    """
    goes = dict.fromkeys(keys, to) if isinstance(to, int) else to
    _refuse_unknown(table, (), goes.values())
    pins = {pin.hash: pin for pin in table.pins}
    for hash, key in keys.items():
        if table.owner[table.group(hash)] == goes[hash] and not hot:
            pins.pop(hash, None)
        else:
            pins[hash] = Pin(hash, goes[hash], key, hot)
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


def isolated(table: RoutingTable, hash: int, key: str, load: Load, at: SiteMap | None = None) -> RoutingTable:
    """Pin a hot key to the instance with the least of other pinned keys, and move the groups there that are too much.

    The key stays where it is if it can: then only groups move.
    """
    others = Load([0.0] * len(table.owner), {other: rows for other, rows in load.keys.items() if other != hash}).of(
        table
    )
    now = table.owner_of(hash)
    to = now if others[now] <= others.min() else int(np.argmin(others))
    return spread(pinned(table, {hash: key}, to, hot=True), table.instances, _load(table, load), at)


def _known(table: RoutingTable, to: Target, at: SiteMap) -> list[int]:
    found = targets(table, to, at)
    _refuse_unknown(table, (), found)
    return found


def _refuse_unknown(table: RoutingTable, groups: Iterable[int], instances: Iterable[int]) -> None:
    def unknown(numbers: Iterable[int], below: int) -> list[int]:
        return sorted({number for number in numbers if not 0 <= number < below})

    if strange := unknown(groups, len(table.owner)):
        raise InvalidPlan(
            f"key group {strange[0]} does not exist: the job has the groups 0 to {len(table.owner) - 1}. `job.group_of`"
            " tells the group of a key."
        )
    if strange := unknown(instances, table.instances):
        raise InvalidPlan(
            f"instance {strange[0]} does not exist: the job has the instances 0 to {table.instances - 1}. Rescale "
            "first to have more."
        )


def _with_pins(table: RoutingTable, pins: Mapping[int, Pin], otherwise: str) -> RoutingTable:
    after = replace(table, version=table.version + 1, pins=tuple(sorted(pins.values())))
    if after.pins == table.pins:
        raise NothingMoves(f"nothing moves: {otherwise}.")
    return after


def _load(table: RoutingTable, load: Load | Sequence[float] | None) -> Load:
    given = load if isinstance(load, Load) else Load(np.ones(len(table.owner)).tolist() if load is None else load)
    loads: Floats = np.array(given.groups, np.float64)
    if loads.sum() == 0:
        loads = np.ones(len(table.owner))
    # A group that nothing is known of still is one: without this all idle groups would end up on one instance.
    loads += loads.mean() * 1e-3
    return Load(loads.tolist(), given.keys)
