"""Carry a plan out on a running job: prepare the next layout in the background, switch between two epochs.

Runs the pure machine of `_migrate`: the epochs ask it for their layout and tell it how they ended; one thread per plan
does what it says is to be done. Calls `_migrate`, `_routing` and `plan`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ferryman._log.checkpoint import Checkpoint
from ferryman._migrate.freight import Freight, busy_s
from ferryman._migrate.machine import Migration, Phase, Plan
from ferryman._migrate.pace import Rhythm
from ferryman._migrate.strategies import STRATEGIES, steps_of, strategy
from ferryman._model.errors import InvalidPlan, PeerFailed, PlanUnderWay
from ferryman._model.records import Manifest, RoutingTable
from ferryman._routing.planning import Load, moves, relabelled, rescaled
from ferryman._routing.sites import Places, Site
from ferryman._spark.carry import Carrier
from ferryman._spark.change import Choice, Preview, Reconfiguration
from ferryman._spark.plan import Planner
from ferryman._spark.replicas import Replicas
from ferryman._spark.state_hosts import PATIENCE_S, Errand, StateHosts
from ferryman._spark.survey import Survey
from ferryman._spark.travel import Travel, along_of, travel_of
from ferryman._testing.faults import reach

log = logging.getLogger("ferryman")

# After so many epochs the state hosts are started, so that the first change of a job is like any other.
_SETTLED = 10
# How often the anchor of the layout to come is made at the most, to have its instances spread over the hosts.
_MOST_ANCHORS = 5


class Reconfigurer:
    """Give every epoch its layout; take plans, one at a time.

    Parameters
    ----------
    planner
        The layout the job starts with.
    checkpoint
        Where state can be weighed.
    run_id, home
        The run of the job, and where its hosts keep their homes.
    latest
        The manifest of the newest committed epoch.
    isolate
        Whether hot keys are isolated, and put back when they have cooled.
    tls
        The directory of certificates on every host, if lines between state hosts are to be encrypted.
    replicas
        How many other hosts have what a host has.
    sites
        The sites that key groups prefer to stay in.
    """

    def __init__(
        self,
        planner: Planner,
        checkpoint: Checkpoint,
        run_id: str,
        home: str | None,
        latest: Manifest | None,
        *,
        isolate: bool = False,
        tls: str | None = None,
        replicas: int = 0,
        sites: tuple[Site, ...] = (),
    ) -> None:
        self.planner = planner
        # Called when an epoch is wanted, data or not.
        self.wake: Callable[[], None] = lambda: None
        self.hosts = StateHosts(checkpoint.directory.address, run_id, home, tls)
        self._epoch = latest.epoch if latest else 0
        self._freight = Freight()
        self._freight.note(latest)
        self._changed = threading.Condition()
        self._current: Reconfiguration | None = None
        self._next: dict[int, Planner] = {}
        # The groups whose rows waited in the epoch under way, or in the last one.
        self._held: frozenset[int] = frozenset()
        self._history: list[Reconfiguration] = []
        self._isolate = isolate
        self.survey = Survey(len(planner.routing.owner), checkpoint, sites)
        self.heat, self._weight = self.survey.heat, self.survey.weight
        self._closed = ""
        self._worker: threading.Thread | None = None
        self._rhythm = Rhythm()
        self._carrier = Carrier(
            self.hosts,
            self._rhythm,
            self._freight,
            self.heat,
            self._changed,
            lambda: self._epoch,
            self._errand,
            self._step,
        )
        self.replicas = Replicas(self.hosts, self._errand, self._await_quiet_epoch, lambda: self._busy)
        self.replicas.keep(replicas if planner.pinned else 0)

    # -- for epochs --------------------------------------------------------------------------------

    def begin(self, redone: frozenset[int] | None = None) -> tuple[Planner, frozenset[int]]:
        """Give the layout of the epoch that begins now, and the groups whose rows are to wait in it.

        Parameters
        ----------
        redone
            The groups whose rows waited in it when it was begun before, by a driver that died; None if it was not.
        """
        with self._changed:
            current = self._current
            self._changed.wait_for(lambda: current is None or self._closed or not current._machine.stopped)
            self._rhythm.begin(time.monotonic())
            planner, self._held = self.planner, frozenset()
            if current is not None and not current.over and not self._closed:
                current._machine = current._machine.on_begin()
                self._changed.notify_all()
                assert current._machine.running is not None, "it has just begun"
                if current._machine.running.table != current._machine.table:
                    reach("plan-switch")
                planner = self._planner_for(current._machine.running.table)
                self._held = current._machine.running.held
            if redone is not None:
                # Its sinks may have seen it, without the rows that waited.
                self._held = redone
            return planner, self._held

    def ended(self, planner: Planner, latest: Manifest | None, *, committed: bool) -> None:
        """Learn how the epoch ended that was run with a layout, and which is the newest committed one."""
        with self._changed:
            epoch = self._epoch = latest.epoch if latest else 0
            self._freight.note(latest)
            switched = committed and planner is not self.planner
            if switched:
                self.planner.release(but_for=planner)
                self.planner = planner
            current = self._current
            if current is not None and current._machine.running is not None:
                if switched:
                    current.switched_epoch = epoch
                self._step(current, current._machine.on_ended(committed=committed))
            self._rhythm.end(time.monotonic())
            self._changed.notify_all()
        if self._rhythm.epochs == _SETTLED and planner.pinned:
            self.hosts.start(lambda: self.planner)

    def relay(self, instances: int) -> None:
        """Go on with another number of instances from the next epoch on, as a start does: nothing is in place yet.

        Whoever has asked for a change meanwhile has asked later, and gets what that asked for.
        """
        with self._changed:
            if instances != self.planner.routing.instances and self._current is None:
                planner = self.planner.rerouted(rescaled(self.planner.routing, instances))
                self.planner.release(but_for=planner)
                self.planner = planner

    def count(self, receipts: Sequence[Mapping[str, Any]]) -> None:
        """Take in what the tasks of an epoch say of their load, by key group and heavy key."""
        self.survey.count(receipts, self.table)
        self._freight.count(receipts)
        self._rhythm.worked(busy_s(receipts))
        current = self._current
        if self._isolate and (current is None or current.over) and not self._closed:
            table = self.table
            wish = self.heat.wish(table, self.survey.places)
            if wish is not None:
                # Weighing a plan reads the checkpoint, which no epoch should wait for.
                wanted = (*wish, table)
                threading.Thread(target=self._fulfil, args=wanted, name="ferryman-hot-keys", daemon=True).start()

    @property
    def holding(self) -> bool:
        """Tell whether groups are to wait in the next epoch."""
        current = self._current
        return current is not None and not current.over and not self._closed and bool(current._machine.layout().held)

    @property
    def epoch_wanted_s(self) -> float | None:
        """Give in how many seconds there should be an epoch, data or not; None if nothing waits for one."""
        # Without the lock: who holds it may be waking the one who asks.
        current = self._current
        if current is None or current.over or self._closed:
            # What was due in groups that waited nobody has looked at.
            return 0.0 if self._freight.waiting or self._held else None
        machine = current._machine
        if self._freight.waiting - machine.layout().held:
            return self._carrier.wait_s()
        if machine.phase is not Phase.SWITCH:
            return None
        # Where no row waits for the switch it can wait for rows: an epoch without them would be in their way.
        return self._rhythm.overdue_s(time.monotonic()) if machine.plan.strategy.waits == "nothing" else 0.0

    # -- for users ---------------------------------------------------------------------------------

    @property
    def table(self) -> RoutingTable:
        """Give the routing table of the newest committed epoch."""
        return self.planner.routing

    @property
    def load(self) -> Load:
        """Give the rows of late of every key group and pinned key."""
        return self.heat.load(self.table)

    def preview(self, choose: Choice, by: str = "rows") -> Preview:
        """Say what it would take to do what is chosen."""
        before = self.table
        return self.survey.preview(before, choose(before, self.survey.places), self._epoch, self.history(), by)

    def load_by(self, by: str) -> Load:
        """Give what every key group and pinned key costs, by one of the measures."""
        return self.survey.load(self.table, self._epoch, by)

    def request(self, kind: str, choose: Choice, how: str, by: str = "rows") -> Reconfiguration:
        """Begin a plan.

        Parameters
        ----------
        kind
            What it is called in the history.
        choose
            Gives the table to get to, from the one there is and where instances are.
        how
            The name of a strategy.
        by
            What load is measured in.
        """
        chosen = strategy(how)
        while True:
            before = self.table
            after = choose(before, self.survey.places)
            if chosen.waits == "moving" and before.instances == after.instances and before.pins != after.pins:
                may = ", ".join(name for name, one in STRATEGIES.items() if one.waits != "moving")
                raise InvalidPlan(
                    f"strategy={how!r} moves whole key groups, as rows wait by group. Move single keys with one of "
                    f"{may}."
                )
            # Weighing reads the checkpoint, so it is done before the lock is taken that epochs wait for.
            preview = self.survey.preview(before, after, self._epoch, self.history(), by)
            with self._changed:
                if self._closed:
                    raise InvalidPlan(f"{self._closed}, so nothing can be moved. Start the job again first.")
                if self._current is not None and not self._current.over:
                    raise PlanUnderWay(
                        f"a {self._current.kind} is under way, in phase {self._current.phase}. Wait for it, or abort "
                        "it with job.abort()."
                    )
                if before == self.table:
                    plan = Plan(before, after, chosen, steps_of(moves(before, after), chosen))
                    return self._begin_plan(kind, choose, how, plan, preview)
            # The plan before this one ended meanwhile, and changed who owns what: choose again.

    def _begin_plan(self, kind: str, choose: Choice, how: str, plan: Plan, preview: Preview) -> Reconfiguration:
        """Begin a plan; whoever calls has the lock."""
        machine = Migration.of(plan)
        self._current = Reconfiguration(kind, preview, how, _now_ms(), machine, self._changed, self.abort, choose)
        self._history.append(self._current)
        worker = threading.Thread(
            target=self._work, args=(self._current, self._worker), name="ferryman-plan", daemon=True
        )
        worker.start()
        self._worker = worker
        return self._current

    def abort(self, reason: str) -> None:
        """Give up the plan under way, if one is."""
        with self._changed:
            if self._current is not None and not self._current.over:
                self._step(self._current, self._current._machine.on_abort(reason))

    def history(self) -> list[Reconfiguration]:
        """List the plans of this run, oldest first."""
        with self._changed:
            return list(self._history)

    def close(self, why: str) -> None:
        """End with the job."""
        with self._changed:
            self._closed = self._closed or why
            self.hosts.close(why)
            self._changed.notify_all()
            current = self._current
            if current is not None and current._machine.running is not None:
                self._step(current, current._machine.on_ended(committed=False))
            if current is not None:
                self._give_up(current, why)

    def release(self) -> None:
        """End the state hosts, with the homes they serve; after the last epoch."""
        if not self._closed:
            # A job that could not be started has never ended either.
            self.close("the job was not started")
        if self._worker is not None:
            self._worker.join(PATIENCE_S)
        self.replicas.join()
        self.hosts.end(self.planner)

    # -- inside ------------------------------------------------------------------------------------

    @property
    def _busy(self) -> bool:
        return bool(self._closed) or (self._current is not None and not self._current.over)

    def _await_quiet_epoch(self, seen: int) -> tuple[Planner, int] | None:
        """Wait for an epoch after one, while nothing is under way; None when the job has ended."""

        def quiet() -> bool:
            # What a plan has left to tidy up it knows of by the table that it began with.
            tidied = self._worker is None or not self._worker.is_alive()
            return self._epoch > seen and not self._busy and tidied

        with self._changed:
            self._changed.wait_for(lambda: self._closed or quiet())
            return None if self._closed else (self.planner, self._epoch)

    def _work(self, current: Reconfiguration, earlier: threading.Thread | None) -> None:
        """Do what the machine wants done, until nothing is left."""
        if earlier is not None:
            # What it forgets on some host may be what is to come there now.
            earlier.join()
        travel = Travel()
        try:
            travel = self._prepare(current)
            self._carrier.carry(current, travel.lanes)
        except Exception as error:
            log.warning("a plan was given up: %s", error)
            with self._changed:
                # An epoch under way may still hand over, and what it then waits for nobody copies any more.
                self._give_up(current, str(error))
                while not current.over:
                    self._changed.wait()
                    self._give_up(current, str(error))
        current.wait()
        reach("plan-release")
        self._tidy(current, travel)

    def _fulfil(self, kind: str, after: RoutingTable, of: RoutingTable) -> None:
        """Have a hot key isolated, or a cooled one put back; what cannot be now is wished for again."""

        def choose(before: RoutingTable, places: Places) -> RoutingTable:
            if before != of:
                raise PlanUnderWay("another plan came before this one and changed who owns what.")
            return replace(after, version=before.version + 1)

        try:
            self.request(kind, choose, "live")
        except (InvalidPlan, PlanUnderWay) as error:
            log.debug("hot keys stay where they are: %s", error)

    def _give_up(self, current: Reconfiguration, reason: str) -> None:
        """End a plan; what has switched already and is not there is rebuilt from the checkpoint."""
        for move in current._machine.to_copy():
            self._step(current, current._machine.on_failed(move.group, reason))
        if not current.over:
            self._step(current, current._machine.on_abort(reason))

    def _prepare(self, current: Reconfiguration) -> Travel:
        """Make the layout to come: now and not when it is needed, as on a cluster it takes Spark jobs."""
        self._carrier.await_epoch(current)
        plan = current._machine.plan
        ready = self.planner.rerouted(plan.after)
        try:
            # Where it is then, it stays: state is copied there.
            ready.settle(tries=_MOST_ANCHORS)
            before, after = self.hosts.places(self.planner, ready)
            self._freight.weigh(self._weight.by_group(self._epoch).tolist())
            reach("plan-prepare")
            if before and plan.after.instances != plan.before.instances:
                were, are = ([places[one].host for one in sorted(places)] for places in (before, after))
                table = relabelled(current.chosen(plan, were, are, self.survey.places.sites), were, are)
                ready = ready.rerouted(table)
                plan = replace(plan, after=table)
                moving = (*moves(plan.before, table), *along_of(plan, before, after))
                plan = replace(plan, steps=steps_of(moving, plan.strategy))
        except BaseException:
            ready.release(but_for=self.planner)
            raise
        with self._changed:
            if current.over:
                ready.release(but_for=self.planner)
                return Travel()
            self._next[plan.after.instances] = ready
            self._step(current, replace(current._machine, plan=plan).on_prepared())
        return travel_of(plan, before, after)

    def _tidy(self, current: Reconfiguration, travel: Travel) -> None:
        """Forget what is of no use any more: the old mains of what has moved, the new ones of what has not."""
        done = current._machine.phase is Phase.DONE
        released = {move.group for move in current._machine.to_release()}
        # Pins change with the last step, so what has pinned keys is still needed where it was.
        released -= set(current._machine.plan.before.workers())
        useless = [
            (location, [one for one in groups if done or one in released]) for location, groups in travel.left.items()
        ]
        if not done:
            useless += [(lane.target, [one for one in lane.groups if one not in released]) for lane in travel.lanes]
        if not any(groups for _, groups in useless):
            return
        failed = False
        needed = self.replicas.needed(self.planner)
        for location, listed in useless:
            groups = [one for one in listed if one not in needed.get(location, ())]
            try:
                if groups:
                    self.hosts.drop(location, self._errand(tuple(groups)))
            except PeerFailed:
                # One that is gone has forgotten already.
                failed = True
        if failed and not self._closed:
            # One that stalls may hold locks that tasks wait for; who is sent to look for it ends it.
            with contextlib.suppress(Exception):
                self.hosts.places(self.planner)

    def _errand(self, groups: tuple[int, ...]) -> Errand:
        specs = (node.stream.spec for node in self.planner.nodes.values())
        return Errand({table.name: table.backend for spec in specs for table in spec.kept}, groups)

    def _planner_for(self, table: RoutingTable) -> Planner:
        if table == self.planner.routing:
            return self.planner
        ready = self._next.get(table.instances)
        if ready is None or ready.routing != table:
            ready = (ready or self.planner).rerouted(table)
            self._next[table.instances] = ready
        return ready

    def _step(self, current: Reconfiguration, machine: Migration) -> None:
        before, current._machine = current._machine, machine
        current.since_ms.setdefault(machine.phase.value, _now_ms())
        if machine.over and not before.over:
            current.ended_ms = _now_ms()
            for planner in self._next.values():
                planner.release(but_for=self.planner)
            self._next = {}
        self._changed.notify_all()
        self.wake()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
