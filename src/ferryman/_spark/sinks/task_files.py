"""Have tasks write Parquet files by Ferryman's own ways to a directory, also where Spark itself may not reach.

They are plain Parquet, with times as every reader knows them. A task's file has a name of its own, and only those that
tasks have told of count. So a task may be retried, run twice, or come too late. Calls `Directory`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ferryman._log.files.directory import directory
from ferryman._spark.compat.conversion import arrow_schema

_NAME = pa.schema([("name", pa.string())])


@dataclass(frozen=True)
class WriteTask:
    """Write a task's rows into a folder, as one file; tell its name."""

    address: str
    folder: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write what comes; nothing, if no rows come."""
        out = pa.BufferOutputStream()
        writer: pq.ParquetWriter | None = None
        for batch in batches:
            if batch.num_rows:
                writer = writer or pq.ParquetWriter(out, batch.schema, store_schema=False)
                writer.write_batch(batch)
        if writer is None:
            return
        writer.close()
        name = f"part-{uuid.uuid4().hex}.parquet"
        directory(self.address).write(f"{self.folder}/{name}", out.getvalue())
        yield pa.record_batch([[name]], schema=_NAME)


@dataclass(frozen=True)
class ReadTask:
    """Read files that tasks have written."""

    address: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files whose names come."""
        place = directory(self.address)
        for name in (name for batch in batches for name in batch.column(0).to_pylist()):
            rows = pq.read_table(pa.BufferReader(place.read(name)))
            columns = [
                rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
                for field in self.schema
            ]
            yield from pa.table(columns, names=self.schema.names).cast(self.schema).to_batches()


def write_files(rows: DataFrame, address: str, folder: str) -> list[str]:
    """Have tasks write rows into a folder of a directory; name the files, in the order of tasks."""
    told = rows.mapInArrow(WriteTask(address, folder), "name string").toArrow()
    return [str(name) for name in told.column(0).to_pylist()]


def read_files(spark: SparkSession, address: str, names: Sequence[str], schema: StructType) -> DataFrame:
    """Read files of a directory by tasks, some files each."""
    parts = max(1, min(len(names), spark.sparkContext.defaultParallelism))
    listed = spark.createDataFrame([(name,) for name in names], "name string").repartition(parts)
    return listed.mapInArrow(ReadTask(address, arrow_schema(schema)), schema)
