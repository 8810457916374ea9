"""The replayable generator as a Spark data source, for streams and for batches.

The offset of a stream is the number of rows so far; which rows an epoch holds follows from its two
offsets alone, so a replayed epoch reads the same rows. May call `_model` and `generated_rows`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ferryman._model.errors import InvalidConfiguration
from ferryman._sources.generated_rows import DEFAULT_ROWS_PER_EPOCH, GeneratorOptions, generate
from ferryman._spark.compat.admission import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

FORMAT = "ferryman_generator"
_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class RowRange(InputPartition):
    """Name the rows that one task reads."""

    begin: int
    end: int


def _read(options: GeneratorOptions, part: RowRange) -> Iterator[pa.RecordBatch]:
    for begin in range(part.begin, part.end, _BATCH_ROWS):
        yield generate(options, begin, min(begin + _BATCH_ROWS, part.end))


class GeneratorSource(DataSource):
    """Serve generated rows under the format name `ferryman_generator`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._options = GeneratorOptions.of(dict(options.items()))

    @classmethod
    def name(cls) -> str:
        """Give the name that `format` takes."""
        return FORMAT

    def schema(self) -> str:
        """Give the columns; the key is text where it has a prefix."""
        key = "long" if self._options.key_prefix is None else "string"
        return f"id long, key {key}, value double, event_time timestamp"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch."""
        if self._options.rows is None:
            raise InvalidConfiguration.of(["rows: a batch needs an end; give the number of rows"])
        return _BatchReader(self._options, self._options.rows)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a stream."""
        return GeneratorStreamReader(self._options)


class _BatchReader(DataSourceReader):
    def __init__(self, options: GeneratorOptions, rows: int) -> None:
        self._options = options
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [RowRange(begin, end) for begin, end in self._options.partition_ranges(0, self._rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowRange)
        return _read(self._options, partition)


class GeneratorStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Hand out offsets at the generator's pace and read the rows between two of them.

    On Spark 4.1, which asks for offsets without saying where the stream stands, the reader goes by
    the ranges it was asked to read: Spark shows it the last one again when a stream restarts. There
    `availableNow` covers one `rows_per_epoch`, for Spark takes one answer as the end.
    """

    def __init__(self, options: GeneratorOptions) -> None:
        self._options = options
        self._stands_at = 0
        self._ends_at = options.rows

    def initialOffset(self) -> dict[str, int]:
        """Begin before row 0."""
        return {"rows": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Ask Spark for epochs of at most `rows_per_epoch`."""
        limit = self._per_epoch()
        # A limit no epoch can reach rather than ReadAllAvailable, so that there is one kind to respect.
        return ReadMaxRows((1 << 62) if limit is None else limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is available now as the end of the stream."""
        self._ends_at = self._options.available(_now_us())
        if self._ends_at is None:
            raise InvalidConfiguration.of(
                ["rows: a generator without rate and rows has no end that availableNow could reach"]
            )

    def latestOffset(self, start: dict[str, int] | None = None, limit: ReadLimit | None = None) -> dict[str, int]:
        """Say how far the next epoch may read; Spark 4.1 passes no arguments."""
        begin = self._stands_at if start is None else int(start["rows"])
        most = self._options.available(_now_us())
        if self._ends_at is not None:
            most = self._ends_at if most is None else min(most, self._ends_at)
        step = getattr(limit, "max_rows", None)
        if step is None and (limit is None or most is None):
            step = self._per_epoch()
        ends = [bound for bound in (most, None if step is None else begin + step) if bound is not None]
        # A clock set back, or a restart with a later `start`, must not take rows back.
        return {"rows": max(begin, min(ends))}

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Say how many rows exist, for Spark's progress to show what is waiting."""
        rows = self._options.available(_now_us())
        return None if rows is None else {"rows": rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Cut the rows of an epoch into tasks."""
        self._stands_at = int(end["rows"])
        return [RowRange(a, b) for a, b in self._options.partition_ranges(int(start["rows"]), int(end["rows"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Compute the rows of one task."""
        assert isinstance(partition, RowRange)
        return _read(self._options, partition)

    def _per_epoch(self) -> int | None:
        options = self._options
        if options.rows_per_epoch is None and options.rate is None and options.rows is None:
            return DEFAULT_ROWS_PER_EPOCH
        return options.rows_per_epoch


def _now_us() -> int:
    return time.time_ns() // 1000


def generator(
    spark: SparkSession,
    *,
    keys: int = 1000,
    rows: int | None = None,
    rate: float | None = None,
    rows_per_epoch: int | None = None,
    seed: int = 0,
    skew: float = 0.0,
    partitions: int | None = None,
    start: datetime | str | None = None,
    interval_ms: float | None = None,
    key_prefix: str | None = None,
) -> DataFrame:
    """Stream generated rows that any later run can read again, row for row.

    Columns are `id long` (0, 1, 2, ...), `key` (long, or string with `key_prefix`), `value double`
    (multiples of 1/64 below 100, so that sums are exact) and `event_time timestamp`. A row depends on
    `seed`, its id and the options named below as shaping it, never on the epoch it falls into.

    Parameters
    ----------
    spark
        The session to read with.
    keys
        How many keys there are, numbered from 0. Shapes the rows.
    rows
        How many rows there are in all; without it the stream has no end.
    rate
        Rows per second, by the wall clock from `start`: a stream that was down catches up. Shapes the
        event times. Without it each epoch takes the next `rows_per_epoch`.
    rows_per_epoch
        The most rows of one epoch. Without it an epoch takes all there are (10,000 where there is no end).
    seed
        Chooses the sequence of rows.
    skew
        The Zipf exponent of the keys, key 0 the most frequent; 0 is uniform. Shapes the rows.
    partitions
        How many tasks read an epoch, fewer when it is short; by default as many as Spark has cores.
    start
        Event time of row 0, and with `rate` the moment it is due; naive times are UTC. By default
        2026-01-01, with `rate` the moment of the call. Give it when a rated stream is to be restarted.
    interval_ms
        Event time between two rows, without `rate`; 1 by default.
    key_prefix
        Makes the keys text, such as `sensor-17` with the prefix `sensor-`.

    Returns
    -------
    DataFrame
        A streaming DataFrame.

    Raises
    ------
    InvalidConfiguration
        With every option that is wrong.

    Examples
    --------
    >>> from ferryman.sources import generator
    >>> readings = generator(spark, keys=10, rows=100, rows_per_epoch=20, key_prefix="sensor-")
    >>> readings.isStreaming
    True
    """
    options = _checked(
        keys=keys, rows=rows, rate=rate, rows_per_epoch=rows_per_epoch, seed=seed, skew=skew,
        partitions=partitions, start=start, interval_ms=interval_ms, key_prefix=key_prefix,
    )  # fmt: skip
    if options.rate is not None and options.start is None:
        options = replace(options, start=datetime.now(timezone.utc))
    options = _registered(spark, options)
    return spark.readStream.format(FORMAT).options(**options.as_strings()).load()


def generated(
    spark: SparkSession,
    *,
    rows: int,
    keys: int = 1000,
    rate: float | None = None,
    seed: int = 0,
    skew: float = 0.0,
    partitions: int | None = None,
    start: datetime | str | None = None,
    interval_ms: float | None = None,
    key_prefix: str | None = None,
) -> DataFrame:
    """Read as a batch the first `rows` rows that `generator` streams with the same options.

    Parameters are those of `generator`; with `rate` also give `start`, for without it the stream's
    event times began at the moment it was made.

    Returns
    -------
    DataFrame
        A batch DataFrame: what an independent computation of a stream's results starts from.

    Raises
    ------
    InvalidConfiguration
        With every option that is wrong.

    Examples
    --------
    >>> from ferryman.sources import generated
    >>> generated(spark, rows=3, keys=10, seed=7).count()
    3
    """
    options = _checked(
        keys=keys, rows=rows, rate=rate, seed=seed, skew=skew, partitions=partitions, start=start,
        interval_ms=interval_ms, key_prefix=key_prefix,
    )  # fmt: skip
    if options.rate is not None and options.start is None:
        raise InvalidConfiguration.of(["start: needed with rate; give the one the stream has"])
    options = _registered(spark, options)
    return spark.read.format(FORMAT).options(**options.as_strings()).load()


def _checked(**options: object) -> GeneratorOptions:
    return GeneratorOptions.of(options)


def _registered(spark: SparkSession, options: GeneratorOptions) -> GeneratorOptions:
    spark.dataSource.register(GeneratorSource)
    if options.partitions is not None:
        return options
    return replace(options, partitions=spark.sparkContext.defaultParallelism)
