"""Choose who owns which key group next: rescaling, moving, rebalancing, with as few moves as can be.

Pure: from a routing table and the load of each group to another routing table. What it takes to get there, and
when, is the migration's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ferryman._model.errors import InvalidPlan
from ferryman._model.records import RoutingTable

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Move:
    """One key group goes from an instance to another."""

    group: int
    source: int
    target: int


def moves(before: RoutingTable, after: RoutingTable) -> tuple[Move, ...]:
    """List what has to move between two tables.

    Examples
    --------
    >>> moves(RoutingTable(1, 2, (0, 0, 1)), RoutingTable(2, 2, (0, 1, 1)))
    (Move(group=1, source=0, target=1),)
    """
    pairs = enumerate(zip(before.owner, after.owner, strict=True))
    return tuple(Move(group, old, new) for group, (old, new) in pairs if old != new)


def rescaled(table: RoutingTable, instances: int, load: Sequence[float] | None = None) -> RoutingTable:
    """Spread the groups over another number of instances; groups that can stay do.

    Parameters
    ----------
    table
        Who owns what now.
    instances
        How many instances there are to be.
    load
        What each group costs, in whatever unit; all alike if left out.

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
    return _spread(table, instances, _loads(table, load))


def rebalanced(table: RoutingTable, load: Sequence[float] | None = None, within: float = 0.1) -> RoutingTable:
    """Even out the load of the instances; the table itself where it is even enough.

    Parameters
    ----------
    table
        Who owns what now.
    load
        What each group costs; all alike if left out.
    within
        How much above the mean an instance may be, as a part of it.
    """
    loads = _loads(table, load)
    totals = np.bincount(table.owner, loads, table.instances)
    if totals.max() <= totals.mean() * (1 + within):
        return table
    return _spread(table, table.instances, loads)


def moved(table: RoutingTable, to: Mapping[int, int]) -> RoutingTable:
    """Give particular groups to particular instances.

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
    return RoutingTable(table.version + 1, table.instances, owner)


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
    return RoutingTable(after.version, after.instances, tuple(number[owner] for owner in after.owner))


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


def _loads(table: RoutingTable, load: Sequence[float] | None) -> Floats:
    loads: Floats = np.ones(len(table.owner)) if load is None else np.array(load, np.float64)
    if loads.sum() == 0:
        loads = np.ones(len(table.owner))
    # A group that nothing is known of still is one: without this all idle groups would end up on one instance.
    loads += loads.mean() * 1e-3
    return loads


def _spread(table: RoutingTable, instances: int, loads: Floats) -> RoutingTable:
    """Keep what can stay, place what has no instance any more, then move from the fullest to the emptiest."""
    owner = np.asarray(table.owner)
    homeless = np.flatnonzero(owner >= instances)
    stays = owner < instances
    totals = np.bincount(owner[stays], loads[stays], instances)
    for group in homeless[np.argsort(-loads[homeless], kind="stable")].tolist():
        owner[group] = np.argmin(totals)
        totals[owner[group]] += loads[group]
    while True:
        fullest, emptiest = int(np.argmax(totals)), int(np.argmin(totals))
        gap = totals[fullest] - totals[emptiest]
        mine = np.flatnonzero(owner == fullest)
        # Only a group smaller than the gap makes the fuller of the two less full than it was; a last one stays.
        mine = mine[loads[mine] < gap * (1 - 1e-9)] if len(mine) > 1 else mine[:0]
        if not len(mine):
            break
        group = int(mine[np.argmin(np.abs(loads[mine] - gap / 2))])
        owner[group] = emptiest
        totals[fullest] -= loads[group]
        totals[emptiest] += loads[group]
    return RoutingTable(table.version + 1, instances, tuple(owner.tolist()))
