"""Carry the key groups of a plan from host to host: in the background, or in turn while their rows wait for them."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from ferryman._migrate.crossing import Crossing
from ferryman._migrate.freight import Freight
from ferryman._migrate.machine import Migration
from ferryman._migrate.orders import ORDERS
from ferryman._migrate.pace import LEAST, MOST, Rhythm
from ferryman._model.errors import PeerFailed
from ferryman._routing.heat import Heat
from ferryman._spark.change import Reconfiguration
from ferryman._spark.state_hosts import Errand, StateHosts
from ferryman._spark.travel import Lane
from ferryman._testing.faults import reach

log = logging.getLogger("ferryman")

# How long to wait for an epoch to end, where there is time between two.
_LONGEST_PAUSE_S = 5.0
# How often a target may catch up before it is as near as it can come.
_MOST_ROUNDS = 10


class Carrier:
    """Have state hosts bring in what a plan wants there, and tell the plan of it.

    Parameters
    ----------
    hosts
        The state hosts.
    rhythm, freight, heat
        What epochs are like, what is known of the groups, and their rows of late.
    changed
        The lock of whatever a plan's machine is told, notified when it has been.
    epoch
        Gives the newest committed epoch.
    errand
        Says what to ask for, to get key groups.
    step
        Lets a plan go on, with the lock held.
    """

    def __init__(
        self,
        hosts: StateHosts,
        rhythm: Rhythm,
        freight: Freight,
        heat: Heat,
        changed: threading.Condition,
        epoch: Callable[[], int],
        errand: Callable[[tuple[int, ...]], Errand],
        step: Callable[[Reconfiguration, Migration], None],
    ) -> None:
        self._hosts = hosts
        self._rhythm = rhythm
        self._freight = freight
        self._heat = heat
        self._changed = changed
        self._epoch = epoch
        self._errand = errand
        self._step = step
        self._crossing: Crossing | None = None

    def carry(self, current: Reconfiguration, lanes: Sequence[Lane]) -> None:
        """Copy what a plan wants copied, in the way of its strategy."""
        if current._machine.plan.strategy.waits == "moving":
            self._in_turn(current, lanes)
        else:
            self._in_background(current, lanes)

    def wait_s(self) -> float:
        """Give how long rows that could be processed should wait for more that can."""
        crossing = self._crossing
        return 0.0 if crossing is None else crossing.wait_s(time.monotonic(), self._rhythm.overhead_s)

    def await_epoch(self, current: Reconfiguration) -> None:
        """Wait until an epoch has just ended, where there is time between two; or until none comes as usual."""
        seen, deadline = self._rhythm.epochs, time.monotonic() + _LONGEST_PAUSE_S
        stands = current._machine.plan.strategy.waits != "nothing"
        if stands or not self._rhythm.pace().between_s:
            return
        with self._changed:
            while not current.over and self._rhythm.epochs == seen:
                now = time.monotonic()
                left = deadline - now if self._rhythm.running else min(deadline - now, self._rhythm.overdue_s(now))
                if left <= 0:
                    return
                self._changed.wait(left)

    # -- while rows wait ---------------------------------------------------------------------------

    def _in_turn(self, current: Reconfiguration, lanes: Sequence[Lane]) -> None:
        """Copy what the machine wants copied, and say of each group at once that it is there: its rows wait for it."""
        # A group may have to come to several hosts, where keys of it are pinned.
        awaited = Counter(group for lane in lanes for group in lane.groups)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: current.over or current._machine.to_copy())
                wanted = {move.group for move in current._machine.to_copy()}
                for group in wanted:
                    if not awaited[group]:
                        self._step(current, current._machine.on_arrived(group))
            if current.over:
                return
            by_lane = {lane: wanted.intersection(lane.groups) for lane in lanes}
            coming = set().union(*by_lane.values())
            self._crossing = Crossing({group: self._freight.size(group) for group in coming}, time.monotonic())
            with ThreadPoolExecutor(max(1, len(lanes)), thread_name_prefix="ferryman-copy") as threads:
                asked = [threads.submit(self._hand_over, current, *one, awaited) for one in by_lane.items()]
                for done in asked:
                    done.result()
            self._crossing = None

    def _hand_over(self, current: Reconfiguration, lane: Lane, left: set[int], awaited: Counter[int]) -> None:
        """Have a target take groups in an order; one whose target fails is left to the checkpoint, or to an abort."""
        name, how = secrets.token_hex(8), current._machine.plan.strategy.name
        began, size, missed = time.monotonic(), 0, 0
        try:
            while left and not current.over:
                told, groups = self._epoch(), self._ordered(current, left)
                # Who goes by demand asks for one at a time; else the source has them all to send.
                asked = groups[:1] if how == "fetch" else groups
                for arrived in self._bring(lane.target, asked, lane.source, lane=name):
                    self._arrived(current, arrived, left, awaited)
                    missed += arrived.get("missed", 0)
                    size += arrived["bytes"]
                    if current.over:
                        break
                    if how == "push" and left and self._epoch() > told:
                        # More rows wait by now, and perhaps for others.
                        told = self._epoch()
                        with contextlib.suppress(PeerFailed):
                            self._hosts.reorder(lane.source, name, self._ordered(current, left))
        except PeerFailed as error:
            log.warning("%d key groups are left to the checkpoint: %s", len(left), error)
            with self._changed:
                for group in left:
                    self._step(current, current._machine.on_failed(group, str(error)))
        _tell_missed(lane, missed)
        self._freight.carried(size, time.monotonic() - began)

    def _arrived(
        self, current: Reconfiguration, arrived: dict[str, int], left: set[int], awaited: Counter[int]
    ) -> None:
        group = arrived["group"]
        with self._changed:
            current.moved_bytes += arrived["bytes"]
            current.arrivals.append(group)
            left.discard(group)
            machine = current._machine
            reach("plan-copy" if left or machine.step + 1 < len(machine.plan.steps) else "plan-catch-up")
            awaited[group] -= 1
            if not awaited[group]:
                assert self._crossing is not None, "it has just arrived"
                self._crossing.arrived(group)
                self._step(current, current._machine.on_arrived(group))

    def _ordered(self, current: Reconfiguration, groups: Collection[int]) -> tuple[int, ...]:
        """Put groups in the order of the strategy, by what is known at this instant."""
        order = ORDERS[current._machine.plan.strategy.order]
        cargo = self._freight.cargo(groups, self._heat.rows_per_epoch(), self._hosts.find.bytes_per_s)
        return tuple(one.group for one in order(cargo))

    # -- in the background -------------------------------------------------------------------------

    def _in_background(self, current: Reconfiguration, lanes: Sequence[Lane]) -> None:
        """Have every target bring in what comes to it, until at most one epoch is missing."""
        with ThreadPoolExecutor(max(1, len(lanes)), thread_name_prefix="ferryman-copy") as threads:
            for carried in [threads.submit(self._or_abort, self._ahead, current, lane) for lane in lanes]:
                carried.result()
            reach("plan-catch-up")
            for _ in range(_MOST_ROUNDS):
                if current.over:
                    return
                before = self._epoch()
                for one in [threads.submit(self._or_abort, self._catch_up, current, lane) for lane in lanes]:
                    one.result()
                if self._epoch() <= before + 1:
                    break
        with self._changed:
            for move in current._machine.to_copy():
                self._step(current, current._machine.on_arrived(move.group))

    def _or_abort(self, work: Callable[[Reconfiguration, Lane], None], current: Reconfiguration, lane: Lane) -> None:
        """Do something for a lane; where it fails the plan is given up, and other lanes with it, at once."""
        try:
            work(current, lane)
        except PeerFailed as error:
            with self._changed:
                self._step(current, current._machine.on_abort(str(error)))

    def _catch_up(self, current: Reconfiguration, lane: Lane) -> None:
        stopped = current._machine.plan.strategy.waits == "everything"
        self.await_epoch(current)
        for _ in self._bring(lane.target, lane.groups, None, None if stopped else LEAST):
            pass

    def _ahead(self, current: Reconfiguration, lane: Lane) -> None:
        """Have a target take groups: at a pace that the stream does not notice, unless it stands still for it."""
        stopped = current._machine.plan.strategy.waits == "everything"
        pace = self._rhythm.pace()
        each = max(1, current.preview.bytes // max(1, len(current.preview.moves)))
        groups, done, missed = self._ordered(current, lane.groups), 0, 0
        while done < len(groups) and not current.over:
            done += len(groups) if stopped else max(1, pace.chunk // each)
            seen = self._rhythm.epochs
            self.await_epoch(current)
            began, size = time.monotonic(), 0
            speed = None if stopped else MOST if pace.between_s else pace.bytes_per_s
            # Those that are there catch up with the others, so that little is left to do in the end.
            for arrived in self._bring(lane.target, groups[:done], lane.source, speed):
                missed += arrived.get("missed", 0)
                size += arrived["bytes"]
                with self._changed:
                    current.moved_bytes += arrived["bytes"]
                reach("plan-copy")
                if current.over:
                    break
            pace = pace.after(size, time.monotonic() - began, self._rhythm.since(seen))
        _tell_missed(lane, missed)

    def _bring(
        self,
        target: str,
        groups: tuple[int, ...],
        peer: str | None,
        bytes_per_s: float | None = None,
        lane: str = "",
    ) -> Iterator[dict[str, int]]:
        return self._hosts.bring(target, self._errand(groups), self._epoch(), peer, bytes_per_s, lane)


def _tell_missed(lane: Lane, missed: int) -> None:
    """Say that state had to come from the checkpoint, which takes longer than from the host that had it."""
    if missed:
        log.warning(
            "%d key groups came to %s from the checkpoint, not from %s; why is in state-host.log, in the home there",
            missed,
            lane.target,
            lane.source,
        )
