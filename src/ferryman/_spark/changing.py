"""What a user can change on a running job, and see of it: the part of `Job` that is about reconfiguration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from ferryman._model.errors import InvalidPlan
from ferryman._model.records import Pin, RoutingTable
from ferryman._routing.heat import HotKey
from ferryman._routing.planning import Load, moved, pinned, rebalanced, rescaled, unpinned
from ferryman._spark import named_keys
from ferryman._spark.change import Preview, Reconfiguration
from ferryman._spark.named_keys import Key

if TYPE_CHECKING:
    from ferryman._spark.epoch import EpochRunner

_Choice = Callable[[RoutingTable, Load], RoutingTable]
Groups = int | Iterable[int]


class Changing:
    """Change a running job: its number of instances, and who owns which keys."""

    name: str
    _spark: SparkSession
    _runner: EpochRunner
    _stopping: bool

    @property
    def active(self) -> bool:
        """Tell whether the job runs."""
        raise NotImplementedError

    @property
    def replicated(self) -> int | None:
        """Give the newest epoch that all standing replicas have; None if there are none, or not yet."""
        return self._runner.changes.replicas.epoch

    def rescale(self, instances: int, *, strategy: str = "live") -> Reconfiguration:
        """Change the number of instances while the stream flows.

        The new layout is prepared in the background; the epoch after that is the first to use it. Only as many key
        groups move as an even spread needs, by the rows that each had of late.

        Parameters
        ----------
        instances
            How many there are to be.
        strategy
            How state moves: "live", or one of the protocols it is compared with, see docs/reconfiguration.md.

        Examples
        --------
        >>> job.rescale(8).wait()  # doctest: +SKIP
        True
        """
        return self._request("rescale", _to_instances(instances), strategy)

    def move(
        self,
        groups: Groups | None = None,
        to: int | None = None,
        *,
        keys: Key | Iterable[Key] | None = None,
        operator: str | None = None,
        strategy: str = "live",
    ) -> Reconfiguration:
        """Give key groups, or single keys, to an instance while the stream flows.

        A key is pinned where it goes and stays there, wherever its group goes; moved to the instance that owns its
        group, it is not pinned any more.

        Parameters
        ----------
        groups
            Key groups, by number.
        to
            The instance.
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
        return self._request("move", self._to_instance(groups, to, keys, operator), strategy)

    def unpin(
        self,
        keys: Key | Iterable[Key] | None = None,
        *,
        operator: str | None = None,
        strategy: str = "live",
    ) -> Reconfiguration:
        """Have keys go back to the instances that own their groups; all that are pinned if left out."""
        if keys is None:
            return self._request("unpin", lambda table, load: unpinned(table, table.pinned), strategy)
        hashes = [one.hash for one in self._find_keys(keys, operator)]
        return self._request("unpin", lambda table, load: unpinned(table, hashes), strategy)

    def rebalance(self, *, strategy: str = "live") -> Reconfiguration:
        """Even out the load of the instances while the stream flows, by the rows that each key group had of late.

        Pinned keys stay where they are, and their rows count there.
        """
        return self._request("rebalance", _to_balance, strategy)

    def plan(
        self,
        instances: int | None = None,
        *,
        groups: Groups | None = None,
        keys: Key | Iterable[Key] | None = None,
        to: int | None = None,
        operator: str | None = None,
    ) -> Preview:
        """Say what a change would take, and change nothing.

        Parameters
        ----------
        instances
            As for `rescale`.
        groups, keys, to, operator
            As for `move`. With nothing given, as for `rebalance`.
        """
        some = groups is not None or keys is not None
        if some != (to is not None) or (instances is not None and some):
            raise InvalidPlan("give instances, or groups and to, or keys and to, or nothing for a rebalance.")
        choose: _Choice = _to_balance
        if instances is not None:
            choose = _to_instances(instances)
        elif some:
            choose = self._to_instance(groups, to, keys, operator)
        changes = self._runner.changes
        return changes.preview(choose(changes.table, changes.load))

    def abort(self) -> None:
        """Give up the reconfiguration under way, if one is; what is committed stays."""
        self._runner.changes.abort("asked to")

    def history(self) -> list[Reconfiguration]:
        """List the reconfigurations of this run, oldest first."""
        return self._runner.changes.history()

    @property
    def instances(self) -> int:
        """Give the number of instances of the newest committed epoch."""
        return self._runner.changes.table.instances

    def pins(self) -> list[Pin]:
        """List the keys that are pinned to an instance as of the newest committed epoch."""
        return list(self._runner.changes.table.pins)

    def hot_keys(self) -> list[HotKey]:
        """List the keys that have so many rows of late that they decide how full their instance is; hottest first."""
        changes = self._runner.changes
        return changes.heat.hot_keys(changes.table)

    def group_of(self, key: Key, operator: str | None = None) -> int:
        """Give the key group of a key."""
        groups = {self._runner.changes.table.group(one.hash) for one in self._find_keys([key], operator)}
        if len(groups) > 1:
            raise InvalidPlan(f"key {key!r} fits keys of several types, in several key groups. Say operator=...")
        return groups.pop()

    def _find_keys(self, keys: Key | Iterable[Key], operator: str | None) -> list[named_keys.NamedKey]:
        some = keys.keys if isinstance(keys, TypedKeys) else named_keys.listed(keys)
        nodes = self._runner.changes.planner.nodes
        return named_keys.find(self._spark, nodes, some, operator, as_text=isinstance(keys, TypedKeys))

    def _to_instance(
        self, groups: Groups | None, to: int | None, keys: Key | Iterable[Key] | None, operator: str | None
    ) -> _Choice:
        if to is None or (groups is None) == (keys is None):
            raise InvalidPlan("give groups or keys, and the instance they go to: job.move(keys=[...], to=3).")
        if groups is not None:
            chosen = {int(one): int(to) for one in ([groups] if isinstance(groups, int) else groups)}
            return lambda table, load: moved(table, chosen)
        changes = self._runner.changes
        found = self._find_keys(keys, operator)
        known = {*changes.heat.shown(), *changes.table.pinned}
        found = named_keys.with_state(
            found, known, changes.planner.nodes, self._runner.checkpoint, self._runner.next - 1
        )
        return lambda table, load: pinned(table, {one.hash: one.shown for one in found}, int(to))

    def _request(self, kind: str, choose: _Choice, strategy: str) -> Reconfiguration:
        if self._stopping or not self.active:
            raise InvalidPlan(f"job {self.name!r} is stopping, so nothing can be moved. Start it again first.")
        return self._runner.changes.request(kind, choose, strategy)


class TypedKeys:
    """Keys as somebody typed them into a shell: text, of whatever type the operators' keys are."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys


def _to_instances(instances: int) -> _Choice:
    if not isinstance(instances, int) or isinstance(instances, bool):
        raise InvalidPlan(f"instances={instances!r}: give a whole number.")
    return lambda table, load: rescaled(table, instances, load)


def _to_balance(table: RoutingTable, load: Load) -> RoutingTable:
    after = rebalanced(table, load)
    if after is table:
        raise InvalidPlan("nothing moves: the load of the instances is even already.")
    return after
