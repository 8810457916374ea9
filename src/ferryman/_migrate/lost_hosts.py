"""What a lost host makes a coordinator do: which groups are gone, whether the stream waits for them, what is lent.

Pure. Where little was lost, the tasks of the next epoch bring it back before they do anything else. Where that would
take long, a plan does it beside the stream: rows of what was lost wait for it, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ferryman._migrate.plan import Plan
from ferryman._migrate.planning import restored
from ferryman._model.errors import NothingMoves
from ferryman._model.routing import RoutingTable

# How fast a task restores state from the checkpoint, about, and for how long the whole stream may wait for that. A plan
# takes several epochs, and each host reads the deltas since the snapshot: for less, all are sooner there by waiting.
BYTES_PER_S = 200e6
LONG_S = 3.0


def lost_instances(were: Sequence[str], are: Mapping[int, str]) -> frozenset[int]:
    """Name the instances whose host is not there any more.

    Parameters
    ----------
    were, are
        The host of each in the newest epoch, by the name it has for itself, and the one it is to be on, by Spark's.

    Examples
    --------
    >>> sorted(lost_instances(("a", "b", "c"), {0: "a", 1: "c", 2: "c"}))
    [1]
    """
    there = set(are.values())
    lost = frozenset(instance for instance, host in enumerate(were) if host not in there)
    # Where none is there, most likely they have other names.
    return lost if len(lost) < len(were) else frozenset()


def recovery(
    table: RoutingTable, lost: Collection[int], bytes: Sequence[float], kept: Mapping[int, str] = MappingProxyType({})
) -> Plan | None:
    """Plan to bring back what lost instances had, beside the stream; None if that is not worth it.

    Parameters
    ----------
    table
        Who owns what.
    lost
        The instances.
    bytes
        About how much state each group has.
    kept
        The state hosts that still have what some of the instances had, as their hosts are only about to go.
    """
    # The group of a pinned key is somewhere else too: tasks see to it.
    workers = table.workers()
    groups = [group for group, owner in enumerate(table.owner) if owner in lost and group not in workers]
    state = [sum(bytes[group] for group in groups if table.owner[group] == instance) for instance in lost]
    if max(state, default=0.0) < LONG_S * BYTES_PER_S:
        return None
    plan = Plan.of_lost(table, restored(table, groups, [max(1.0, weight) for weight in bytes]), groups)
    return replace(plan, kept={group: kept[table.owner[group]] for group in groups if table.owner[group] in kept})


@dataclass(frozen=True)
class Lent:
    """The groups of lost instances that others have for them, until there are as many hosts again.

    Attributes
    ----------
    hosts
        How many hosts there were.
    groups
        For each group, whose it was and who has it.
    """

    hosts: int = 0
    groups: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def after(self, plan: Plan, hosts: int) -> Lent:
        """Give what is lent after a recovery that was begun when so many hosts had been there."""
        moved = {move.group: (move.source, move.target) for move in plan.moves if move.source != move.target}
        # What somebody had for another is lent by that one all the same.
        first = {group: (self.groups.get(group, pair)[0], pair[1]) for group, pair in moved.items()}
        return Lent(max(hosts, self.hosts), {**self.groups, **first})

    def given_back(self, table: RoutingTable) -> RoutingTable:
        """Give the table in which all have again what was theirs, but for what has gone elsewhere since."""
        owner = tuple(
            self.groups[group][0] if group in self.groups and self.groups[group][1] == now else now
            for group, now in enumerate(table.owner)
        )
        if owner == table.owner or max(owner) >= table.instances:
            raise NothingMoves("nothing moves: all have what was theirs.")
        return replace(table, version=table.version + 1, owner=owner)
