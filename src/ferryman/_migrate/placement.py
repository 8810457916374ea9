"""Decide which instance gets which key groups and pinned keys: by what they cost, and by where they are. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ferryman._model.routing import RoutingTable
from ferryman._routing.sites import INSIDE, SiteMap

Floats = npt.NDArray[np.float64]

# How much above the mean an instance may be for the load to be even enough.
WITHIN = 0.1


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


def handed_out(
    costs: Mapping[int, float], owner: Mapping[int, int], instances: Sequence[int], bears: Sequence[float]
) -> dict[int, int]:
    """Spread things over instances, the most costly first, each to who bears least; what is on one of them stays.

    Parameters
    ----------
    costs
        What each thing costs.
    owner
        Who has it now.
    instances
        Who may get it.
    bears
        What every instance of the job bears now.

    Examples
    --------
    >>> handed_out({7: 2.0, 8: 1.0, 9: 9.0}, {7: 0, 8: 0, 9: 1}, [1, 2], [3.0, 9.0, 8.0])
    {9: 1, 7: 2, 8: 1}
    """
    full, found = {instance: bears[instance] for instance in instances}, {}
    for item in sorted(costs, key=lambda item: (-costs[item], item)):
        to = owner[item]
        if to not in full:
            to = min(full, key=lambda instance: (full[instance], instance))
            full[to] += costs[item]
        found[item] = to
    return found


def spread(table: RoutingTable, instances: int, load: Load, at: SiteMap | None) -> RoutingTable:
    """Keep what can stay, place what has no instance any more, then move from the fullest to the emptiest.

    First within every site; to other sites only while the load is not even enough, to the nearest ones first.
    """
    owner = np.array(table.owner)
    loads: Floats = np.array(load.groups)
    pins = tuple(pin for pin in table.pins if pin.instance < instances)
    for pin in table.pins:
        if pin.instance >= instances:
            loads[table.group(pin.hash)] += load.keys.get(pin.hash, 0.0)
    apart = (at or SiteMap()).apart(max(instances, table.instances))[:, :instances]
    homeless = np.flatnonzero(owner >= instances)
    stays = owner < instances
    totals: Floats = np.bincount(owner[stays], loads[stays], instances).astype(np.float64)
    for pin in pins:
        totals[pin.instance] += load.keys.get(pin.hash, 0.0)
    for group in homeless[np.argsort(-loads[homeless], kind="stable")].tolist():
        far = apart[owner[group]]
        owner[group] = np.argmin(np.where(far == far.min(), totals, np.inf))
        totals[owner[group]] += loads[group]
    enough = totals.mean() * (1 + WITHIN)
    for reach in np.unique(apart[:instances]).tolist():
        _even_out(owner, totals, loads, apart <= reach, 0.0 if reach == INSIDE else enough)
    return RoutingTable(table.version + 1, instances, tuple(owner.tolist()), pins)


def _even_out(
    owner: npt.NDArray[np.int64], totals: Floats, loads: Floats, near: npt.NDArray[np.bool_], enough: float
) -> None:
    """Move groups from the fullest to the emptiest instance near it, until that has no more than is enough."""
    can_give = np.ones(len(totals), np.bool_)
    while can_give.any():
        fullest = int(np.argmax(np.where(can_give, totals, -1.0)))
        if totals[fullest] <= enough:
            return
        emptiest = int(np.argmin(np.where(near[fullest], totals, np.inf)))
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
