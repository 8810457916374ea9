"""Ferryman's engines for the benchmarks: everything here that knows how a Ferryman job is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.data import Input
from bench.rivals import tws_pandas, tws_row
from ferryman import Ferry, Operator, Value, sinks
from ferryman import aggregates as agg


def vectorised(ferry: Any, rows: DataFrame) -> Any:
    """Declare the count and the sum."""
    return ferry.stream(rows).key_by("key").aggregate(n=agg.count(), total=agg.sum("value"))


def row_by_row(ferry: Any, rows: DataFrame) -> Any:
    """Write the count and the sum as an operator that sees one row at a time."""

    class CountSum(Operator):
        n = Value(int, 0)
        total = Value(float, 0.0)
        output = "key long, n long, total double"

        def process(self, key: Any, row: Any) -> None:
            self.n += 1
            self.total += row.value

        # Once per key and epoch, as the rivals do.
        def finish(self, key: Any) -> Iterator[tuple[Any, ...]]:
            yield (key, self.n, self.total)

    return ferry.stream(rows).key_by("key").process(CountSum)


def processor_row(ferry: Any, rows: DataFrame) -> Any:
    """Run the very processor that Spark's own transformWithState is measured with."""
    return tws_row(ferry.stream(rows))


def processor_pandas(ferry: Any, rows: DataFrame) -> Any:
    """Run the very processor that Spark's own transformWithStateInPandas is measured with."""
    return tws_pandas(ferry.stream(rows))


FERRIES: dict[str, Callable[[Any, DataFrame], Any]] = {
    "ferryman_vectorised": vectorised,
    "ferryman_rows": row_by_row,
    "ferryman_processor_row": processor_row,
    "ferryman_processor_pandas": processor_pandas,
}


def run_ferry(
    spark: SparkSession, name: str, made: Input, checkpoint: Path, census: Path | None, instances: int
) -> None:
    """Run all epochs there are; with `census`, keep what the engine emits there instead of dropping it."""
    stream = FERRIES[name](Ferry(spark, checkpoint=str(checkpoint)), made.stream(spark))
    sink = sinks.none() if census is None else sinks.foreach(_keeper(census))
    job = stream.write(sink).start(name, instances=instances, trigger={"availableNow": True})
    job.wait()


def start_small(
    spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int
) -> tuple[StreamingQuery, Callable[[], None]]:
    """Start the job of the epoch benchmark; give its query and what stops it."""
    stream = FERRIES["ferryman_vectorised"](Ferry(spark, checkpoint=str(checkpoint)), rows)
    job = stream.write(sinks.none()).start("epoch", instances=instances)
    query = next(one for one in spark.streams.active if one.name == job.name)
    return query, job.stop


def _keeper(census: Path) -> Callable[[DataFrame, int], None]:
    def keep(batch: DataFrame, epoch: int) -> None:
        batch.write.mode("append").parquet(str(census))

    return keep


def run_wide(
    spark: SparkSession, rows: DataFrame, checkpoint: Path, size: int, kind: str, instances: int
) -> Callable[[], int]:
    """Run a job whose state is `size` bytes per key, and give what counts the keys that have state."""

    class Payload(Operator):
        payload = Value(bytes, b"")
        output = "key long, length int"

        def process(self, key: Any, row: Any) -> None:
            self.payload = int(row.value * 64).to_bytes(8, "little") * (size // 8) + bytes(size % 8)

    keyed = Ferry(spark, checkpoint=str(checkpoint)).stream(rows).key_by("key")
    if kind == "bytes":
        stream = keyed.process(Payload, name="wide")
    else:
        sums = {f"total_{column}": agg.sum("value") for column in range(max(1, size // 8))}
        stream = keyed.aggregate(name="wide", **sums)
    job = stream.write(sinks.none()).start("memory", instances=instances, trigger={"availableNow": True})
    job.wait()
    return lambda: int(job.state("wide").to_arrow().num_rows)
