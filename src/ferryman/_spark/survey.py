"""What is known of a running job when somebody wants to change it: what its parts cost, weigh, and where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ferryman._log.checkpoint import Checkpoint
from ferryman._migrate.estimate import seconds_for
from ferryman._model.errors import InvalidPlan
from ferryman._model.records import RoutingTable
from ferryman._routing.heat import Heat
from ferryman._routing.planning import Load, moves
from ferryman._routing.sites import Placed, Places, Site
from ferryman._spark.change import Preview, Reconfiguration
from ferryman._spark.weight import StateWeight

# What a load can be measured in.
MEASURES = ("rows", "busy", "bytes")


class Survey:
    """Learn from the receipts of every epoch; answer when a change is planned.

    Parameters
    ----------
    groups
        How many key groups there are.
    checkpoint
        Where state can be weighed.
    sites
        The sites that are declared.
    """

    def __init__(self, groups: int, checkpoint: Checkpoint, sites: tuple[Site, ...]) -> None:
        self.heat = Heat(groups)
        self.weight = StateWeight(checkpoint, groups)
        self.places = Places((), sites)

    def count(self, receipts: Sequence[Mapping[str, Any]], table: RoutingTable) -> None:
        """Take in what the tasks of an epoch say of their load, their state and their host."""
        self.heat.count(receipts, table)
        self.weight.note(receipts)
        hosts = {one["instance"]: one["host"] for one in receipts}
        found = tuple(str(hosts[one]) for one in sorted(hosts))
        if found != self.places.hosts:
            self.places = Places(found, self.places.sites)

    def load(self, table: RoutingTable, epoch: int, by: str = "rows") -> Load:
        """Give what key groups and pinned keys cost: rows of late, time spent on them, or bytes of state."""
        if by not in MEASURES:
            raise InvalidPlan(f"by={by!r}: give one of {', '.join(MEASURES)}.")
        if by == "bytes":
            # A pinned key's state is kept with its group.
            return Load(self.weight.by_group(epoch).tolist())
        return self.heat.load(table, busy=by == "busy")

    def placed(self, table: RoutingTable, epoch: int) -> list[Placed]:
        """List the instances: where each is, and what it bears."""
        rows, busy, bytes = (self.load(table, epoch, by).of(table) for by in MEASURES)
        places, over = self.places, self.heat.epochs
        return [
            Placed(
                one,
                places.hosts[one] if one < len(places.hosts) else "",
                places.site(one).name,
                table.owner.count(one),
                rows[one] / over,
                busy[one] / over,
                int(bytes[one]),
            )
            for one in range(table.instances)
        ]

    def preview(
        self, before: RoutingTable, after: RoutingTable, epoch: int, history: Sequence[Reconfiguration], by: str
    ) -> Preview:
        """Say what it would take to get from a table to another."""
        moving = moves(before, after)
        weight = self.weight.by_group(epoch)
        state = {move.group for move in moving if not move.key or move.pins}
        between = int(sum(weight[group] for group in self._travelling(before, after)))
        took = [one.took for one in history if one.took is not None]

        def fullest(table: RoutingTable) -> float:
            load = Load(weight.tolist()) if by == "bytes" else self.load(table, epoch, by)
            load = load if sum(load.groups) + sum(load.keys.values()) else Load([1.0] * len(load.groups))
            bears = load.of(table)
            return float(bears.max() / bears.sum())

        return Preview(
            (before.instances, after.instances),
            moving,
            int(sum(weight[group] for group in state)),
            (fullest(before), fullest(after)),
            between,
            seconds_for(between, took),
            by,
        )

    def _travelling(self, before: RoutingTable, after: RoutingTable) -> list[int]:
        """List the key groups that come to another host."""
        were, will = self.places.hosts, self.places.with_instances(after.instances).hosts
        if not were or len(set(were)) == 1:
            return []
        had, wanted = before.workers(), after.workers()

        def hosts(known: tuple[str, ...], instances: frozenset[int]) -> set[str]:
            return {known[one] for one in instances if one < len(known)}

        return [
            group
            for group, (old, new) in enumerate(zip(before.owner, after.owner, strict=True))
            if hosts(will, wanted.get(group, frozenset({new}))) - hosts(were, had.get(group, frozenset({old})))
        ]
