"""What is told of a running job when somebody looks at it or wants to change it: a view of its load of late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ferryman._log.fold.group_bytes import Floats, StateWeight
from ferryman._migrate.load_history import LoadHistory
from ferryman._migrate.placement import Load
from ferryman._migrate.planning import moves
from ferryman._migrate.reconfiguration import Preview
from ferryman._migrate.time_estimate import Took, seconds_for
from ferryman._model.errors import InvalidPlan
from ferryman._model.routing import RoutingTable
from ferryman._routing.sites import Site, SiteMap

# What a load can be measured in.
MEASURES = ("rows", "busy", "bytes")


@dataclass(frozen=True, kw_only=True)
class InstanceLoad:
    """An instance, where it is, and what it bears.

    Attributes
    ----------
    instance
        Its number.
    host
        The host it is on, as Spark knows it.
    site
        The site that has this host; empty if none does.
    groups
        How many key groups it owns.
    rows, busy_ms
        How many rows it gets in an epoch of late, and how long it works on them.
    bytes
        About how much state its key groups have.
    """

    instance: int
    host: str
    site: str
    groups: int
    rows: float
    busy_ms: float
    bytes: int


class LoadReport:
    """Tell what a job's parts cost and weigh, where they are, and what a change would take.

    Parameters
    ----------
    history
        The load of late.
    weight
        Weighs state, which takes looking into the checkpoint.
    sites
        The sites that are declared.
    """

    def __init__(self, history: LoadHistory, weight: StateWeight, sites: tuple[Site, ...] = ()) -> None:
        self._history = history
        self._weight = weight
        self._sites = sites

    @property
    def site_map(self) -> SiteMap:
        """Give where the instances are as of the newest epoch."""
        return SiteMap(self._history.hosts, self._sites)

    def bytes(self) -> Floats:
        """Give about how many bytes of state each key group has, uncompressed."""
        return self._weight.by_group(self._history.epoch, self._history.grown)

    def load(self, table: RoutingTable, by: str = "rows") -> Load:
        """Give what key groups and pinned keys cost: rows of late, time spent on them, or bytes of state."""
        if by not in MEASURES:
            raise InvalidPlan(f"by={by!r}: give one of {', '.join(MEASURES)}.")
        if by == "bytes":
            # A pinned key's state is kept with its group.
            return Load(self.bytes().tolist())
        return self._history.load(table, busy=by == "busy")

    def instances(self, table: RoutingTable) -> list[InstanceLoad]:
        """List the instances: where each is, and what it bears."""
        rows, busy, bytes = (self.load(table, by).of(table) for by in MEASURES)
        at, over = self.site_map, self._history.epochs
        return [
            InstanceLoad(
                instance=instance,
                host=at.hosts[instance] if instance < len(at.hosts) else "",
                site=at.site(instance).name,
                groups=table.owner.count(instance),
                rows=rows[instance] / over,
                busy_ms=busy[instance] / over,
                bytes=int(bytes[instance]),
            )
            for instance in range(table.instances)
        ]

    def preview(self, before: RoutingTable, after: RoutingTable, earlier: Sequence[Took], by: str) -> Preview:
        """Say what it would take to get from a table to another, going by what earlier changes took."""
        moving = moves(before, after)
        weight = self.bytes()
        state = {move.group for move in moving if not move.key or move.pins}
        between = int(sum(weight[group] for group in self._travelling(before, after)))

        def fullest(table: RoutingTable) -> float:
            load = Load(weight.tolist()) if by == "bytes" else self.load(table, by)
            load = load if sum(load.groups) + sum(load.keys.values()) else Load([1.0] * len(load.groups))
            bears = load.of(table)
            return float(bears.max() / bears.sum())

        return Preview(
            instances=(before.instances, after.instances),
            moves=moving,
            bytes=int(sum(weight[group] for group in state)),
            load=(fullest(before), fullest(after)),
            between=between,
            seconds=seconds_for(between, earlier),
            by=by,
        )

    def _travelling(self, before: RoutingTable, after: RoutingTable) -> list[int]:
        """List the key groups that come to another host."""
        at = self.site_map
        were, will = at.hosts, at.with_instances(after.instances).hosts
        if not were or len(set(were)) == 1:
            return []
        had, wanted = before.workers(), after.workers()

        def hosts(known: tuple[str, ...], instances: frozenset[int]) -> set[str]:
            return {known[instance] for instance in instances if instance < len(known)}

        return [
            group
            for group, (old, new) in enumerate(zip(before.owner, after.owner, strict=True))
            if hosts(will, wanted.get(group, frozenset({new}))) - hosts(were, had.get(group, frozenset({old})))
        ]
