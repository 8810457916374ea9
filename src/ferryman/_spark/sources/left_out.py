"""A source that gives no rows, in the place of one that a job does not read any more.

Spark counts the offsets of sources by their places. What takes a place has the offset at which the earlier source was
left, so that this goes on there if it comes back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ferryman._spark.compat.admission import SupportsTriggerAvailableNow

FORMAT = "ferryman_left_out"


class LeftOutSource(DataSource):
    """Stand in for a source under the format name `ferryman_left_out`."""

    @classmethod
    def name(cls) -> str:
        """Give the name that `format` takes."""
        return FORMAT

    def schema(self) -> str:
        """Give the columns, of which there are no rows."""
        return "nothing int"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a stream."""
        return _Reader(json.loads(self.options["offset"]))


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, offset: Any) -> None:
        self._offset = offset

    def initialOffset(self) -> Any:
        return self._offset

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing more is ever available."""

    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:
        return self._offset

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())


def left_out(spark: SparkSession, offset: str) -> DataFrame:
    """Give a stream without rows that stays at an offset, as Spark has written it."""
    spark.dataSource.register(LeftOutSource)
    return spark.readStream.format(FORMAT).option("offset", offset).load()
