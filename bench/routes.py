"""Ways for the rows of a small epoch to reach Python without a shuffle, each without any state: what they cost as such.

gather_then_job    bring the rows to the driver, then one Spark job over a cached row per instance, with the
                   instances' rows in its function
gather_then_call   bring the rows to the driver, then call a process that is there
one_task           one Spark task that reads the rows and works on all of them: what express epochs do
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

# Gives back what it gets: the length, then the bytes.
_ECHO = """
import sys
while head := sys.stdin.buffer.read(8):
    data = sys.stdin.buffer.read(int.from_bytes(head, "little"))
    sys.stdout.buffer.write(head + data)
    sys.stdout.buffer.flush()
"""

Running = tuple[StreamingQuery, Callable[[], None]]


def _start(rows: DataFrame, checkpoint: Path, epochs: int, work: Callable[[DataFrame], None]) -> StreamingQuery:
    def epoch(batch: DataFrame, number: int) -> None:
        # Stopped in the middle of a Spark job, the query would print Java's stack; so it idles at the end.
        if number < epochs:
            work(batch)

    return rows.writeStream.foreachBatch(epoch).option("checkpointLocation", str(checkpoint)).start()


def gather_then_job(spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int, epochs: int) -> Running:
    """Gather, then a job over a cached row per instance."""
    anchor = spark.range(0, instances, 1, instances).cache()
    anchor.count()

    def work(batch: DataFrame) -> None:
        data = _bytes(_routed(batch).toArrow())

        def through(batches: Iterable[Any]) -> Iterator[Any]:
            for _ in batches:
                pass
            yield from pa.ipc.open_stream(data)

        anchor.mapInArrow(through, "key long, value double, hash long, seq long").toArrow()

    query = _start(rows, checkpoint, epochs, work)
    return query, _then(query.stop, anchor.unpersist)


def gather_then_call(spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int, epochs: int) -> Running:
    """Gather, then call a process per instance."""
    some = [
        subprocess.Popen([sys.executable, "-c", _ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(instances)
    ]

    def work(batch: DataFrame) -> None:
        data = _bytes(_routed(batch).toArrow())
        for process in some:
            assert process.stdin is not None
            process.stdin.write(len(data).to_bytes(8, "little") + data)
            process.stdin.flush()
        for process in some:
            assert process.stdout is not None
            size = int.from_bytes(process.stdout.read(8), "little")
            pa.ipc.open_stream(io.BytesIO(process.stdout.read(size))).read_all()

    query = _start(rows, checkpoint, epochs, work)
    return query, _then(query.stop, *(process.kill for process in some))


def one_task(spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int, epochs: int) -> Running:
    """Read and work in one task."""
    from ferryman._spark.compat.one_task import OneTask

    task = OneTask()

    def through(batches: Iterable[Any]) -> list[bytes]:
        return [_bytes(pa.Table.from_batches([batch])) for batch in batches]

    def work(batch: DataFrame) -> None:
        task.run(batch, through)

    query = _start(rows, checkpoint, epochs, work)
    return query, query.stop


ROUTES = {"gather_then_job": gather_then_job, "gather_then_call": gather_then_call, "one_task": one_task}


def _routed(batch: DataFrame) -> DataFrame:
    columns = [F.col("key"), F.col("value"), F.xxhash64("key").alias("hash")]
    return batch.select(*columns, F.monotonically_increasing_id().alias("seq"))


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _then(*calls: Callable[[], Any]) -> Callable[[], None]:
    def both() -> None:
        for call in calls:
            call()

    return both
