"""Let a job run in simulated time: epochs, the autoscaler, and the migration machine for every change it wants.

The machines are the very ones that a job has. What is modelled is all around them: how many rows come, how long epochs
take, when state arrives, which hosts are lost. Rows that a strategy holds back are taken for done in their epoch.
Seeded: the same arguments give the same run.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ferryman._migrate.epoch_pacing import epoch_wanted_s
from ferryman._migrate.epoch_times import EpochTimes
from ferryman._migrate.machine import Migration
from ferryman._migrate.plan import Plan
from ferryman._migrate.plan_events import Arrived, EpochBegan, EpochEnded, Prepared
from ferryman._migrate.planning import Move, rescaled
from ferryman._migrate.strategies import strategy
from ferryman._model.routing import RoutingTable
from ferryman._scale.autoscaler import Autoscaler
from ferryman._scale.autoscaler_events import Behind, Changed, Committed, Event, Keep, Quiet, Refused, Rescale
from ferryman._scale.decision import Decision
from ferryman._scale.epoch_metrics import EpochMetrics, OperatorMetrics
from ferryman._scale.options import Autoscale
from ferryman._scale.simulation.engine_model import EngineModel
from ferryman._scale.simulation.loads import Arrivals
from ferryman._scale.simulation.simulated_cluster import Floats, SimulatedCluster
from ferryman._scale.simulation.simulated_run import SimulatedEpoch, SimulatedPlan, SimulatedRun

Ints = npt.NDArray[np.int64]
# How often it is looked whether rows have come.
_POLL_S = 0.01
# Where nothing comes, how often the autoscaler is told so.
_TICK_S = 1.0
_OPERATOR = "operator"


@dataclass
class _Change:
    """A change under way."""

    migration: Migration
    began_s: float
    before: int
    bytes: int = 0
    # The moves whose state is on its way, or there.
    left: set[Move] = field(default_factory=set)


@dataclass(kw_only=True)
class Simulation:
    """A job in simulated time.

    Parameters
    ----------
    load
        What comes in.
    autoscale
        How it chooses its number of instances; None for never.
    instances
        How many there are in the beginning.
    engine, cluster
        What an epoch costs, and where it runs.
    strategy
        How state moves.
    tells_backlog
        Whether the source says how many rows it still has.
    changes
        When which number of instances is asked for, besides what the autoscaler decides.
    lost
        When which host is lost.
    stalls
        When nothing goes on, and for how long: a driver that starts again, a source that is away.
    seed
        What chance goes by.

    Examples
    --------
    >>> from ferryman._scale.simulation.loads import Step
    >>> run = Simulation(load=Step(1_000, 20_000, at=60), autoscale=Autoscale(max=8)).run(seconds=180)
    >>> [(decision.kind, decision.after) for decision in run.changes]
    [('scale out', 3)]
    """

    load: Arrivals
    autoscale: Autoscale | None = None
    instances: int = 1
    engine: EngineModel = field(default_factory=EngineModel)
    cluster: SimulatedCluster = field(default_factory=SimulatedCluster)
    strategy: str = "live"
    tells_backlog: bool = False
    changes: Iterable[tuple[float, int]] = ()
    lost: Iterable[tuple[float, int]] = ()
    stalls: Iterable[tuple[float, float]] = ()
    seed: int = 1

    def run(self, seconds: float = 3600.0) -> SimulatedRun:
        """Let it run for so long."""
        return _Run(self).until(seconds)


class _Run:
    """One run: all that changes while it goes on."""

    def __init__(self, of: Simulation) -> None:
        self.of = of
        self.random = np.random.default_rng(of.seed)
        self.weights = of.cluster.weights(of.seed)
        self.table = RoutingTable.even(1, of.cluster.groups, of.instances)
        self.machine = None if of.autoscale is None else Autoscaler(options=of.autoscale)
        self.decisions: list[Decision] = []
        self.plans: list[SimulatedPlan] = []
        self.asked = deque(sorted(of.changes))
        # When the last change was over.
        self.free_s = 0.0
        # What the instances would have lost by taking turns in the epoch before.
        self.lost_s = 0.0
        self.times = EpochTimes()
        self.change: _Change | None = None
        # What happens to the change under way, and when.
        self.coming: list[tuple[float, int, object]] = []
        self.order = 0
        self.epochs: list[SimulatedEpoch] = []
        # Rows that have come and no epoch has taken: from when to when they came, and how many.
        self.waiting: deque[tuple[float, float, int]] = deque()
        self.came_until = 0.0
        self.cold = True
        self.lost = deque(sorted(of.lost))
        self.stalls = deque(sorted(of.stalls))

    # -- time ----------------------------------------------------------------------------------------

    def until(self, seconds: float) -> SimulatedRun:
        """Go on until then."""
        now, begin, told = 0.0, 0.0, 0.0
        while now < seconds:
            while self.stalls and self.stalls[0][0] <= now:
                now += self.stalls.popleft()[1]
            self._happen(now)
            self._come(now)
            wanted_s = self._wanted_s(now)
            if now < begin and wanted_s is not None and wanted_s <= 0:
                # The change does not wait for the trigger; rows do.
                now = told = self._epoch(now, silent=True)
                begin = max(begin, now + self.of.engine.after_s)
                continue
            silent = self.change is not None and now >= begin
            if (not self.waiting and not silent) or now < begin or self._stopped:
                if now - told >= _TICK_S and not self.waiting:
                    told = now
                    self._tell(Quiet(now, round(now * 1000)), now)
                now = self._next(now, begin, wanted_s)
                continue
            ended = self._epoch(now)
            begin = self.of.engine.next_s(now, ended)
            now, told = max(ended, now + _POLL_S), ended
        return SimulatedRun(
            epochs=tuple(self.epochs),
            decisions=tuple(self.decisions),
            plans=tuple(self.plans),
            seconds=seconds,
            finding=None if self.machine is None else self.machine.finding,
        )

    def _wanted_s(self, now: float) -> float | None:
        """Give in how many seconds the change wants an epoch, as a job asks that; None if it wants none."""
        if self.change is None:
            return None
        return epoch_wanted_s(self.change.migration, frozenset(), frozenset(), None, self.times, now)

    def _next(self, now: float, begin: float, wanted_s: float | None) -> float:
        """Give when something may happen next."""
        next_poll = max(now + _POLL_S, begin)
        if wanted_s is not None:
            next_poll = min(next_poll, now + max(_POLL_S, wanted_s))
        coming = [at for at, _, _ in self.coming[:1]] + [at for at, _ in list(self.asked)[:1]]
        return min(next_poll, max(now + 1e-6, min(coming))) if coming else next_poll

    def _come(self, now: float) -> None:
        """Have the rows come that come until now."""
        span = now - self.came_until
        if span <= 0:
            return
        expected = span * (self.of.load(self.came_until) + 4 * self.of.load(now - span / 2) + self.of.load(now)) / 6
        rows = int(self.random.poisson(max(0.0, expected)))
        if rows:
            self.waiting.append((self.came_until, now, rows))
        self.came_until = now

    # -- an epoch ------------------------------------------------------------------------------------

    def _epoch(self, settled: float, *, silent: bool = False) -> float:
        """Run an epoch that gets the rows that there are, or none if it is silent; give when it ended."""
        engine, cluster = self.of.engine, self.of.cluster
        rows, oldest, newest = (0, settled, settled) if silent else self._take(settled)
        began = settled if silent else settled + engine.before_s
        self.times.begin(began)
        table = self._begin(began)
        express = engine.by_express(self.lost_s)
        mine = self.random.multinomial(rows, cluster.shares(table, self.weights))
        noise = np.maximum(0.1, 1 + engine.noise * self.random.standard_normal(len(mine)))
        busy = cluster.busy(mine, engine) * noise
        if rows:
            self.lost_s = float(busy.sum() - busy.max())
        # Always something, now and then a lot, and one in the mean.
        around = math.exp(engine.spread * self.random.standard_normal() - engine.spread**2 / 2)
        sinks = engine.sink_s + engine.sink_row_s * rows
        rebuilt = self._rebuild_s(began, table)
        took = engine.around_s(table.instances, express=express) * around + sinks
        took += cluster.stage_s(busy, express=express) + rebuilt + (engine.cold_s if self.cold else 0.0)
        ended = began + took
        metrics = EpochMetrics(
            epoch=len(self.epochs) + 1,
            began_s=began,
            ended_s=ended,
            time_ms=round(ended * 1000),
            instances=table.instances,
            rows=rows,
            operators={_OPERATOR: self._operator(mine, busy, rows)},
            sinks_s=sinks,
            late_ms=(ended - oldest) * 1000 if rows else None,
            slots=cluster.slots,
            express=express,
            disturbed=self.cold or rebuilt > 0 or self.change is not None,
        )
        self.cold = False
        self.times.end(ended, float(busy.max()))
        left = sum(chunk[2] for chunk in self.waiting)
        late, soon = (ended - oldest, ended - newest) if rows else (0.0, 0.0)
        self.epochs.append(SimulatedEpoch(metrics=metrics, late_s=late, soon_s=soon, backlog=left))
        self._happen(ended, EpochEnded(committed=True))
        self._tell(Committed(metrics), ended)
        if self.of.tells_backlog:
            self._come(ended)
            self._tell(Behind(ended, sum(chunk[2] for chunk in self.waiting)), ended)
        return ended

    def _begin(self, began: float) -> RoutingTable:
        """Give the table that the epoch has that begins now."""
        if self.change is None:
            return self.table
        self._to_change(EpochBegan(), began)
        running = self.change.migration.running
        assert running is not None, "it has just begun"
        self.cold = self.cold or running.table.instances > self.table.instances
        return running.table

    def _take(self, began: float) -> tuple[int, float, float]:
        """Take rows out of the source, oldest first: how many, and when the oldest and the newest of them came."""
        most, rows, oldest, newest = self.of.engine.most_rows, 0, began, began
        while self.waiting and (most is None or rows < most):
            since, until, count = self.waiting.popleft()
            taken = count if most is None else min(count, most - rows)
            newest = since + (until - since) * taken / count
            if taken < count:
                self.waiting.appendleft((newest, until, count - taken))
            oldest = oldest if rows else since
            rows += taken
        return rows, oldest, newest

    def _operator(self, mine: Ints, busy: Floats, rows: int) -> OperatorMetrics:
        heaviest = round(self.of.cluster.hot * rows)
        return OperatorMetrics(tuple(mine.tolist()), tuple(busy.tolist()), heaviest)

    def _rebuild_s(self, began: float, table: RoutingTable) -> float:
        """Lose the hosts that are lost now; give how long it takes to rebuild what they had."""
        took = 0.0
        while self.lost and self.lost[0][0] <= began:
            took += self.of.cluster.rebuild_s(table, self.lost.popleft()[1])
        return took

    # -- a change ------------------------------------------------------------------------------------

    @property
    def _stopped(self) -> bool:
        return self.change is not None and self.change.migration.stopped

    def _tell(self, event: Event, now: float) -> None:
        """Tell the autoscaler, and do what it wants done."""
        if self.machine is None:
            return
        self.machine, instructions = self.machine.handle(event)
        for wanted in instructions:
            if isinstance(wanted, Keep):
                self.decisions.append(wanted.decision)
            elif isinstance(wanted, Rescale):
                self._rescale(wanted, now)

    def _rescale(self, wanted: Rescale, now: float) -> None:
        cluster = self.of.cluster
        if not 1 <= wanted.instances <= cluster.groups or wanted.instances == self.table.instances:
            self._tell(Refused(now, f"{wanted.instances} instances cannot be"), now)
            return
        plan = Plan.of(
            self.table, rescaled(self.table, wanted.instances, cluster.load(self.weights)), strategy(self.of.strategy)
        )
        size = sum(size for _, _, size in cluster.copies(plan.moves, self.weights))
        if wanted.most_bytes is not None and size > wanted.most_bytes:
            self._tell(Refused(now, f"{size:,} bytes would move, and {wanted.most_bytes:,} may"), now)
            return
        self.change = _Change(Migration.of(plan), now, self.table.instances)
        self._later(now + cluster.prepare_s, Prepared(plan))

    def _later(self, at: float, event: object) -> None:
        self.order += 1
        heapq.heappush(self.coming, (at, self.order, event))

    def _happen(self, now: float, *events: EpochEnded) -> None:
        """Have happen to the change what happens until now, and begin one that was asked for meanwhile."""
        if self.change is None and self.asked and self.asked[0][0] <= now:
            at, instances = self.asked.popleft()
            self._rescale(Rescale(instances), max(at, self.free_s))
        while self.coming and self.coming[0][0] <= now:
            at, _, event = heapq.heappop(self.coming)
            self._to_change(event, at)
        for event in events:
            self._to_change(event, now)

    def _to_change(self, event: object, now: float) -> None:
        change = self.change
        if change is None or (isinstance(event, EpochEnded) and change.migration.running is None):
            return
        change.migration = change.migration.after(event)  # type: ignore[arg-type]
        self.table = change.migration.table
        fresh = [move for move in change.migration.to_copy() if move not in change.left]
        change.left.update(fresh)
        for after_s, move, size in self.of.cluster.copies(fresh, self.weights):
            change.bytes += size
            self._later(now + after_s, Arrived(frozenset({move.group})))
        if change.migration.over:
            self.change = None
            self.free_s = now
            self.coming.clear()
            took = now - change.began_s
            after = self.table.instances
            self.plans.append(
                SimulatedPlan(
                    asked_s=change.began_s, took_s=took, before=change.before, after=after, bytes=change.bytes
                )
            )
            self._tell(Changed(now, took, change.bytes), now)


def replayed(epochs: Iterable[EpochMetrics], autoscale: Autoscale) -> list[Decision]:
    """Say what an autoscaler would have decided on epochs that were recorded; nothing comes of it."""
    machine, decisions = Autoscaler(options=replace(autoscale, dry_run=True)), []
    for epoch in epochs:
        machine, instructions = machine.handle(Committed(epoch))
        decisions += [wanted.decision for wanted in instructions if isinstance(wanted, Keep)]
    return decisions
