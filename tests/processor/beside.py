"""Run one and the same pipeline on Spark and on Ferryman, batch by batch, and compare the rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from appearing import appear
from processor.calls import FERRYMAN, SPARK, Calls, WatchedStream
from pyspark.sql import DataFrame, SparkSession

from ferryman import Ferry, sinks
from ferryman._spark.plan.schema import declared_struct, to_arrow

Rows = list[tuple[Any, ...]]


# All of the test that runs now; `conftest` looks at what they called.
RUNS: list[Beside] = []


class Beside:
    """The input of both, and what each made of it."""

    def __init__(self, spark: SparkSession, place: Path, schema: str) -> None:
        self.spark = spark
        self.place = place
        self.schema = declared_struct(schema, "input")
        self._written = 0
        self.calls = {engine: Calls(place / f"calls-{engine}") for engine in (SPARK, FERRYMAN)}
        RUNS.append(self)

    def give(self, *batches: Sequence[tuple[Any, ...]]) -> None:
        """Add batches to the input, one file each."""
        arrow = to_arrow(self.schema)
        folder = self.place / "input"
        for batch in batches:
            columns = list(zip(*batch, strict=True)) if batch else [()] * len(arrow)
            table = pa.Table.from_arrays(
                [pa.array(column, f.type) for column, f in zip(columns, arrow, strict=True)], schema=arrow
            )
            path = folder / f"{self._written:04d}.parquet"
            appear(path, 1_000_000_000 + self._written * 10, partial(pq.write_table, table))
            self._written += 1

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.place / "input"))

    def on_spark(self, build: Callable[[Any], Any], mode: str = "update", *, until: int | None = None) -> Rows:
        """Run on Spark's own; by the clock it never ends by itself, and is stopped after so many rows have come out."""
        rows: Rows = []
        ending = threading.Event()
        query = (
            build(WatchedStream(self.stream(), self.calls[SPARK]))
            .inner.writeStream.outputMode(mode)
            .foreachBatch(until_ending(ending, rows.extend))
            .option("checkpointLocation", str(self.place / "spark"))
            .trigger(**({"availableNow": True} if until is None else {"processingTime": "0 seconds"}))
            .start()
        )
        if until is None:
            query.awaitTermination()
            return rows
        deadline = time.monotonic() + 120
        while len(rows) < until and time.monotonic() < deadline and query.isActive:
            query.awaitTermination(0.2)
        ending.set()
        query.stop()
        return rows

    def on_ferryman(self, build: Callable[[Any], Any], *, instances: int = 2, name: str = "ferried") -> Rows:
        """Run on Ferryman."""
        rows: Rows = []
        ferry = Ferry(self.spark, self.place / name)
        stream = self.watched(ferry, build)
        sink = sinks.foreach(lambda frame, _: rows.extend(tuple(row) for row in frame.collect()))
        stream.write(sink).start(name, instances=instances, trigger={"availableNow": True}).wait()
        return rows

    def watched(self, ferry: Ferry, build: Callable[[Any], Any]) -> Any:
        """Build a pipeline on Ferryman, and note what it calls."""
        built = build(WatchedStream(ferry.stream(self.stream()), self.calls[FERRYMAN]))
        return built.inner if isinstance(built, WatchedStream) else built


def until_ending(ending: threading.Event, take: Callable[[Rows], object]) -> Callable[[DataFrame, int], None]:
    """Give the rows of batches to a function, until the query is to end.

    Spark reads the text of what a batch under way fails with when it is stopped, by a pattern that needs a stack as
    deep as that text is long. So nothing is raised then.
    """

    def batch(frame: DataFrame, _: int) -> None:
        try:
            take([tuple(row) for row in frame.collect()])
        except Exception:
            if not ending.is_set():
                raise

    return batch


def same(one: Rows, other: Rows) -> None:
    mine, theirs = sorted(one, key=repr), sorted(other, key=repr)
    assert mine == theirs, _differences(mine, theirs)


def _differences(mine: Rows, theirs: Rows) -> str:
    sides = (("only Ferryman", mine, theirs), ("only Spark", theirs, mine))
    lines = [f"{side}: {row!r}" for side, rows, others in sides for row in rows if row not in others]
    return "\n".join(lines) or f"{len(mine)} and {len(theirs)} rows"
