"""The three operators of the demo, one of each kind, and how they are put together.

    readings -> RunningAverage (row by row, per sensor) -> rooms (declared aggregates, per room)
             -> Alarms (vectorised, per sensor)

All values are multiples of 1/64, so sums are exact and an independent computation must give equal bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman import ArrowOperator, Batch, Ferry, Operator, Output, Value, aggregates, sinks
from ferryman._demo.fleet import Fleet, readings

ALARM = 90.0
OPERATORS = ("RunningAverage", "rooms", "Alarms")


class RunningAverage(Operator):
    """Give each reading the average of its sensor so far: right only if order and state are."""

    n = Value(int, 0)
    total = Value(float, 0.0)
    output = "id long, sensor string, room string, value double, n long, mean double"

    def process(self, key: Any, row: Any) -> Iterator[tuple[Any, ...]]:
        """Take one reading into the sensor's average."""
        self.n += 1
        self.total += row.value
        yield row.id, key, row.room, row.value, self.n, self.total / self.n


class Alarms(ArrowOperator):
    """Count each sensor's readings and those above the limit, and keep its extremes, in whole columns."""

    n = Value(int, 0)
    alarms = Value(int, 0)
    low = Value(float, float("inf"))
    high = Value(float, float("-inf"))
    output = "sensor string, n long, alarms long, low double, high double"

    def process(self, batch: Batch) -> tuple[pa.Table, pa.Table]:
        """Take an epoch's readings into the counts; put out every sensor that had one."""
        value, total = batch.rows["value"].to_numpy(), len(batch.present)
        # Copies, because the extremes are updated in place and Arrow's own memory is read-only.
        low, high = batch.state["low"].to_numpy().copy(), batch.state["high"].to_numpy().copy()
        np.minimum.at(low, batch.index, value)
        np.maximum.at(high, batch.index, value)
        state = pa.table(
            {
                "n": batch.state["n"].to_numpy() + np.bincount(batch.index, minlength=total),
                "alarms": batch.state["alarms"].to_numpy() + np.bincount(batch.index[value >= ALARM], minlength=total),
                "low": low,
                "high": high,
            }
        )
        output = pa.table({"sensor": batch.keys["sensor"], **{name: state[name] for name in state.column_names}})
        return output, state


def outputs(ferry: Ferry, fleet: Fleet, out: Path) -> list[Output]:
    """Put the job together: three operators, each with a Parquet sink, all in one epoch."""
    source = ferry.stream(fleet.stream(ferry.spark)).transform(lambda rows: readings(rows, fleet.rooms))
    averages = source.key_by("sensor").process(RunningAverage)
    rooms = averages.key_by("room").aggregate(
        "rooms",
        n=aggregates.count(),
        total=aggregates.sum("value"),
        low=aggregates.min("value"),
        high=aggregates.max("value"),
        peak=aggregates.max("mean"),
    )
    alarms = source.key_by("sensor").process(Alarms)
    streams = zip(OPERATORS, (averages, rooms, alarms), strict=True)
    return [stream.write(sinks.parquet(str(sink_path(out, name)))) for name, stream in streams]


def sink_path(out: Path, operator: str) -> Path:
    """Tell where an operator's rows go."""
    return out / "rows" / operator


def checkpoint_path(out: Path) -> Path:
    """Tell where the job's state is."""
    return out / "checkpoint"
