"""The input all engines of the throughput benchmark share, and the answer they must give.

Written once as Parquet: two files per epoch, so that `maxFilesPerTrigger=2` makes the epochs equal. A
last epoch, the census, holds every key once with the value 0; its output shows the whole state of an
engine, whatever the engine, and is compared with a batch computation over the same files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "key long, value double"
FILES_PER_EPOCH = 2


@dataclass(frozen=True)
class Input:
    """Name a set of input files."""

    folder: Path
    rows_per_epoch: int
    keys: int
    epochs: int

    def stream(self, spark: SparkSession) -> DataFrame:
        """Stream the files, an epoch's worth at a time."""
        return (
            spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", FILES_PER_EPOCH)
            .option("latestFirst", "false")
            .parquet(str(self.folder))
        )

    def add_census(self) -> None:
        """Add the epoch that makes an engine show the state of every key."""
        keys = np.arange(self.keys, dtype=np.int64)
        for part, chosen in enumerate(np.array_split(keys, FILES_PER_EPOCH)):
            self.write(self.epochs, part, pa.table({"key": chosen, "value": np.zeros(len(chosen))}))

    def remove_census(self) -> None:
        """Take the census back, so that the next engine begins with the same files."""
        for part in range(FILES_PER_EPOCH):
            self._path(self.epochs, part).unlink(missing_ok=True)

    def _path(self, epoch: int, part: int) -> Path:
        return self.folder / f"epoch-{epoch:05d}-{part}.parquet"

    def write(self, epoch: int, part: int, rows: pa.Table) -> None:
        """Write one file of an epoch, so that Spark takes it in its turn."""
        path = self._path(epoch, part)
        hidden = path.with_name("_" + path.name)
        pq.write_table(rows, hidden, compression="snappy")
        # Spark orders files by the time they were changed, to the millisecond.
        at = 1_700_000_000 + epoch * FILES_PER_EPOCH + part
        os.utime(hidden, (at, at))
        hidden.replace(path)


def write_input(folder: Path, *, rows_per_epoch: int, keys: int, epochs: int, seed: int = 1) -> Input:
    """Write the files of all epochs but the census."""
    folder.mkdir(parents=True)
    made = Input(folder, rows_per_epoch, keys, epochs)
    random = np.random.default_rng(seed)
    for epoch in range(epochs):
        for part in range(FILES_PER_EPOCH):
            rows = rows_per_epoch * (part + 1) // FILES_PER_EPOCH - rows_per_epoch * part // FILES_PER_EPOCH
            chosen = random.integers(0, keys, rows)
            # Multiples of 1/64 add up exactly in any order, so results can be compared for equality.
            values = random.integers(0, 6400, rows) / 64.0
            made.write(epoch, part, pa.table({"key": chosen, "value": values}))
    return made


def differences(spark: SparkSession, made: Input, census: str) -> int:
    """Count the keys whose count or sum is not that of a plain batch aggregation.

    Sums are compared for equality: these values add up exactly in any order.
    """
    right = (
        spark.read.schema(SCHEMA)
        .parquet(str(made.folder))
        .groupBy("key")
        .agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    )
    seen = spark.read.parquet(census).select("key", "n", "total")
    return right.exceptAll(seen).count() + seen.exceptAll(right).count()
