"""Copy the key groups of a plan from host to host: in the background, or in turn while their rows wait for them."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ferryman._migrate.copy_pace import LEAST, MOST
from ferryman._migrate.epoch_pacing import EpochPacing, overdue_s
from ferryman._migrate.epoch_times import EpochTimes
from ferryman._migrate.journal import Journal
from ferryman._migrate.lanes import Lane, Lanes
from ferryman._migrate.line_speed import LineSpeed
from ferryman._migrate.load_history import LoadHistory
from ferryman._migrate.orders import ORDERS
from ferryman._migrate.plan_events import Arrived, Failed, GivenUp
from ferryman._migrate.state_hosts import StateHosts
from ferryman._migrate.strategies import Strategy
from ferryman._model.errors import PeerFailed
from ferryman._os.faults import reach

log = logging.getLogger("ferryman")

# How long to wait for an epoch to end, where there is time between two.
_LONGEST_PAUSE_S = 5.0
# In so many parts a host restores what comes from the checkpoint: each reads the deltas since the snapshot anew.
_PARTS = 2
# How often a target may catch up before it is as near as it can come.
_MOST_ROUNDS = 10


@dataclass(frozen=True)
class Copies:
    """What is to be copied for a plan.

    Attributes
    ----------
    journal
        Whom to tell of it.
    lanes
        What goes from where to where.
    sizes
        About how many bytes each key group has.
    """

    journal: Journal
    lanes: Lanes = field(default_factory=Lanes)
    sizes: Sequence[float] = ()

    @property
    def strategy(self) -> Strategy:
        """Give how the plan is carried out."""
        return self.journal.machine.plan.strategy

    @property
    def over(self) -> bool:
        """Tell whether nothing more is wanted."""
        return self.journal.over


class Copier:
    """Have state hosts bring in what a plan wants there, and tell the plan of it.

    Parameters
    ----------
    state_hosts
        The state hosts.
    history
        The load of late, and what waits.
    times
        What epochs are like.

    Attributes
    ----------
    coming
        The groups that are on their way while rows wait for them; None if none are.
    """

    def __init__(self, state_hosts: StateHosts, history: LoadHistory, times: EpochTimes) -> None:
        self._state_hosts = state_hosts
        self._history = history
        self._times = times
        self.coming: EpochPacing | None = None
        self._line = LineSpeed()

    def copy(self, copies: Copies) -> None:
        """Copy what a plan wants copied, in the way of its strategy."""
        if copies.strategy.waits == "moving":
            self._in_turn(copies)
        else:
            self._in_background(copies)

    def await_epoch(self, journal: Journal) -> None:
        """Wait until an epoch has just ended, where there is time between two; or until none comes as usual."""
        seen, deadline = self._times.epochs, time.monotonic() + _LONGEST_PAUSE_S
        stands = journal.machine.plan.strategy.waits != "nothing"
        if stands or not self._times.pace().between_s:
            return
        with journal.changed:
            while not journal.over and self._times.epochs == seen:
                now = time.monotonic()
                left = deadline - now if self._times.running else min(deadline - now, overdue_s(self._times, now))
                if left <= 0:
                    return
                journal.changed.wait(left)

    # -- while rows wait ---------------------------------------------------------------------------

    def _in_turn(self, copies: Copies) -> None:
        """Copy what the machine wants copied, and say of each group at once that it is there: its rows wait for it."""
        journal, lanes = copies.journal, copies.lanes.used
        # A group may have to come to several hosts, where keys of it are pinned.
        awaited = Counter(group for lane in lanes for group in lane.groups)
        while True:
            journal.wait_for(lambda: journal.machine.to_copy())
            if not journal.over:
                reach("plan-wait")
            with journal.changed:
                wanted = {move.group for move in journal.machine.to_copy()}
                if here := frozenset(group for group in wanted if not awaited[group]):
                    journal.tell(Arrived(here))
            if journal.over:
                return
            by_lane = {lane: wanted.intersection(lane.groups) for lane in lanes}
            coming = set().union(*by_lane.values())
            self.coming = EpochPacing({group: copies.sizes[group] for group in coming}, time.monotonic())
            with ThreadPoolExecutor(max(1, len(lanes)), thread_name_prefix="ferryman-copy") as threads:
                asked = [threads.submit(self._hand_over, copies, *some, awaited) for some in by_lane.items()]
                for done in asked:
                    done.result()
            self.coming = None

    def _hand_over(self, copies: Copies, lane: Lane, left: set[int], awaited: Counter[int]) -> None:
        """Have a target take groups in an order; one whose target fails is left to the checkpoint, or to an abort."""
        name, asks = secrets.token_hex(8), copies.strategy.asks
        began, size, missed = time.monotonic(), 0, 0
        try:
            while left and not copies.over:
                told, groups = self._history.epoch, self._ordered(copies, left)
                part = {"one_by_one": 1, "in_parts": -(-len(lane.groups) // _PARTS)}.get(asks, len(groups))
                asked = groups[:part]
                for arrived in self._state_hosts.bring(lane.target, asked, told, lane.source or None, lane=name):
                    self._arrived(copies, arrived, left, awaited)
                    missed += arrived.get("missed", 0)
                    size += arrived["bytes"]
                    if copies.over:
                        break
                    if asks == "reordered" and left and self._history.epoch > told:
                        # More rows wait by now, and perhaps for others.
                        told = self._history.epoch
                        with contextlib.suppress(PeerFailed):
                            self._state_hosts.reorder(lane.source, name, self._ordered(copies, left))
        except PeerFailed as error:
            log.warning("%d key groups are left to the checkpoint: %s", len(left), error)
            if left:
                copies.journal.tell(Failed(frozenset(left), str(error)))
        _tell_missed(lane, missed)
        self._line = self._line.after(size, time.monotonic() - began)

    def _arrived(self, copies: Copies, arrived: dict[str, int], left: set[int], awaited: Counter[int]) -> None:
        group, journal = arrived["group"], copies.journal
        with journal.changed:
            journal.shown.moved_bytes += arrived["bytes"]
            journal.shown.arrivals.append(group)
            left.discard(group)
            machine = journal.machine
            reach("plan-copy" if left or machine.step + 1 < len(machine.plan.steps) else "plan-catch-up")
            awaited[group] -= 1
            if not awaited[group]:
                assert self.coming is not None, "it has just arrived"
                self.coming.arrived(group)
                journal.tell(Arrived(frozenset({group})))

    def _ordered(self, copies: Copies, groups: Collection[int]) -> tuple[int, ...]:
        """Put groups in the order of the strategy, by what is known at this instant."""
        bytes_per_s = self._state_hosts.launch.bytes_per_s or self._line.bytes_per_s
        cargo = self._history.cargo(groups, copies.sizes, bytes_per_s)
        return tuple(found.group for found in ORDERS[copies.strategy.order](cargo))

    # -- in the background -------------------------------------------------------------------------

    def _in_background(self, copies: Copies) -> None:
        """Have every target bring in what comes to it, until at most one epoch is missing."""
        journal = copies.journal
        with ThreadPoolExecutor(max(1, len(copies.lanes.used)), thread_name_prefix="ferryman-copy") as threads:

            def on_all(work: Callable[[Copies, Lane], None]) -> None:
                for done in [threads.submit(_or_give_up, work, copies, lane) for lane in copies.lanes.used]:
                    done.result()

            on_all(self._ahead)
            reach("plan-catch-up")
            for _ in range(_MOST_ROUNDS):
                if copies.over:
                    return
                before = self._history.epoch
                on_all(self._catch_up)
                if self._history.epoch <= before + 1:
                    break
        with journal.changed:
            if there := frozenset(move.group for move in journal.machine.to_copy()):
                journal.tell(Arrived(there))

    def _catch_up(self, copies: Copies, lane: Lane) -> None:
        speed = None if copies.strategy.waits == "everything" else LEAST
        self.await_epoch(copies.journal)
        for _ in self._state_hosts.bring(lane.target, lane.groups, self._history.epoch, None, speed):
            pass

    def _ahead(self, copies: Copies, lane: Lane) -> None:
        """Have a target take groups: at a pace that the stream does not notice, unless it stands still for it."""
        stopped = copies.strategy.waits == "everything"
        journal, pace = copies.journal, self._times.pace()
        each = max(1, int(sum(copies.sizes[group] for group in lane.groups)) // len(lane.groups))
        groups, done, missed = self._ordered(copies, lane.groups), 0, 0
        while done < len(groups) and not copies.over:
            done += len(groups) if stopped else max(1, pace.chunk // each)
            seen = self._times.epochs
            self.await_epoch(journal)
            began, size = time.monotonic(), 0
            speed = None if stopped else MOST if pace.between_s else pace.bytes_per_s
            # Those that are there catch up with the others, so that little is left to do in the end.
            for arrived in self._state_hosts.bring(lane.target, groups[:done], self._history.epoch, lane.source, speed):
                missed += arrived.get("missed", 0)
                size += arrived["bytes"]
                with journal.changed:
                    journal.shown.moved_bytes += arrived["bytes"]
                reach("plan-copy")
                if copies.over:
                    break
            pace = pace.after(size, time.monotonic() - began, self._times.since(seen))
        _tell_missed(lane, missed)


def _or_give_up(work: Callable[[Copies, Lane], None], copies: Copies, lane: Lane) -> None:
    """Do something for a lane; where it fails the plan is given up, and other lanes with it, at once."""
    try:
        work(copies, lane)
    except PeerFailed as error:
        copies.journal.tell(GivenUp(str(error)))


def _tell_missed(lane: Lane, missed: int) -> None:
    """Say that state had to come from the checkpoint, which takes longer than from the host that had it."""
    if missed:
        log.warning(
            "%d key groups came to %s from the checkpoint, not from %s; why is in state-host.log, in the home there",
            missed,
            lane.target,
            lane.source,
        )
