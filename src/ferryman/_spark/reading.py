"""How Spark cuts the data of a micro-batch into partitions: by settings, and by the number of cores.

The order of rows follows the partitions, and so do the partial sums of declared aggregates. A micro-batch that is
done again must give the same rows on any machine, so it is cut as it was when it was begun.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
SETTINGS = (
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.maxPartitionNum",
    PARALLELISM,
)


def reading_of(spark: SparkSession) -> dict[str, str]:
    """Give the settings by which a session reads; the number of cores stands for what is left to it."""
    found = {name: spark.conf.get(name, None) for name in SETTINGS}
    found[PARALLELISM] = found[PARALLELISM] or str(spark.sparkContext.defaultParallelism)
    return {name: value for name, value in found.items() if value is not None}


def read_as(conf: Any, reading: Mapping[str, str]) -> None:
    """Have a session read by these settings from now on."""
    for name in SETTINGS:
        if name in reading:
            conf.set(name, reading[name])
        else:
            conf.unset(name)


@contextlib.contextmanager
def reading_as(spark: SparkSession, reading: Mapping[str, str] | None) -> Iterator[None]:
    """Have what is begun meanwhile read by these settings, and the session itself as before."""
    if reading is None:
        yield
        return
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    read_as(spark.conf, reading)
    try:
        yield
    finally:
        read_as(spark.conf, {name: value for name, value in before.items() if value is not None})
