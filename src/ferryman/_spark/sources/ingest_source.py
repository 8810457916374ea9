"""An ingest log as a Spark data source: a stream of its rows, filled by a receiver for as long as the stream runs.

Spark keeps a Python process beside the driver for each stream, which it asks how far the stream goes. The receiver is a
thread of that process. It begins when Spark asks for the first time and ends when the query does; if everything is
killed, the kernel gives the lock of the log back, and the next start goes on. Tasks read ranges of offsets from the
log's files, so what an epoch holds follows from its two offsets. Calls `Ingest`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ferryman._log.ingest.ingest_files import read
from ferryman._model.errors import FerrymanError, InvalidConfiguration, to_text
from ferryman._serve.ingest.ingest import Ingest
from ferryman._serve.ingest.receiver_kinds import KINDS, ReceiverKind
from ferryman._spark.compat.admission import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

FORMAT = "ferryman_ingest"
DEFAULT_ROWS_PER_EPOCH = 200_000
# Fewer rows than these are not worth a task of their own; nor are more tasks than these, as one file is behind them.
_TASK_ROWS, _MOST_TASKS = 20_000, 8
_BATCH_BYTES = 4 << 20
_TYPES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.bool_(): "boolean",
    pa.timestamp("us", tz="UTC"): "timestamp",
}
T = TypeVar("T")


class IngestFailed(Exception):
    """Tells Spark that a stream cannot go on; the message has the error."""


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """Name the rows that one task reads."""

    begin: int
    end: int
    log: str


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """What a stream of an ingest log is told."""

    kind: str
    path: str
    max_bytes: int
    keep_bytes: int
    rows_per_epoch: int
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> IngestOptions:
        """Read them as Spark passes them."""
        given = {name.lower(): value for name, value in options.items()}
        settings = json.loads(given["settings"])
        # They are options of their own, by names that Spark shows nobody.
        settings |= {name: given[name] for name in ("password", "token") if name in given}
        return cls(
            kind=given["kind"],
            path=given["path"],
            max_bytes=int(given["max_bytes"]),
            keep_bytes=int(given["keep_bytes"]),
            rows_per_epoch=int(given["rows_per_epoch"]),
            settings=settings,
        )

    @property
    def of_kind(self) -> ReceiverKind:
        """Give what is known of its kind."""
        return KINDS[self.kind]


class IngestSource(DataSource):
    """Serve the rows of an ingest log under the format name `ferryman_ingest`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._options = IngestOptions.of(dict(options.items()))

    @classmethod
    def name(cls) -> str:
        """Give the name that `format` takes."""
        return FORMAT

    def schema(self) -> str:
        """Give the columns."""
        kind = self._options.of_kind
        return "offset long, " + ", ".join(f"{name} {_TYPES[kind.schema.field(name).type]}" for name in kind.columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a stream."""
        return IngestStreamReader(self._options)


class IngestStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Hand out what is durable in the log, and receive meanwhile.

    Tasks get a copy of it, which does not receive.
    """

    def __init__(self, options: IngestOptions) -> None:
        self._options = options
        self._ingest: Ingest | None = None
        self._stands_at: dict[str, Any] | None = None
        # Whether the stream ends at what is durable when it begins, and where that is.
        self._ends = False
        self._ends_at: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Give what tasks need: nothing that the receiver alone is told, such as a password."""
        return {**self.__dict__, "_ingest": None, "_options": replace(self._options, settings={})}

    def _receiving(self, read: tuple[str, int] | None) -> Ingest:
        if self._ingest is None:
            options = self._options
            kind = options.of_kind
            self._ingest = Ingest(
                options.path,
                kind.schema,
                kind.begin(options.settings),
                max_bytes=options.max_bytes,
                keep_bytes=options.keep_bytes,
                read=read,
            )
        self._ingest.check()
        return self._ingest

    def initialOffset(self) -> dict[str, Any]:
        """Begin with the oldest row that is there."""

        def oldest() -> dict[str, Any]:
            log = self._receiving(None).log
            return {"log": log.id, "offset": log.begin}

        return _said(oldest)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Ask Spark for epochs of at most `rows_per_epoch`."""
        return ReadMaxRows(self._options.rows_per_epoch)

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is durable as the end of the stream, as soon as Spark says where it begins."""
        self._ends = True

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Say how far the next epoch may read. All before its start is committed, and may go."""
        return _said(lambda: self._latest(start, getattr(limit, "max_rows", None)))

    def _latest(self, start: dict[str, Any] | None, most: int | None) -> dict[str, Any]:
        # Spark 4.1 does not say where the stream stands: at the end of what it has read last.
        begin = start or self._stands_at
        read = None if begin is None else (str(begin["log"]), int(begin["offset"]))
        ingest = self._receiving(read)
        log = ingest.log
        name, at = read or (log.id, log.begin)
        ingest.committed(name, at)
        if self._ends and self._ends_at is None:
            self._ends_at = log.end
        end = log.end if self._ends_at is None else max(at, self._ends_at)
        return {"log": log.id, "offset": min(end, at + (most or self._options.rows_per_epoch))}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Say how far the log goes, for Spark's progress to show what is waiting."""
        if self._ingest is None:
            return None
        return {"log": self._ingest.log.id, "offset": self._ingest.log.end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut the rows of an epoch into tasks, by their number alone: a redone epoch is cut in the same way."""
        self._stands_at = end
        begin, rows = int(start["offset"]), int(end["offset"]) - int(start["offset"])
        parts = max(1, min(_MOST_TASKS, rows // _TASK_ROWS))
        bounds = [begin + rows * part // parts for part in range(parts + 1)]
        log = str(end["log"])
        return [OffsetRange(first, last, log) for first, last in pairwise(bounds) if first < last]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one task."""
        assert isinstance(partition, OffsetRange)
        return _read(self._options, partition)

    def stop(self) -> None:
        """Receive nothing more."""
        if self._ingest is not None:
            self._ingest.end()
            self._ingest = None


def _read(options: IngestOptions, part: OffsetRange) -> Iterator[pa.RecordBatch]:
    columns = options.of_kind.columns
    waiting: list[pa.RecordBatch] = []
    try:
        for first, rows in read(Path(options.path), part.begin, part.end, log=part.log):
            offsets = pa.array(range(first, first + rows.num_rows), pa.int64())
            waiting.append(
                pa.record_batch(
                    [offsets, *(rows.column(name) for name in columns)],
                    schema=pa.schema([("offset", pa.int64()), *(rows.schema.field(name) for name in columns)]),
                )
            )
            # Blocks may have a row each, and every batch has its price.
            if sum(batch.nbytes for batch in waiting[-64:]) > _BATCH_BYTES or len(waiting) == 4096:
                yield from _joined(waiting)
                waiting = []
    except FerrymanError as error:
        raise IngestFailed(to_text(error)) from error
    yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if batches:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def _said(ask: Callable[[], T]) -> T:
    """Have an error reach the driver, through Spark, as the one it is."""
    try:
        return ask()
    except FerrymanError as error:
        raise IngestFailed(to_text(error)) from error


def ingest(
    spark: SparkSession,
    kind: str,
    log: str | Path,
    settings: Mapping[str, Any],
    *,
    max_bytes: int,
    keep_bytes: int | None,
    rows_per_epoch: int,
    secrets: Mapping[str, str],
) -> DataFrame:
    """Stream the rows of an ingest log, and have it filled."""
    keep = max_bytes // 16 if keep_bytes is None else keep_bytes
    if max_bytes < 1 << 20 or not 0 <= keep <= max_bytes // 4 or rows_per_epoch < 1:
        raise InvalidConfiguration.of(
            ["max_bytes is at least 1048576, keep_bytes at most a quarter of it, rows_per_epoch at least 1"]
        )
    spark.dataSource.register(IngestSource)
    options = {
        "kind": kind,
        "path": str(Path(log).absolute()),
        "max_bytes": str(max_bytes),
        "keep_bytes": str(keep),
        "rows_per_epoch": str(rows_per_epoch),
        "settings": json.dumps(settings),
        **{name: value for name, value in secrets.items() if value},
    }
    return spark.readStream.format(FORMAT).options(**options).load()
