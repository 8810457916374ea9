"""A load that grows tenfold and shrinks again, due by the clock, and what a job made of its rows.

Rows are those of the replayable generator, thinned out: row `i` is due `i / high` seconds after the begin, and is there
if a number drawn for it says so. So how many come differs by chance from second to second, is the same in every run,
and a query that is stopped and started again reads on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench.report import Result
from ferryman import Operator, Value, sources
from ferryman._sources.generated_rows import GeneratorOptions, generate
from ferryman.sinks import SinkStart

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Waits shorter than this are put together: a machine cannot wait for so short a time.
_SHORTEST_S = 0.004
# Rows that follow one another sooner than this are of the same epoch.
_SAME_EPOCH_S = 0.02
# The generator draws the value of a row evenly from 0 to this.
_VALUES = 100


@dataclass(frozen=True, kw_only=True)
class Trace:
    """How many rows per second come, and when.

    Attributes
    ----------
    low, high
        The least and the most.
    warm_s, quiet_s, rise_s, fall_s, after_s
        How long it stays at the least before anything is measured, and then, grows, shrinks, and stays at the least
        again.
    row_s
        How long an instance works on a row.
    interval_ms
        How often an epoch begins.
    target
        What part of the time instances should work.
    keys
        How many keys there are.
    bound_s
        How long the rows of one epoch may have taken to come; None for any time.
    """

    low: float
    high: float
    warm_s: float
    quiet_s: float
    rise_s: float
    fall_s: float
    after_s: float
    row_s: float = 0.002
    interval_ms: int = 1000
    target: float = 0.7
    keys: int = 2000
    # Not all that has piled up goes into one epoch: the number of instances could not be changed while it lasts.
    bound_s: float | None = 5.0

    @property
    def seconds(self) -> float:
        """Give how long all of it takes."""
        return self._falls_until + self.after_s

    @property
    def _rises_from(self) -> float:
        return self.warm_s + self.quiet_s

    @property
    def _falls_until(self) -> float:
        return self._rises_from + self.rise_s + self.fall_s

    def rate(self, at_s: float) -> float:
        """Give the rows per second at a time."""
        return float(self._rates(np.array([at_s]))[0])

    def _rates(self, at_s: Floats) -> Floats:
        up = (at_s - self._rises_from) / self.rise_s
        down = (self._falls_until - at_s) / self.fall_s
        rates: Floats = self.low + (self.high - self.low) * np.maximum(0.0, np.minimum(1.0, np.minimum(up, down)))
        return rates

    # -- the oracle ----------------------------------------------------------------------------------

    def needed(self, at_s: float) -> int:
        """Give the fewest instances that do what comes then and work no more than the target."""
        return max(1, math.ceil(self.rate(at_s) * self.row_s / self.target - 1e-9))

    def oracle(self) -> list[tuple[float, int]]:
        """Say what who knows the load would do: at every moment as many instances as needed, from when on."""
        steps: list[tuple[float, int]] = []
        for tenth in range(round(self.seconds * 10)):
            count = self.needed(tenth / 10)
            if not steps or steps[-1][1] != count:
                steps.append((tenth / 10, count))
        return steps

    @property
    def mean_needed(self) -> int:
        """Give how many instances do all rows of the trace in its time, at the target."""
        mean = float(self._rates(np.arange(self.warm_s, self.seconds, 0.1)).mean())
        return max(1, math.ceil(mean * self.row_s / self.target - 1e-9))

    # -- rows ----------------------------------------------------------------------------------------

    @cached_property
    def ids(self) -> Ints:
        """Give the numbers of the rows that come, computed without Spark."""
        drawn = generate(GeneratorOptions(keys=self.keys, rate=self.high), 0, int(self.seconds * self.high))
        ids = drawn["id"].to_numpy()
        there = drawn["value"].to_numpy() * self.high < _VALUES * self._rates(ids / self.high)
        found: Ints = ids[there]
        return found

    def due(self, at_s: float) -> int:
        """Count the rows that are due at a time."""
        return int(np.searchsorted(self.ids, at_s * self.high))

    def frame(self, spark: SparkSession, start: float) -> DataFrame:
        """Stream them, from a time by the clock on."""
        bound = None if self.bound_s is None else round(self.high * self.bound_s)
        begin = datetime.fromtimestamp(start, timezone.utc)
        return self.thinned(
            sources.generator(spark, keys=self.keys, rate=self.high, start=begin, rows_per_epoch=bound)
        ).select("key", "id", "event_time")

    def thinned(self, rows: DataFrame) -> DataFrame:
        """Leave of the generator's rows those that come: the very ones that `ids` gives."""
        at = f"(CAST(id AS DOUBLE) / {self.high!r}D)"
        up = f"(({at} - {self._rises_from!r}D) / {self.rise_s!r}D)"
        down = f"(({self._falls_until!r}D - {at}) / {self.fall_s!r}D)"
        part = f"greatest(0.0D, least(1.0D, least({up}, {down})))"
        rate = f"({self.low!r}D + {self.high - self.low!r}D * {part})"
        last = f"id < {int(self.seconds * self.high)}"
        return rows.where(f"{last} AND value * {self.high!r}D < {_VALUES} * {rate}")


def working(row_s: float) -> type[Operator]:
    """Make an operator that counts, and needs a fixed time for each row: it waits, and needs no core for that."""
    # When the instance is to be done with the rows so far, and when it last was.
    until, last = [0.0], [0.0]

    class Working(Operator):
        n = Value(int, 0)
        output = "id long"

        def process(self, key: Any, row: Any) -> Any:
            now = time.perf_counter()
            # A busy machine wakes who sleeps too late: what was slept too long is made up for with the next rows.
            until[0] = (until[0] if now - last[0] < _SAME_EPOCH_S else now) + row_s
            if until[0] - now >= _SHORTEST_S:
                time.sleep(until[0] - now)
            last[0] = time.perf_counter()
            self.n += 1
            yield (row.id,)

    return Working


class Arrived:
    """A sink that keeps the numbers of the rows of each epoch, and when it was told that the epoch is committed."""

    whole = True
    beside = True
    skips_silence = False
    label = "bench"
    told = False

    def __init__(self) -> None:
        self._written: dict[int, Ints] = {}
        self.at: dict[int, float] = {}

    def claim(self, job_id: str) -> int:
        """Know of no run."""
        return 0

    def begin(self, start: SinkStart) -> None:
        """Nothing to do."""

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Bring the rows here."""
        return self.write_table(rows.toArrow(), epoch)

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        """Keep the rows."""
        self._written[epoch] = rows["id"].to_numpy()
        return {}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Note the time; said again after a start, the first time counts."""
        self.at.setdefault(epoch, time.time())

    @property
    def rows(self) -> int:
        """Count the rows of committed epochs."""
        return sum(len(self._written[epoch]) for epoch in list(self.at) if epoch in self._written)

    def arrived(self) -> tuple[Ints, Floats]:
        """Give the numbers of all rows, and when each was there."""
        epochs = [epoch for epoch in self.at if epoch in self._written]
        if not epochs:
            return np.array([], dtype=np.int64), np.array([])
        ids = np.concatenate([self._written[epoch] for epoch in epochs])
        at = np.concatenate([np.full(len(self._written[epoch]), self.at[epoch]) for epoch in epochs])
        return ids, at


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a contender made of the trace.

    Attributes
    ----------
    due, late
        When each row was due, in seconds from the begin, and how long it took from then; of one that was not done when
        the trace ended, how long it had waited by then.
    right
        Whether every row came exactly once, those aside that were not done.
    missing
        How many were not done in the end.
    steps
        From when on there were how many instances.
    """

    trace: Trace
    due: Floats
    late: Floats
    right: bool
    missing: int
    steps: list[tuple[float, int]]
    decisions: list[Result]

    @classmethod
    def of(
        cls,
        trace: Trace,
        arrived: Arrived,
        start: float,
        end: float,
        steps: list[tuple[float, int]],
        decisions: list[Result],
    ) -> Outcome:
        """Compare what arrived with what was due."""
        expected = trace.ids
        ids, at = arrived.arrived()
        order = np.argsort(ids, kind="stable")
        ids, at = ids[order], at[order]
        places = np.searchsorted(expected, ids)
        known = bool(len(ids) == 0 or ((places < len(expected)).all() and (expected[places] == ids).all()))
        right = known and bool((np.diff(ids) > 0).all())
        done = np.full(len(expected), end)
        if known:
            done[places] = at
        due = expected / trace.high
        missing = len(expected) - len(np.unique(ids))
        # Rows are done in their order, per key; those not done are the newest.
        return cls(trace, due, done - start - due, right, missing, steps, decisions)

    def windows(self, width_s: float) -> list[tuple[float, float]]:
        """Give the p99 of the rows that were due in each window of the time that is measured."""
        found = []
        begin, until = self.trace.warm_s, self.trace.seconds
        while begin < until:
            mine = self.late[(self.due >= begin) & (self.due < begin + width_s)]
            if len(mine):
                found.append((begin, float(np.percentile(mine, 99))))
            begin += width_s
        return found


def instance_seconds(steps: Sequence[tuple[float, int]], since: float, until: float) -> float:
    """Sum up for how long there were how many instances in a time.

    Examples
    --------
    >>> instance_seconds([(-3.0, 1), (2.0, 3), (4.0, 1)], 0.0, 10.0)
    14.0
    """
    ends = [*[at for at, _ in steps[1:]], until]
    spans = zip(steps, ends, strict=True)
    return sum(max(0.0, min(end, until) - max(since, at)) * count for (at, count), end in spans)


def changes(steps: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Leave out the steps that change nothing.

    Examples
    --------
    >>> changes([(0.0, 1), (1.0, 1), (2.0, 3)])
    [(0.0, 1), (2.0, 3)]
    """
    later = [after for before, after in pairwise(steps) if before[1] != after[1]]
    return [(round(at, 1), count) for at, count in [*steps[:1], *later]]
