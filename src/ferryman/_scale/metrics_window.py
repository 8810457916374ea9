"""Figures over the newest epochs: what comes in, what the instances can do, and where the time goes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ferryman._scale.epoch_metrics import EpochMetrics, OperatorMetrics

if TYPE_CHECKING:
    # It makes windows of itself.
    from ferryman._scale.metrics_history import Backlog

# What an epoch costs whatever its rows is only told apart from what each row costs if epochs differ in rows: in so
# many epochs at the least, by this part of their mean.
_LEAST_EPOCHS = 8
_LEAST_SPREAD = 0.3
# A trend has to be so many times as large as what chance makes of it.
_CERTAIN = 4.0
# The job rests between epochs from this part of the time on, and rows are held back if so many epochs have the same.
_RESTS = 0.1
_SAME = 0.8


@dataclass(frozen=True, kw_only=True)
class MetricsWindow:
    """Figures over the newest epochs; times are the mean of an epoch.

    Attributes
    ----------
    instances, epochs
        How many there were.
    seconds
        Over which time.
    rate
        Rows that come in, per second: those that epochs took, and those that the backlog grew by.
    took_s, interval_s
        How long an epoch takes, and from the begin of one to the begin of the next.
    busy_s, even_s
        How long the busiest instances work in it, and how long all would if they had the same to do.
    fixed_s
        What of `busy_s` there is whatever the rows.
    row_s
        For how long the busiest instances work on one row more; None where no rows came.
    sinks_s
        For how long sinks hold it up.
    overhead_s
        The rest of an epoch: planning, gathering, committing.
    usual_overhead_s
        The least of the epochs looked at.
    backlog
        The rows that the source still had; None where it does not tell.
    own_backlog
        What of that the last change is taken to have made.
    held_back
        Whether the source gives no more to an epoch than a bound, and the job does not rest.
    late_ms
        How long the slowest of a hundred rows took; None if not known.
    key
        The part of an operator's busiest instance that its heaviest key makes up, where that is most.
    operators
        Of each operator, by name: rows per second of work of its busiest instance, and the part of the time it works.
    delta_bytes
        What is written of state, per second.
    """

    instances: int
    epochs: int
    seconds: float
    rate: float
    took_s: float
    interval_s: float
    busy_s: float
    even_s: float
    fixed_s: float
    row_s: float | None
    sinks_s: float
    overhead_s: float
    usual_overhead_s: float
    backlog: int | None
    own_backlog: int
    held_back: bool
    late_ms: float | None
    key: float
    operators: dict[str, tuple[float, float]]
    delta_bytes: float

    @classmethod
    def of(
        cls, epochs: Sequence[EpochMetrics], now_s: float, backlog: Sequence[Backlog] = (), own_backlog: int = 0
    ) -> MetricsWindow:
        """Sum up epochs that follow one another; what the first one's rows came in is not known, so it only begins."""
        first, rest = epochs[0], epochs[1:]
        # An epoch takes what came since the one before began. What comes now is in none yet, unless nothing comes: it
        # has been longer than usual since the last one.
        between = (epochs[-1].began_s - first.began_s) / max(1, len(rest))
        quiet = now_s - epochs[-1].began_s > 2 * max(between, epochs[-1].took_s)
        seconds = (now_s if quiet else epochs[-1].began_s) - first.began_s
        told = [said for said in backlog if said.at_s >= first.began_s]
        grown = told[-1].rows - told[0].rows if len(told) > 1 else 0
        rows = sum([epoch.rows for epoch in rest])
        whole = [epoch for epoch in rest or epochs if not epoch.disturbed]
        count = len(whole) or 1
        busy = [epoch.busy_s for epoch in whole]
        busy_s, worked = sum(busy) / count, sum([epoch.rows for epoch in whole])
        fixed_s = _fixed([epoch.rows for epoch in whole], busy)
        overheads = [max(0.0, epoch.took_s - work - epoch.sinks_s) for epoch, work in zip(whole, busy, strict=True)]
        times = [epoch.late_ms for epoch in whole if epoch.late_ms is not None]
        took_s, interval_s = sum([epoch.took_s for epoch in whole]) / count, seconds / max(1, len(rest))
        same = max([sum(other.rows == epoch.rows for other in rest) for epoch in rest[-1:]], default=0)
        return cls(
            instances=first.instances,
            epochs=len(epochs),
            seconds=seconds,
            rate=max(0.0, rows + grown) / seconds if seconds > 0 else 0.0,
            took_s=took_s,
            interval_s=interval_s,
            busy_s=busy_s,
            even_s=sum([epoch.even_s for epoch in whole]) / count,
            fixed_s=fixed_s,
            row_s=max(busy_s - fixed_s, 1e-9) * count / worked if worked else None,
            sinks_s=sum([epoch.sinks_s for epoch in whole]) / count,
            overhead_s=sum(overheads) / count,
            usual_overhead_s=min(overheads, default=0.0),
            backlog=told[-1].rows if told else None,
            own_backlog=own_backlog,
            held_back=interval_s <= took_s * (1 + _RESTS) and rows > 0 and same >= max(3, _SAME * len(rest)),
            late_ms=max(times, default=None),
            key=_heaviest(whole),
            operators=_true_rates(whole, count, interval_s),
            delta_bytes=sum([epoch.delta_bytes for epoch in rest]) / seconds if seconds > 0 else 0.0,
        )

    @property
    def capacity(self) -> float | None:
        """Give how many rows per second the job could do if its instances did nothing else; None if not known."""
        return None if self.row_s is None else 1 / self.row_s

    @property
    def utilisation(self) -> float:
        """Give what part of the time the busiest instances need for what comes in: more than 1 if they fall behind."""
        return self.load(self.rate)

    def load(self, rate: float) -> float:
        """Give what part of the time they would need for so many rows per second."""
        return 0.0 if self.row_s is None else rate * self.row_s

    @property
    def waiting(self) -> float:
        """Give how many rows wait that no change has made wait, and that the next epoch would not take anyway."""
        return max(0.0, (self.backlog or 0) - self.own_backlog - self.rate * self.interval_s)

    @property
    def catch_up_s(self) -> float | None:
        """Give how long the backlog takes to do beside what comes in; None if not known, infinite if it grows."""
        if self.backlog is None or self.capacity is None:
            return None
        spare = self.capacity - self.rate
        return self.backlog / spare if spare > 0 else math.inf if self.backlog else 0.0


def _fixed(rows: Sequence[int], busy: Sequence[float]) -> float:
    """Give what instances work on an epoch of no rows: where the line through rows and times begins."""
    count = len(rows)
    if count < _LEAST_EPOCHS:
        return 0.0
    mean, mean_s = sum(rows) / count, sum(busy) / count
    spread = sum([(number - mean) ** 2 for number in rows])
    if not mean or math.sqrt(spread / count) < _LEAST_SPREAD * mean:
        return 0.0
    slope = sum([(number - mean) * (time - mean_s) for number, time in zip(rows, busy, strict=True)]) / spread
    return min(max(0.0, mean_s - max(0.0, slope) * mean), min(busy))


def trend(epochs: Sequence[EpochMetrics]) -> float:
    """Give by how much the rate grows per second, if that is certain."""
    # Thinned out: a trend takes few points.
    step = max(1, len(epochs) // 20)
    points = []
    for place in range(step, len(epochs), step):
        some = epochs[place - step : place + 1]
        span = some[-1].began_s - some[0].began_s
        if span > 0:
            points.append((some[-1].began_s, sum([epoch.rows for epoch in some[1:]]) / span))
    if len(points) < 5:
        return 0.0
    mean_at, mean = (sum([point[axis] for point in points]) / len(points) for axis in (0, 1))
    spread = sum([(at - mean_at) ** 2 for at, _ in points])
    slope = sum([(at - mean_at) * (rate - mean) for at, rate in points]) / spread
    missed = sum([(rate - mean - slope * (at - mean_at)) ** 2 for at, rate in points])
    error = math.sqrt(missed / (len(points) - 2) / spread)
    return slope if abs(slope) > _CERTAIN * error else 0.0


def _heaviest(epochs: Sequence[EpochMetrics]) -> float:
    """Give what part of its busiest instance's rows a key has, of the operator where that is most."""
    found: dict[str, list[int]] = {}
    for epoch in epochs:
        for name, operator in epoch.operators.items():
            sums = found.setdefault(name, [0, 0])
            sums[0] += operator.heaviest
            sums[1] += operator.rows[operator.busiest] if operator.rows else 0
    return min(1.0, max([heaviest / rows for heaviest, rows in found.values() if rows], default=0.0))


def _true_rates(epochs: Sequence[EpochMetrics], count: int, interval_s: float) -> dict[str, tuple[float, float]]:
    """Give each operator's rows per second of work, and the part of the time it works, by its busiest instance."""
    found: dict[str, tuple[float, float]] = {}
    for name in epochs[-1].operators if epochs else ():
        mine = [epoch.operators.get(name, OperatorMetrics()) for epoch in epochs]
        rows = sum([operator.rows[operator.busiest] for operator in mine if operator.rows])
        busy = sum([max(operator.busy_s, default=0.0) for operator in mine])
        found[name] = (rows / busy if busy else 0.0, busy / count / interval_s if interval_s > 0 else 0.0)
    return found
