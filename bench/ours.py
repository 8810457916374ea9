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


def _alone(ferry: Any, rows: DataFrame) -> list[Any]:
    return [vectorised(ferry, rows)]


def _chain(ferry: Any, rows: DataFrame) -> list[Any]:
    """Three operators, one after the other, on one key."""
    stream = ferry.stream(rows)
    for number in range(3):
        stream = stream.key_by("key").aggregate(name=f"Sum{number}", value=agg.sum("value"))
    return [stream]


def _other_keys(ferry: Any, rows: DataFrame) -> list[Any]:
    """Three operators, one after the other, each on a key that the one before has made."""

    class Rekeyed(Operator):
        n = Value(int, 0)
        output = "key long, value double"

        def process(self, key: Any, row: Any) -> Iterator[tuple[Any, ...]]:
            self.n += 1
            yield (key * 7 + 1) % 1000, row.value

    stream = ferry.stream(rows)
    for number in range(3):
        stream = stream.key_by("key").process(Rekeyed, name=f"Rekeyed{number}")
    return [stream]


def _three_sinks(ferry: Any, rows: DataFrame) -> list[Any]:
    """Three operators beside each other, each with a sink."""
    stream = ferry.stream(rows)
    columns = ("key", "half", "third")
    keyed = stream.selectExpr("key", "key % 500 AS half", "key % 333 AS third", "value")
    return [keyed.key_by(column).aggregate(name=f"By_{column}", total=agg.sum("value")) for column in columns]


SHAPES: dict[str, Callable[[Any, DataFrame], list[Any]]] = {
    "ferryman": _alone,
    "chain": _chain,
    "other_keys": _other_keys,
    "three_sinks": _three_sinks,
}


def start_job(
    spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int, shape: str = "ferryman"
) -> tuple[Any, StreamingQuery]:
    """Start a job of the epoch benchmark; with `_by_shuffle` behind its name, without express epochs."""
    options: dict[str, Any] = {"express": False} if shape.endswith("_by_shuffle") else {}
    ferry = Ferry(spark, checkpoint=str(checkpoint), **options)
    streams = SHAPES[shape.removesuffix("_by_shuffle")](ferry, rows)
    job = ferry.start("epoch", *(stream.write(sinks.none()) for stream in streams), instances=instances)
    return job, next(query for query in spark.streams.active if query.name == job.name)


def start_small(
    spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int, shape: str = "ferryman"
) -> tuple[StreamingQuery, Callable[[], None]]:
    """Start such a job; give its query and what stops it."""
    job, query = start_job(spark, rows, checkpoint, instances, shape)
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
