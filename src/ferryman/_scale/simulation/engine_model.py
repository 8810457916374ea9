"""What an epoch costs: on the driver, on each instance, and in the sinks. Fitted to epochs that were recorded. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ferryman._scale.epoch_metrics import EpochMetrics

# Epochs that begin so many times their own length after another wait for a trigger.
_RESTS = 1.2
# What instances may lose by taking turns before an epoch goes by a shuffle.
_MOST_LOST_S = 0.03
# More than this is no noise.
_MOST_NOISE = 0.5


@dataclass(frozen=True, kw_only=True)
class EngineModel:
    """What an epoch costs.

    Attributes
    ----------
    overhead_s
        What the driver needs, whatever there is to do.
    per_instance_s
        What it needs besides for every instance.
    express_s
        What it needs instead of both where an epoch goes by express; None if none does. Instances then take turns, and
        those that would lose more than 30 ms by that do not go by express.
    fixed_s
        What an instance works, whatever its rows.
    row_s
        What it works on a row.
    contention
        By what part a task is slowed down by every other one on its host.
    sink_s, sink_row_s
        How long the sinks hold an epoch up, and each row of it.
    cold_s
        How much longer the first epoch takes where instances are new.
    noise
        How much the work of instances differs from epoch to epoch: the standard deviation, as a part of it.
    driver_noise
        The same for the driver, where it is now and then much longer; None for the same as `noise`.
    before_s, after_s
        How long before an epoch begins it is settled which rows it gets, and how long after its end the next one can
        begin to settle that.
    trigger_s
        How often an epoch begins, at whole multiples of this; 0 where one follows the other.
    most_rows
        How many rows the source gives to an epoch at the most; None for all.
    """

    overhead_s: float = 0.08
    per_instance_s: float = 0.001
    express_s: float | None = None
    fixed_s: float = 0.005
    row_s: float = 1e-4
    contention: float = 0.0
    sink_s: float = 0.005
    sink_row_s: float = 0.0
    cold_s: float = 0.3
    noise: float = 0.05
    driver_noise: float | None = None
    before_s: float = 0.0
    after_s: float = 0.0
    trigger_s: float = 0.0
    most_rows: int | None = None

    @classmethod
    def fitted(cls, epochs: Sequence[EpochMetrics], *, trigger_s: float | None = None) -> EngineModel:
        """Make a model that costs what recorded epochs did; those that were disturbed do not count.

        The better, the more the recorded epochs differ in rows and in instances.

        Parameters
        ----------
        epochs
            The epochs, in their order.
        trigger_s
            How often epochs begin; guessed if left out, which takes epochs that rest between two of them.
        """
        told = [epoch for epoch in epochs if not epoch.faulty]
        grown = {later.epoch for before, later in pairwise(told) if later.instances > before.instances}
        whole = [epoch for epoch in told if not epoch.disturbed and epoch.epoch not in grown]
        if len(whole) < 3:
            raise ValueError(f"{len(whole)} epochs that were not disturbed: a model takes three at the least")
        fixed_s, row_s, noise = _work(whole)
        by_shuffle, by_express = (
            [(epoch.instances, epoch.took_s - epoch.work_s - epoch.sinks_s) for epoch in whole if epoch.express == way]
            for way in (False, True)
        )
        overhead_s, per_instance_s, spread = _line(by_shuffle or by_express)
        around = dict(by_shuffle)
        cold = [
            epoch.took_s - epoch.work_s - epoch.sinks_s - overhead_s - per_instance_s * epoch.instances
            for epoch in told
            if epoch.epoch in grown and not epoch.express
        ]
        if trigger_s is None:
            intervals = statistics.median([later.began_s - epoch.began_s for epoch, later in pairwise(whole)])
            rests = intervals > _RESTS * statistics.mean([epoch.took_s for epoch in whole])
            trigger_s = round(intervals, 3) if rests else 0.0
        before_s = _before(told)
        gap_s = _gap(told, trigger_s)
        return cls(
            overhead_s=max(0.0, overhead_s),
            per_instance_s=per_instance_s if len(around) > 1 else 0.0,
            express_s=statistics.mean([took for _, took in by_express]) if by_express and by_shuffle else None,
            fixed_s=fixed_s,
            row_s=row_s,
            sink_s=statistics.mean([epoch.sinks_s for epoch in whole]),
            cold_s=max(0.0, statistics.median(cold)) if cold else cls.cold_s,
            noise=noise,
            driver_noise=min(1.0, spread),
            before_s=before_s,
            after_s=max(0.0, gap_s - before_s),
            trigger_s=trigger_s,
        )

    def around_s(self, instances: int, *, express: bool) -> float:
        """Give what the driver needs for an epoch."""
        if express and self.express_s is not None:
            return self.express_s
        return self.overhead_s + self.per_instance_s * instances

    def by_express(self, lost_s: float) -> bool:
        """Tell whether an epoch goes by express, given what taking turns would have lost the one before."""
        return self.express_s is not None and lost_s <= _MOST_LOST_S

    @property
    def spread(self) -> float:
        """Give how much the driver's part differs."""
        return self.noise if self.driver_noise is None else self.driver_noise

    def next_s(self, settled_s: float, ended_s: float) -> float:
        """Give when the epoch after one may begin to settle its rows, that did so then and ended then.

        Triggers are at whole multiples. An epoch that was too long for that is followed at once, and then it is the
        next multiple again.

        Examples
        --------
        >>> engine = EngineModel(trigger_s=1.0)
        >>> engine.next_s(2.0, 2.5), engine.next_s(2.0, 3.25), engine.next_s(3.25, 3.75)
        (3.0, 3.25, 4.0)
        """
        free_s = ended_s + self.after_s
        if not self.trigger_s:
            return free_s
        return max(free_s, (math.floor(settled_s / self.trigger_s + 1e-6) + 1) * self.trigger_s)


def _work(epochs: Sequence[EpochMetrics]) -> tuple[float, float, float]:
    """Fit what instances work to what each had of rows: what is there whatever the rows, what for each, and the noise.

    With several operators, an instance's rows are those of the first, and its work is that of all.
    """
    rows, busy = [], []
    for epoch in epochs:
        first = next(iter(epoch.operators.values()), None)
        for number, count in enumerate(first.rows if first else ()):
            rows.append(count)
            busy.append(sum(each.busy_s[number] for each in epoch.operators.values() if number < len(each.busy_s)))
    counts, times = np.array(rows, dtype=np.float64), np.array(busy, dtype=np.float64)
    if not len(counts) or not counts.any():
        return (float(times.mean()) if len(times) else 0.0), 0.0, 0.0
    # Work differs by a part of itself, so what is large may miss by more.
    weights = 1 / np.maximum(times, times.mean() / 100)
    columns = np.stack([np.ones_like(counts), counts], axis=1)
    fixed_s, row_s = np.linalg.lstsq(columns * weights[:, None], times * weights, rcond=None)[0]
    if fixed_s < 0 or row_s < 0:
        fixed_s, row_s = 0.0, times.sum() / counts.sum()
    expected = fixed_s + row_s * counts
    missed = (times - expected)[expected > 0] / expected[expected > 0]
    return float(fixed_s), float(row_s), min(_MOST_NOISE, float(missed.std()))


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float, float]:
    """Fit a line: where it begins, how steep it is, and by what part of itself points miss it."""
    counts, times = (np.array(values, dtype=np.float64) for values in zip(*points, strict=True))
    slope = 0.0
    if counts.max() > counts.min():
        slope = max(0.0, float(np.polyfit(counts, times, 1)[0]))
    begin = float((times - slope * counts).mean())
    return begin, slope, float((times - begin - slope * counts).std() / max(times.mean(), 1e-9))


def _before(epochs: Sequence[EpochMetrics]) -> float:
    """Give how long before its begin an epoch's rows are settled: the first came when those before it were."""
    found = [
        later.late_ms / 1000 - later.took_s - (later.began_s - epoch.began_s)
        for epoch, later in pairwise(epochs)
        if later.late_ms is not None and later.epoch == epoch.epoch + 1
    ]
    return max(0.0, statistics.median(found)) if found else 0.0


def _gap(epochs: Sequence[EpochMetrics], trigger_s: float) -> float:
    """Give the time between two epochs, of which the later did not wait for its trigger."""
    gaps = [max(0.0, later.began_s - epoch.ended_s) for epoch, later in pairwise(epochs) if epoch.took_s >= trigger_s]
    return statistics.median(gaps) if gaps else 0.0
