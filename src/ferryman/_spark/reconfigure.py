"""Carry a plan out on a running job: prepare the next layout in the background, switch between two epochs.

Runs the pure machine of `_migrate`: the epochs ask it for their layout and tell it how they ended; one thread per plan
does what it says is to be done. Calls `_migrate`, `_routing` and `plan`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ferryman._log.checkpoint import Checkpoint
from ferryman._migrate.machine import Migration, Phase, Plan
from ferryman._migrate.orders import ORDERS, Cargo
from ferryman._migrate.pace import LEAST, MOST, Rhythm
from ferryman._migrate.strategies import STRATEGIES, steps_of, strategy
from ferryman._model.errors import InvalidPlan, PeerFailed, PlanUnderWay
from ferryman._model.records import Manifest, RoutingTable
from ferryman._routing.heat import Heat
from ferryman._routing.planning import Load, moves, relabelled
from ferryman._spark.change import Preview, Reconfiguration
from ferryman._spark.plan import Planner
from ferryman._spark.state_hosts import PATIENCE_S, Errand, StateHosts
from ferryman._spark.travel import Lane, Travel, travel_of
from ferryman._spark.weight import StateWeight
from ferryman._testing.faults import reach

log = logging.getLogger("ferryman")

# How long to wait for an epoch to end, where there is time between two.
_LONGEST_PAUSE_S = 5.0
# After so many epochs the state hosts are started, so that the first change of a job is like any other.
_SETTLED = 10
# What a lane and an instance are taken to do in a second, where an order wants to know which takes longer.
_BYTES_PER_S = 200e6
_ROWS_PER_S = 200e3
# How often the anchor of the layout to come is made at the most, to have its instances spread over the hosts.
_MOST_ANCHORS = 5
# How often a target may catch up before it is as near as it can come.
_MOST_ROUNDS = 10


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
    ) -> None:
        self.planner = planner
        # Called when an epoch is wanted, data or not.
        self.wake: Callable[[], None] = lambda: None
        self._checkpoint = checkpoint
        self.hosts = StateHosts(checkpoint.directory.uri, run_id, home, tls)
        self._epoch = latest.epoch if latest else 0
        self._waiting = waiting_groups(latest)
        self._changed = threading.Condition()
        self._current: Reconfiguration | None = None
        self._next: dict[int, Planner] = {}
        self._history: list[Reconfiguration] = []
        self._isolate = isolate
        self.heat = Heat(len(planner.routing.owner))
        self._closed = ""
        self._worker: threading.Thread | None = None
        self._rhythm = Rhythm()
        self._weight = StateWeight(checkpoint)

    # -- for epochs --------------------------------------------------------------------------------

    def begin(self) -> tuple[Planner, frozenset[int]]:
        """Give the layout of the epoch that begins now, and the groups whose rows are to wait in it."""
        with self._changed:
            current = self._current
            self._changed.wait_for(lambda: current is None or self._closed or not current._machine.stopped)
            self._rhythm.begin(time.monotonic())
            if current is None or current.over or self._closed:
                return self.planner, frozenset()
            current._machine = current._machine.on_begin()
            self._changed.notify_all()
            assert current._machine.running is not None, "it has just begun"
            if current._machine.running.table != current._machine.table:
                reach("plan-switch")
            return self._planner_for(current._machine.running.table), current._machine.running.held

    def ended(self, planner: Planner, latest: Manifest | None, *, committed: bool) -> None:
        """Learn how the epoch ended that was run with a layout, and which is the newest committed one."""
        with self._changed:
            epoch = self._epoch = latest.epoch if latest else 0
            self._waiting = waiting_groups(latest)
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
            if latest is not None:
                self._weight.note(latest)
            self._changed.notify_all()
        if self._rhythm.epochs == _SETTLED and planner.pinned:
            self.hosts.start(lambda: self.planner)

    def count(self, receipts: Sequence[Mapping[str, Any]]) -> None:
        """Take the rows of an epoch's tasks, by key group and heavy key, into the load."""
        self.heat.count(receipts, self.table)
        current = self._current
        if self._isolate and (current is None or current.over) and not self._closed:
            table = self.table
            wish = self.heat.wish(table)
            if wish is not None:
                # Weighing a plan reads the checkpoint, which no epoch should wait for.
                wanted = (*wish, table)
                threading.Thread(target=self._fulfil, args=wanted, name="ferryman-hot-keys", daemon=True).start()

    @property
    def epoch_wanted_s(self) -> float | None:
        """Give in how many seconds there should be an epoch, data or not; None if nothing waits for one."""
        # Without the lock: who holds it may be waking the one who asks.
        current = self._current
        if current is None or current.over or self._closed:
            return 0.0 if self._waiting else None
        machine = current._machine
        if self._waiting - machine.layout().held:
            return 0.0
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

    def preview(self, after: RoutingTable) -> Preview:
        """Say what it would take to get to a table."""
        before = self.table
        moving = moves(before, after)
        groups = {move.group for move in moving if not move.key or move.pins}
        bytes = self._weight.bytes(self._epoch) * len(groups) // max(1, len(before.owner))

        def fullest(table: RoutingTable) -> float:
            load = self.heat.load(table)
            load = load if sum(load.groups) + sum(load.keys.values()) else Load([1.0] * len(load.groups))
            bears = load.of(table)
            return float(bears.max() / bears.sum())

        return Preview((before.instances, after.instances), moving, bytes, (fullest(before), fullest(after)))

    def request(self, kind: str, choose: Callable[[RoutingTable, Load], RoutingTable], how: str) -> Reconfiguration:
        """Begin a plan.

        Parameters
        ----------
        kind
            What it is called in the history.
        choose
            Gives the table to get to, from the one there is and the load.
        how
            The name of a strategy.
        """
        chosen = strategy(how)
        before = self.table
        after = choose(before, self.load)
        if chosen.waits == "moving" and before.instances == after.instances and before.pins != after.pins:
            may = ", ".join(name for name, one in STRATEGIES.items() if one.waits != "moving")
            raise InvalidPlan(
                f"strategy={how!r} moves whole key groups, as rows wait by group. Move single keys with one of {may}."
            )
        # Weighing reads the checkpoint, so it is done before the lock is taken that epochs wait for.
        preview = self.preview(after)
        with self._changed:
            if self._closed:
                raise InvalidPlan(f"{self._closed}, so nothing can be moved. Start the job again first.")
            if self._current is not None and not self._current.over:
                raise PlanUnderWay(
                    f"a {self._current.kind} is under way, in phase {self._current.phase}. Wait for it, or abort it "
                    "with job.abort()."
                )
            if before != self.table:
                raise PlanUnderWay("another plan came before this one and changed who owns what. Ask again.")
            plan = Plan(before, after, chosen, steps_of(moves(before, after), chosen))
            machine = Migration.of(plan)
            self._current = Reconfiguration(kind, preview, how, _now_ms(), machine, self._changed, self.abort)
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
        if self._worker is not None:
            self._worker.join(PATIENCE_S)
        self.hosts.end(self.planner)

    # -- inside ------------------------------------------------------------------------------------

    def _work(self, current: Reconfiguration, earlier: threading.Thread | None) -> None:
        """Do what the machine wants done, until nothing is left."""
        if earlier is not None:
            # What it forgets on some host may be what is to come there now.
            earlier.join()
        travel = Travel()
        try:
            travel = self._prepare(current)
            if current._machine.plan.strategy.waits == "moving":
                self._copy_in_turn(current, travel.lanes)
            else:
                self._copy(current, travel.lanes)
        except Exception as error:
            log.warning("a plan was given up: %s", error)
            with self._changed:
                self._give_up(current, str(error))
        current.wait()
        reach("plan-release")
        self._tidy(current, travel)

    def _fulfil(self, kind: str, after: RoutingTable, of: RoutingTable) -> None:
        """Have a hot key isolated, or a cooled one put back; what cannot be now is wished for again."""

        def choose(before: RoutingTable, load: Load) -> RoutingTable:
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

    def _copy_in_turn(self, current: Reconfiguration, lanes: Sequence[Lane]) -> None:
        """Copy what the machine wants copied, and say of each group at once that it is there: its rows wait for it."""
        # A group may have to come to several hosts, where keys of it are pinned.
        awaited = Counter(group for lane in lanes for group in lane.groups)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: current.over or current._machine.to_copy())
                wanted = [move.group for move in current._machine.to_copy()]
                for group in wanted:
                    if not awaited[group]:
                        self._step(current, current._machine.on_arrived(group))
            if current.over:
                return
            by_lane: dict[Lane, list[int]] = {}
            for one in ORDERS[current._machine.plan.strategy.order](self._cargo(wanted)):
                for lane in lanes:
                    if one.group in lane.groups:
                        by_lane.setdefault(lane, []).append(one.group)
            with ThreadPoolExecutor(max(1, len(by_lane)), thread_name_prefix="ferryman-copy") as threads:
                for done in [
                    threads.submit(self._hand_over, current, lane, by_lane[lane], awaited) for lane in by_lane
                ]:
                    done.result()

    def _hand_over(self, current: Reconfiguration, lane: Lane, groups: list[int], awaited: Counter[int]) -> None:
        """Have a target take groups in an order; one whose target fails is left to the checkpoint, or to an abort."""
        asked = [groups] if current.strategy != "fetch" else [[group] for group in groups]
        left = set(groups)
        try:
            for some in asked:
                for arrived in self._bring(lane.target, tuple(some), lane.source):
                    with self._changed:
                        current.moved_bytes += arrived["bytes"]
                        left.discard(arrived["group"])
                        reach("plan-copy" if left else "plan-catch-up")
                        awaited[arrived["group"]] -= 1
                        if not awaited[arrived["group"]]:
                            self._step(current, current._machine.on_arrived(arrived["group"]))
        except PeerFailed as error:
            with self._changed:
                for group in left:
                    self._step(current, current._machine.on_failed(group, str(error)))

    def _cargo(self, groups: list[int]) -> list[Cargo]:
        """Say what is known of groups that are to be copied: their size, and what waits for them."""
        latest = self._checkpoint.latest()
        first: dict[int, int] = {}
        for ones in latest.held.values() if latest else ():
            for one in ones:
                for group in one.groups:
                    first[group] = min(one.epoch, first.get(group, one.epoch))
        load = self.load.groups
        size = max(1, self._weight.bytes(self._epoch) // len(load))
        cargo = []
        for group in groups:
            rows = load[group]
            at = float(first.get(group, "inf"))
            cargo.append(Cargo(group, size, int(rows), at, at, copy_s=size / _BYTES_PER_S, work_s=rows / _ROWS_PER_S))
        return cargo

    def _prepare(self, current: Reconfiguration) -> Travel:
        """Make the layout to come: now and not when it is needed, as on a cluster it takes Spark jobs."""
        plan = current._machine.plan
        ready = self.planner.rerouted(plan.after)
        try:
            # Where it is then, it stays: state is copied there.
            ready.settle(tries=_MOST_ANCHORS)
            before, after = self.hosts.places(self.planner, ready)
            reach("plan-prepare")
        except BaseException:
            ready.release(but_for=self.planner)
            raise
        if before and plan.after.instances != plan.before.instances:
            were, are = ([places[one].host for one in sorted(places)] for places in (before, after))
            table = relabelled(plan.after, were, are)
            ready = ready.rerouted(table)
            steps = steps_of(moves(plan.before, table), plan.strategy)
            plan = replace(plan, after=table, steps=steps)
        with self._changed:
            if current.over:
                ready.release(but_for=self.planner)
                return Travel()
            self._next[plan.after.instances] = ready
            self._step(current, replace(current._machine, plan=plan).on_prepared())
        return travel_of(plan, before, after)

    def _copy(self, current: Reconfiguration, lanes: Sequence[Lane]) -> None:
        """Have every target bring in what comes to it, until at most one epoch is missing."""
        with ThreadPoolExecutor(max(1, len(lanes)), thread_name_prefix="ferryman-copy") as threads:
            for carried in [threads.submit(self._carry, current, lane) for lane in lanes]:
                carried.result()
            reach("plan-catch-up")
            for _ in range(_MOST_ROUNDS):
                before = self._epoch
                for one in [threads.submit(self._catch_up, current, lane) for lane in lanes]:
                    one.result()
                if self._epoch <= before + 1 or current.over:
                    break
        with self._changed:
            for move in current._machine.to_copy():
                self._step(current, current._machine.on_arrived(move.group))

    def _catch_up(self, current: Reconfiguration, lane: Lane) -> None:
        stopped = current._machine.plan.strategy.waits == "everything"
        if self._rhythm.pace().between_s and not stopped:
            self._await_epoch(current, self._rhythm.epochs)
        for _ in self._bring(lane.target, lane.groups, None, None if stopped else LEAST):
            pass

    def _carry(self, current: Reconfiguration, lane: Lane) -> None:
        """Have a target take groups: at a pace that the stream does not notice, unless it stands still for it."""
        stopped = current._machine.plan.strategy.waits == "everything"
        pace = self._rhythm.pace()
        each = max(1, current.preview.bytes // max(1, len(current.preview.moves)))
        done = 0
        while done < len(lane.groups) and not current.over:
            done += len(lane.groups) if stopped else max(1, pace.chunk // each)
            seen = self._rhythm.epochs
            if pace.between_s and not stopped:
                self._await_epoch(current, seen)
            began, size = time.monotonic(), 0
            speed = None if stopped else MOST if pace.between_s else pace.bytes_per_s
            # Those that are there catch up with the others, so that little is left to do in the end.
            for arrived in self._bring(lane.target, lane.groups[:done], lane.source, speed):
                size += arrived["bytes"]
                reach("plan-copy")
                if current.over:
                    break
            with self._changed:
                current.moved_bytes += size
                pace = pace.after(size, time.monotonic() - began, self._rhythm.since(seen))

    def _await_epoch(self, current: Reconfiguration, seen: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: current.over or self._rhythm.epochs > seen, _LONGEST_PAUSE_S)

    def _bring(
        self, target: str, groups: tuple[int, ...], peer: str | None, bytes_per_s: float | None = None
    ) -> Iterator[dict[str, int]]:
        return self.hosts.bring(target, self._errand(groups), self._epoch, peer, bytes_per_s)

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
        failed = False
        for location, groups in useless:
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
        if machine.over and not before.over:
            current.ended_ms = _now_ms()
            for planner in self._next.values():
                planner.release(but_for=self.planner)
            self._next = {}
        self._changed.notify_all()
        self.wake()


def waiting_groups(manifest: Manifest | None) -> frozenset[int]:
    """List the key groups that have rows held after an epoch."""
    held = manifest.held.values() if manifest else ()
    return frozenset(group for ones in held for one in ones for group in one.groups)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
