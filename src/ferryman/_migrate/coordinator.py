"""Coordinate the changes of a running job: give every epoch its layout, take plans, and switch between two epochs.

Epochs ask for their layout and tell how they ended; meanwhile one thread per plan does what it takes. Whatever happens
to a plan goes into its journal, and nowhere else.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.group_bytes import StateWeight
from ferryman._migrate.copier import Copier
from ferryman._migrate.epoch_pacing import epoch_wanted_s
from ferryman._migrate.epoch_times import EpochTimes
from ferryman._migrate.hot_keys import HotKey, hot_keys, wish
from ferryman._migrate.journal import Journal
from ferryman._migrate.keepers import Keepers
from ferryman._migrate.lanes import Choice
from ferryman._migrate.layout import L, Launch, ReadyLayouts
from ferryman._migrate.load_history import LoadHistory, busy_s
from ferryman._migrate.load_report import LoadReport
from ferryman._migrate.lost_hosts import Lent, lost_instances, recovery
from ferryman._migrate.options import ChangeOptions
from ferryman._migrate.plan import Plan
from ferryman._migrate.plan_events import EpochBegan, EpochEnded, GivenUp, Instruction
from ferryman._migrate.plan_worker import PlanWorker, give_up
from ferryman._migrate.planning import rescaled
from ferryman._migrate.reconfiguration import Preview, Reconfiguration
from ferryman._migrate.rehosting import rehosted
from ferryman._migrate.standbys import Standbys
from ferryman._migrate.state_hosts import PATIENCE_S, StateHosts
from ferryman._migrate.strategies import RESTORE, STRATEGIES, strategy
from ferryman._model.errors import InvalidPlan, PlanUnderWay
from ferryman._model.manifest import Manifest
from ferryman._model.receipt import Receipt
from ferryman._model.routing import RoutingTable
from ferryman._os.faults import reach
from ferryman._routing.sites import SiteMap

log = logging.getLogger("ferryman")

# After so many epochs the state hosts are started, so that the first change of a job is like any other.
_SETTLED = 10
# So many plans are remembered: a job may isolate keys and put them back for years.
_MOST_PLANS = 1000


class Coordinator(Generic[L]):
    """Give every epoch its layout; take plans, one at a time.

    Parameters
    ----------
    layout
        The layout the job starts with.
    checkpoint
        Where state can be weighed.
    latest
        The manifest of the newest committed epoch.
    launch
        How state hosts are started.
    wake
        Called when an epoch is wanted, data or not.
    options
        The job's.

    Attributes
    ----------
    state_hosts, standbys
        The state hosts of the job, and who of them stands by for whom.
    load_history, report
        The job's load of late, and what is told of it.
    keeps_events
        Whether the journals of plans to come keep what these were told when they are over.
    """

    def __init__(
        self,
        layout: L,
        checkpoint: Checkpoint,
        latest: Manifest | None,
        launch: Launch,
        options: ChangeOptions,
        *,
        wake: Callable[[], None],
    ) -> None:
        groups = len(layout.routing.owner)
        self._layouts = ReadyLayouts(layout)
        self.state_hosts = StateHosts(launch, layout.stores)
        self.load_history = LoadHistory(groups, latest)
        self.report = LoadReport(self.load_history, StateWeight(checkpoint, groups), options.sites)
        self.keeps_events = False
        self._isolate = options.isolate
        self._wake = wake
        self._changed = threading.Condition()
        self._journals: deque[Journal] = deque(maxlen=_MOST_PLANS)
        # The groups whose rows waited in the epoch under way, or in the last one.
        self._held: frozenset[int] = frozenset()
        self._closed = ""
        # The hosts that instances of layouts to come may be on; None for all.
        self._open: frozenset[str] | None = None
        self._worker: threading.Thread | None = None
        self._hot_keys: threading.Thread | None = None
        self._lent = Lent()
        self._times = EpochTimes()
        self._copier = Copier(self.state_hosts, self.load_history, self._times)
        self.standbys = Standbys(
            self.state_hosts, self._await_quiet_epoch, lambda: self._busy, since=self.load_history.epoch
        )
        self._plan_worker = PlanWorker(self._layouts, self.state_hosts, self.standbys, self._copier, self.report)
        self.standbys.keep(options.replicas if layout.pinned else 0)

    # -- for epochs --------------------------------------------------------------------------------

    def begin(self, redone: frozenset[int] | None = None) -> tuple[L, frozenset[int]]:
        """Give the layout of the epoch that begins now, and the groups whose rows are to wait in it.

        Parameters
        ----------
        redone
            The groups whose rows waited in it when it was begun before, by a driver that died; None if it was not. Its
            sinks may have seen it: if it was, it has the layout that the run began with, and no plan hears of it.
        """
        # Where its instances are has to be known before it is chosen who waits.
        self.layout.settle(self.load_history.hosts)
        if redone is None:
            self._recover()
        with self._changed:
            self._changed.wait_for(lambda: not (journal := self._under_way) or not journal.machine.stopped)
            self._times.begin(time.monotonic())
            layout, self._held = self.layout, redone or frozenset()
            if redone is None and (journal := self._under_way) is not None:
                journal.tell(EpochBegan())
                begun = journal.machine.running
                assert begun is not None, "it has just begun"
                if begun.table != journal.machine.table:
                    reach("plan-switch")
                layout, self._held = self._layouts.of(begun.table), begun.held
            return layout, self._held

    def ended(self, layout: L, latest: Manifest | None, *, committed: bool, receipts: Sequence[Receipt] = ()) -> None:
        """Learn how an epoch ended.

        Parameters
        ----------
        layout
            What it was run with.
        latest
            The manifest of the newest committed epoch: its own, if it was committed.
        committed
            Whether it was.
        receipts
            What its tasks say of it, if it was.
        """
        with self._changed:
            if committed:
                assert latest is not None, "it has been committed"
                # By its own table: the load of an epoch that switches is that of its new owners.
                self.load_history.record(latest, receipts)
            switched = committed and layout is not self.layout
            if switched:
                self._layouts.switch(layout)
            journal = self._journal
            if journal is not None and journal.machine.running is not None:
                if switched:
                    journal.shown.switched_epoch = self.load_history.epoch
                journal.tell(EpochEnded(committed))
                if self._closed:
                    # It was under way when the job ended, and nobody copies what it has switched.
                    give_up(journal, self._closed)
            self._times.end(time.monotonic(), busy_s(receipts))
            self._changed.notify_all()
        if self._times.epochs == _SETTLED and layout.pinned:
            self.state_hosts.start(lambda: self.layout)
        if self._isolate and committed and not self._busy:
            self._look_for_hot_keys()

    def keepers(self, layout: L) -> Keepers | None:
        """Tell who may have main copies that tasks of the epoch that begins do not find; None if nobody."""
        hosts, at = self.state_hosts, layout.hosts() if layout.pinned else {}
        return (
            Keepers.of(hosts.launch, self.load_history.hosts, at, self.standbys.count, hosts.locations, layout.leaving)
            if at
            else None
        )

    def relay(self, instances: int) -> None:
        """Go on with another number of instances from the next epoch on, as a start does: nothing is in place yet.

        Whoever has asked for a change meanwhile has asked later, and gets what that asked for.
        """
        with self._changed:
            if instances != self.table.instances and self._journal is None:
                self._layouts.switch(self.layout.rerouted(rescaled(self.table, instances)))

    @property
    def holding(self) -> bool:
        """Tell whether groups are to wait in the next epoch."""
        journal = self._under_way
        return journal is not None and bool(journal.machine.assignment().held)

    @property
    def changing(self) -> bool:
        """Tell whether a plan is under way."""
        return self._under_way is not None

    @property
    def epoch_wanted_s(self) -> float | None:
        """Give in how many seconds there should be an epoch, data or not; None if nothing waits for one."""
        # Without the lock: who holds it may be waking the one who asks.
        journal, waiting = self._under_way, self.load_history.backlog.groups
        machine = None if journal is None else journal.machine
        return epoch_wanted_s(machine, waiting, self._held, self._copier.coming, self._times, time.monotonic())

    # -- for users ---------------------------------------------------------------------------------

    @property
    def layout(self) -> L:
        """Give the layout that the next epoch has, unless a plan switches in it."""
        return self._layouts.current

    @property
    def table(self) -> RoutingTable:
        """Give the routing table of that layout."""
        return self.layout.routing

    def preview(self, choose: Choice, by: str = "rows") -> Preview:
        """Say what it would take to do what is chosen."""
        before = self.table
        return self._preview(before, choose(before, self.report.site_map), by)

    def hot_keys(self) -> list[HotKey]:
        """List the hot keys."""
        with self._changed:
            history, table = self.load_history.view(), self.table
        return hot_keys(history, table)

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
            after = choose(before, self.report.site_map)
            if chosen.waits == "moving" and before.instances == after.instances and before.pins != after.pins:
                may = ", ".join(name for name, known in STRATEGIES.items() if known.waits != "moving")
                raise InvalidPlan(
                    f"strategy={how!r} moves whole key groups, as rows wait by group. Move single keys with one of "
                    f"{may}."
                )
            # Weighing reads the checkpoint, so it is done before the lock is taken that epochs wait for.
            preview = self._preview(before, after, by)
            with self._changed:
                if self._closed:
                    raise InvalidPlan(f"{self._closed}, so nothing can be moved. Start the job again first.")
                if (journal := self._under_way) is not None:
                    raise PlanUnderWay(
                        f"a {journal.shown.kind} is under way, in phase {journal.shown.phase}. Wait for it, or abort "
                        "it with job.abort()."
                    )
                if before == self.table:
                    shown = Reconfiguration(
                        kind=kind, preview=preview, strategy=how, _changed=self._changed, _abort=self.abort
                    )
                    plan = Plan.of(before, after, chosen)
                    if before.instances != after.instances:
                        plan = replace(plan, open=self._open)
                    return self._begin_plan(shown, plan, choose)
            # The plan before this one ended meanwhile, and changed who owns what: choose again.

    def keep_to(self, open: frozenset[str]) -> Reconfiguration | None:
        """Have instances on some hosts alone, from now on: by a plan, if any of them has to move; else there is none.

        What is on another host is handed over while the stream flows.
        """
        with self._changed:
            if self._busy:
                raise PlanUnderWay("instances are kept to hosts only while the job runs and no plan is under way.")
            self._open, layout = open, self.layout
        # Without the lock: it asks the JVM.
        if not layout.pinned or layout.keep_to(open):
            return None
        plan = rehosted(layout.routing, layout.hosts(), layout.hosts_on(open), open, strategy("live"))
        if not plan.moves:
            return None
        weight = self.report.bytes()
        size = int(sum(weight[move.group] for move in plan.moves))
        preview = replace(self._preview(plan.before, plan.after, "bytes"), moves=plan.moves, bytes=size, between=size)
        with self._changed:
            if self._busy or plan.before != self.table:
                raise PlanUnderWay("another plan came first.")
            shown = Reconfiguration(
                kind="rehost", preview=preview, strategy="live", _changed=self._changed, _abort=self.abort
            )
            return self._begin_plan(shown, plan, lambda table, _: table)

    def abort(self, reason: str) -> None:
        """Give up the plan under way, if one is."""
        with self._changed:
            if (journal := self._under_way) is not None:
                journal.tell(GivenUp(reason))

    def history(self) -> list[Reconfiguration]:
        """List the plans of this run, oldest first; of very many, the last."""
        return [journal.shown for journal in self.journals()]

    def journals(self) -> list[Journal]:
        """List the journals of these plans."""
        with self._changed:
            return list(self._journals)

    def close(self, why: str) -> None:
        """End with the job; an epoch under way still says how it ended, and so does a plan that it may switch."""
        with self._changed:
            self._closed = self._closed or why
            self.state_hosts.close(why)
            self._changed.notify_all()
            if (journal := self._journal) is not None:
                give_up(journal, why)

    def release(self) -> None:
        """End the state hosts, with the homes they serve; after the last epoch."""
        if not self._closed:
            # A job that could not be started has never ended either.
            self.close("the job was not started")
        if self._worker is not None:
            self._worker.join(PATIENCE_S)
        self.standbys.join()
        self.state_hosts.end(self.layout)

    # -- inside ------------------------------------------------------------------------------------

    @property
    def _journal(self) -> Journal | None:
        """Give the journal of the newest plan."""
        return self._journals[-1] if self._journals else None

    @property
    def _under_way(self) -> Journal | None:
        """Give the journal of the plan under way, if one is."""
        journal = self._journal
        return None if journal is None or journal.over or self._closed else journal

    @property
    def _busy(self) -> bool:
        return bool(self._closed) or self._under_way is not None

    def _preview(self, before: RoutingTable, after: RoutingTable, by: str) -> Preview:
        earlier = [change.took for change in self.history() if change.took is not None]
        return self.report.preview(before, after, earlier, by)

    def _await_quiet_epoch(self, seen: int) -> tuple[L, int] | None:
        """Wait for an epoch after one, while nothing is under way; None when the job has ended."""

        def quiet() -> bool:
            # What a plan has left to tidy up it knows of by the table that it began with.
            tidied = self._worker is None or not self._worker.is_alive()
            return self.load_history.epoch > seen and not self._busy and tidied

        with self._changed:
            self._changed.wait_for(lambda: self._closed or quiet())
            return None if self._closed else (self.layout, self.load_history.epoch)

    def _look_for_hot_keys(self) -> None:
        """Think about hot and cooled keys, if there are any, on a thread of its own: no epoch should wait for that."""
        with self._changed:
            history, table = self.load_history.view(), self.table
        thinking = self._hot_keys is not None and self._hot_keys.is_alive()
        if (history.hot_for or history.cool_for) and not thinking:
            self._hot_keys = threading.Thread(
                target=self._fulfil, args=(history, table), name="ferryman-hot-keys", daemon=True
            )
            self._hot_keys.start()

    def _fulfil(self, history: LoadHistory, of: RoutingTable) -> None:
        """Have a hot key isolated, or a cooled one put back; what cannot be now is wished for again."""
        wished = wish(history, of, self.report.site_map)
        if wished is None:
            return
        kind, after = wished

        def choose(before: RoutingTable, at: SiteMap) -> RoutingTable:
            if before != of:
                raise PlanUnderWay("another plan came before this one and changed who owns what.")
            return replace(after, version=before.version + 1)

        try:
            self.request(kind, choose, "live")
        except (InvalidPlan, PlanUnderWay) as error:
            log.debug("hot keys stay where they are: %s", error)

    # -- lost hosts --------------------------------------------------------------------------------

    def _recover(self) -> None:
        """See to what a lost host had, if no other plan is under way; and give back what was lent for it."""
        were, are = self.load_history.hosts, self.layout.hosts()
        if (
            not self.layout.pinned
            or self._busy
            or not were
            or len(are) < len(were)
            or self.table.instances != len(were)
        ):
            return
        hosts = set(are.values())
        if lost := lost_instances(were, are):
            # With standbys there is nothing to restore. And before there are state hosts, tasks are as fast.
            if self.standbys.count or not hosts <= self.state_hosts.locations.keys():
                return
            before = self.table
            at, leaving = self.state_hosts.locations, self.layout.leaving
            kept = {instance: at[were[instance]] for instance in lost if were[instance] in leaving & at.keys()}
            plan = recovery(before, lost, self.report.bytes().tolist(), kept)
            if plan is None:
                return
            preview = self._preview(before, plan.after, "bytes")
            with self._changed:
                if not self._busy and before == self.table:
                    shown = Reconfiguration(
                        kind="recovery",
                        preview=preview,
                        strategy=RESTORE.name,
                        _changed=self._changed,
                        _abort=self.abort,
                    )
                    self._begin_plan(shown, plan, lambda table, _: table)
                    self._lent = self._lent.after(plan, len(set(were)))
        elif self._lent.groups and len(hosts) >= self._lent.hosts:
            lent, self._lent = self._lent, Lent()
            with contextlib.suppress(InvalidPlan, PlanUnderWay):
                self.request("return", lambda table, _: lent.given_back(table), "live")

    # -- one plan ----------------------------------------------------------------------------------

    def _begin_plan(self, shown: Reconfiguration, plan: Plan, choose: Choice) -> Reconfiguration:
        """Begin a plan; whoever calls has the lock."""
        journal = Journal(plan, shown, self._changed, self._do, keeps_events=self.keeps_events)
        self._journals.append(journal)
        self._worker = threading.Thread(
            target=self._plan_worker.work, args=(journal, choose, self._worker), name="ferryman-plan", daemon=True
        )
        self._worker.start()
        return shown

    def _do(self, instruction: Instruction) -> None:
        """Do what a machine wants done; whoever calls has the lock."""
        if instruction is Instruction.RELEASE:
            self._layouts.release()
        elif instruction is Instruction.EPOCH:
            self._wake()
