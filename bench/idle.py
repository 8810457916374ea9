"""What it costs to be ready for a change when nobody asks for one: the same job with all of it and without, in turns.

With: as every job is. The layout of each epoch is asked for, load is counted, the driver listens for requests, and a
state host stands by on every host.

Without: the layout is fixed, no load is gathered, nobody listens, no state host is started. What remains is not there
for changes alone: key groups are how state is kept, and the anchor keeps instances where their state is. Tasks count
their rows by key group in both, a pass over a column of hashes.
"""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.report import Result, spread
from ferryman import Ferry, aggregates, sinks, sources
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._spark.api.job import Job
from ferryman._spark.plan.planner import Planner

_KEYS = 100_000
_ROWS = 200_000
# The state hosts start after ten epochs, and take a while to come up.
_WARM = 20
_EPOCHS = 25


class Fixed:
    """Stand in for what gives every epoch its layout: it is always the same."""

    def __init__(self, layout: Planner) -> None:
        self.layout = layout
        self.epoch_wanted_s = None
        self.holding = False

    @property
    def table(self) -> RoutingTable:
        """Give the only table there is."""
        return self.layout.routing

    def begin(self, redone: frozenset[int] | None = None) -> tuple[Planner, frozenset[int]]:
        """Give the layout."""
        return self.layout, frozenset()

    def ended(self, layout: Planner, latest: Manifest | None, *, committed: bool, receipts: Any = ()) -> None:
        """Nothing to learn."""

    def relay(self, instances: int) -> None:
        """It stays as it is."""

    def history(self) -> list[Any]:
        """Nothing happened."""
        return []

    def abort(self, reason: str) -> None:
        """Nothing to give up."""

    def close(self, why: str) -> None:
        """Nothing to end."""

    def release(self) -> None:
        """Nothing to let go of."""


def measure(spark: SparkSession, place: Path, *, rounds: int) -> Result:
    """Run both in turns, and compare the rows they do in a second.

    Parameters
    ----------
    spark
        A session on a cluster of several hosts.
    place
        Where to put checkpoints.
    rounds
        How many times each.
    """
    found: dict[str, list[float]] = {"with": [], "without": []}
    for number in range(rounds):
        # The order changes from round to round, so that neither always follows the other.
        for how in ("with", "without") if number % 2 == 0 else ("without", "with"):
            found[how].append(_rows_per_s(spark, place / f"{number}-{how}", ready=how == "with"))
    ratios = [a / b for a, b in zip(found["with"], found["without"], strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": spread(ratios),
        "rows_per_s": {how: spread(values) for how, values in found.items()},
        "rows_per_epoch": _ROWS,
        "epochs": _EPOCHS,
    }


def _rows_per_s(spark: SparkSession, place: Path, *, ready: bool) -> float:
    rows = sources.generator(spark, keys=_KEYS, rows_per_epoch=_ROWS, partitions=2)
    stream = Ferry(spark, str(place), snapshot_every=1000).stream(rows).key_by("key")
    job = (
        stream.aggregate(n=aggregates.count(), total=aggregates.sum("value"))
        .write(sinks.none())
        .start("idle", instances=2)
    )
    try:
        if not ready:
            _unready(job)
        job.wait_for(lambda: job.epoch >= _WARM + _EPOCHS, timeout=600)
    finally:
        job.stop()
    measured = [epoch for epoch in job.progress() if _WARM < epoch.epoch <= _WARM + _EPOCHS]
    # From commit to commit: all that an epoch takes, Spark's own part too. The median, as a pause of the machine is
    # neither's doing.
    times = [b.committed_ms - a.committed_ms for a, b in itertools.pairwise(measured)]
    return _ROWS * 1000 / statistics.median(times)


def _unready(job: Job) -> None:
    """Take away all that only a change needs; before its tenth epoch, when state hosts would be started."""
    job._endpoint.close()
    with job._turn:
        job._runner.coordinator = Fixed(job._runner.coordinator.layout)  # type: ignore[assignment]
