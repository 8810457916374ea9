"""What a user can change on a running job, and see of it: the part of `Job` that is about reconfiguration."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from ferryman._engine.job_endpoint import TypedKeys
from ferryman._migrate.hot_keys import HotKey
from ferryman._migrate.lanes import Choice
from ferryman._migrate.load_report import InstanceLoad
from ferryman._migrate.planning import moved_to, pinned_to, rebalanced, rescaled, unpinned
from ferryman._migrate.reconfiguration import Preview, Reconfiguration
from ferryman._model.errors import InvalidPlan, NothingMoves
from ferryman._model.routing import Pin, RoutingTable
from ferryman._routing.sites import SiteMap, Target
from ferryman._spark.plan import named_keys
from ferryman._spark.plan.named_keys import Key

if TYPE_CHECKING:
    from ferryman._engine.epoch import EpochRunner
    from ferryman._migrate.coordinator import Coordinator
    from ferryman._spark.plan.planner import Planner

Groups = int | Iterable[int]


class Changing:
    """Change a running job: its number of instances, and who owns which keys."""

    name: str
    _spark: SparkSession
    _runner: EpochRunner[Coordinator[Planner]]
    _stopping: bool

    @property
    def active(self) -> bool:
        """Tell whether the job runs."""
        raise NotImplementedError

    @property
    def replicated(self) -> int | None:
        """Give the newest epoch that all standing replicas have; None if there are none, or not yet."""
        return self._runner.coordinator.standbys.epoch

    def rescale(self, instances: int, *, by: str = "rows", strategy: str = "live") -> Reconfiguration:
        """Change the number of instances while the stream flows.

        The new layout is prepared in the background; the epoch after that is the first to use it. Only as many key
        groups move as an even spread needs, and of declared sites each keeps its own if it can.

        Parameters
        ----------
        instances
            How many there are to be.
        by
            What is to be even, as for `rebalance`.
        strategy
            How state moves: "live", or one of the protocols it is compared with, see docs/reconfiguration.md.

        Examples
        --------
        >>> job.rescale(8).wait()  # doctest: +SKIP
        True
        """
        return self._request("rescale", self._to_instances(instances, by), strategy, by)

    def move(
        self,
        groups: Groups | None = None,
        to: Target | None = None,
        *,
        keys: Key | Iterable[Key] | None = None,
        operator: str | None = None,
        strategy: str = "live",
    ) -> Reconfiguration:
        """Give key groups, or single keys, to an instance, a host or a site while the stream flows.

        A key is pinned where it goes and stays there, wherever its group goes; moved to the instance that owns its
        group, it is not pinned any more.

        Parameters
        ----------
        groups
            Key groups, by number.
        to
            The number of an instance, or the name of a host or a site: what is not there already is spread over its
            instances, each to the one that has the fewest rows.
        keys
            Keys that have state: one, or a list. A tuple is a key of several columns.
        operator
            Whose keys they are; if left out, every operator's that has keys of such a type.
        strategy
            How state moves.

        Examples
        --------
        >>> job.move(keys="sensor-7", to=3).wait()  # doctest: +SKIP
        True
        """
        return self._request("move", self._to_target(groups, to, keys, operator), strategy)

    def unpin(
        self,
        keys: Key | Iterable[Key] | None = None,
        *,
        operator: str | None = None,
        strategy: str = "live",
    ) -> Reconfiguration:
        """Have keys go back to the instances that own their groups; all that are pinned if left out."""
        if keys is None:
            return self._request("unpin", lambda table, at: unpinned(table, table.pinned), strategy)
        hashes = [key.hash for key in self._find_keys(keys, operator)]
        return self._request("unpin", lambda table, at: unpinned(table, hashes), strategy)

    def rebalance(self, *, by: str = "rows", strategy: str = "live") -> Reconfiguration:
        """Even out the load of the instances while the stream flows.

        Pinned keys stay where they are, and their rows count there. Key groups stay in their site, if sites are
        declared, while the load is even enough.

        Parameters
        ----------
        by
            What is to be even: "rows" of late; "busy", the time spent on them, so that a slow host gets less; or
            "bytes" of state.
        strategy
            How state moves.
        """
        return self._request("rebalance", self._to_balance(by), strategy, by)

    def plan(
        self,
        instances: int | None = None,
        *,
        groups: Groups | None = None,
        keys: Key | Iterable[Key] | None = None,
        to: Target | None = None,
        operator: str | None = None,
        by: str = "rows",
    ) -> Preview:
        """Say what a change would take, and change nothing.

        Parameters
        ----------
        instances
            As for `rescale`.
        groups, keys, to, operator
            As for `move`. With nothing given, as for `rebalance`.
        by
            As for `rebalance`; the preview tells of this load.
        """
        some = groups is not None or keys is not None
        if some != (to is not None) or (instances is not None and some):
            raise InvalidPlan("give instances, or groups and to, or keys and to, or nothing for a rebalance.")
        if instances is not None:
            choose = self._to_instances(instances, by)
        elif some:
            choose = self._to_target(groups, to, keys, operator)
        else:
            choose = self._to_balance(by)
        return self._runner.coordinator.preview(choose, by)

    def sites(self) -> list[InstanceLoad]:
        """List the instances: on which host and site each is as of the newest epoch, and what it bears."""
        coordinator = self._runner.coordinator
        return coordinator.report.instances(coordinator.table)

    def abort(self) -> None:
        """Give up the reconfiguration under way, if one is; what is committed stays."""
        self._runner.coordinator.abort("asked to")

    def history(self) -> list[Reconfiguration]:
        """List the reconfigurations of this run, oldest first; the last 1000 at the most."""
        return self._runner.coordinator.history()

    @property
    def instances(self) -> int:
        """Give the number of instances of the newest committed epoch."""
        return self._runner.coordinator.table.instances

    def pins(self) -> list[Pin]:
        """List the keys that are pinned to an instance as of the newest committed epoch."""
        return list(self._runner.coordinator.table.pins)

    def hot_keys(self) -> list[HotKey]:
        """List the keys that have so many rows of late that they decide how full their instance is; hottest first."""
        return self._runner.coordinator.hot_keys()

    def group_of(self, key: Key, operator: str | None = None) -> int:
        """Give the key group of a key."""
        groups = {self._runner.coordinator.table.group(named.hash) for named in self._find_keys([key], operator)}
        if len(groups) > 1:
            raise InvalidPlan(f"key {key!r} fits keys of several types, in several key groups. Say operator=...")
        return groups.pop()

    def _find_keys(self, keys: Key | Iterable[Key], operator: str | None) -> list[named_keys.NamedKey]:
        some = keys.keys if isinstance(keys, TypedKeys) else named_keys.listed(keys)
        nodes = self._runner.coordinator.layout.nodes
        return named_keys.find(self._spark, nodes, some, operator, as_text=isinstance(keys, TypedKeys))

    def _to_instances(self, instances: int, by: str) -> Choice:
        if not isinstance(instances, int) or isinstance(instances, bool):
            raise InvalidPlan(f"instances={instances!r}: give a whole number.")
        coordinator = self._runner.coordinator
        # Where they are going to be is not known before they are there, but can be guessed.
        return lambda table, at: rescaled(
            # A number that cannot be is refused there, and must not be laid out before that.
            table,
            instances,
            coordinator.report.load(table, by),
            at.with_instances(min(max(1, instances), len(table.owner))),
        )

    def _to_balance(self, by: str) -> Choice:
        def choose(table: RoutingTable, at: SiteMap) -> RoutingTable:
            after = rebalanced(table, self._runner.coordinator.report.load(table, by), at)
            if after is table:
                raise NothingMoves("nothing moves: the load of the instances is even already.")
            return after

        return choose

    def _to_target(
        self, groups: Groups | None, to: Target | None, keys: Key | Iterable[Key] | None, operator: str | None
    ) -> Choice:
        if to is None or (groups is None) == (keys is None):
            raise InvalidPlan("give groups or keys, and the instance they go to: job.move(keys=[...], to=3).")
        coordinator = self._runner.coordinator
        if groups is not None:
            some = _numbers(groups)
            return lambda table, at: moved_to(table, some, to, coordinator.report.load(table), at)
        found = self._find_keys(keys, operator)
        known = {*coordinator.load_history.shown, *coordinator.table.pinned}
        found = named_keys.with_state(
            found, known, coordinator.layout.nodes, self._runner.checkpoint, self._runner.newest.epoch
        )
        shown = {key.hash: key.shown for key in found}
        return lambda table, at: pinned_to(table, shown, to, coordinator.report.load(table), at)

    def _request(self, kind: str, choose: Choice, strategy: str, by: str = "rows") -> Reconfiguration:
        if self._stopping or not self.active:
            raise InvalidPlan(f"job {self.name!r} is stopping, so nothing can be moved. Start it again first.")
        return self._runner.coordinator.request(kind, choose, strategy, by)


def _numbers(groups: Any) -> list[int]:
    some = list(groups) if isinstance(groups, Iterable) and not isinstance(groups, str) else [groups]
    for group in some:
        if isinstance(group, bool) or not isinstance(group, Integral):
            raise InvalidPlan(f"groups={groups!r}: key groups are whole numbers: job.move([3, 4], to=1).")
    return [int(group) for group in some]
