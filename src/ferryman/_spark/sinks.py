"""Where an epoch's rows go. A sink is idempotent by epoch: only one attempt at an epoch is ever committed.

A sink writes before the manifest and is told afterwards that the epoch is committed. What it returns
from `write` stands in the manifest, so after a crash `commit` can be said again from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from ferryman._spark.parquet_sink import ParquetSink, read_parquet

__all__ = ["Sink", "SinkStart", "console", "foreach", "memory", "none", "parquet", "read_parquet"]


@dataclass(frozen=True)
class SinkStart:
    """What a sink learns when a run of its job begins.

    Attributes
    ----------
    epoch
        The epoch that the job has committed last; 0: none.
    term
        The run's number, greater than that of any run before. What a sink keeps of a run with a greater one must not
        be touched: this run has been taken over.
    fsync
        Whether what is written has to survive a power cut.
    written
        What this sink returned from `write` in the last committed epoch; empty if it was not there.
    written_in
        Gives what it returned in any epoch, as the checkpoint says now: None where that epoch is not committed, is
        forgotten, or was without this sink.
    """

    epoch: int
    term: int
    fsync: bool = False
    written: Mapping[str, Any] = field(default_factory=dict)
    written_in: Callable[[int], Mapping[str, Any] | None] = lambda epoch: None


class Sink(Protocol):
    """Take the rows of an epoch.

    Attributes
    ----------
    whole
        Whether `write` runs exactly one action over all rows, so that the engine need not keep them; a sink that may
        look at the rows twice, or only at some, gets rows that are already computed.
    label
        What the sink is called in the manifests, from `claim` on. It is the sink's own and stays, however its place
        is written or wherever that is moved to; the next run finds by it what it has to say again.
    told
        Whether rows are only shown when the sink is told that their epoch is committed. If so, a job that ended
        before that does not start without the sink.
    """

    whole: bool
    label: str
    told: bool

    def claim(self, job_id: str) -> int:
        """Learn whose rows come, and refuse to mix them with another's; give the greatest term known here, or 0."""

    def begin(self, start: SinkStart) -> None:
        """Learn that a run begins, and where its job stands."""

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Write the rows of an epoch; return what `commit` will need."""

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Learn that the epoch is committed; may be said more than once, by several runs."""


class _Simple:
    """What sinks have in common that keep nothing outside the driver."""

    told = False

    def claim(self, job_id: str) -> int:
        """Know of no run."""
        return 0

    def begin(self, start: SinkStart) -> None:
        """Nothing to do."""

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Nothing to do."""


class NoSink(_Simple):
    """Run the operators and drop their output."""

    whole = True
    label = "none"

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Compute the rows."""
        rows.write.format("noop").mode("overwrite").save()
        return {}


class MemorySink(_Simple):
    """Keep the rows of committed epochs in the driver's memory, for trying things out.

    Examples
    --------
    >>> sink = MemorySink()
    >>> sink.rows()
    []
    """

    whole = True
    label = "memory"

    def __init__(self) -> None:
        self._written: dict[int, pa.Table] = {}
        self._committed: dict[int, pa.Table] = {}

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Bring the rows to the driver."""
        self._written[epoch] = rows.toArrow()
        return {}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Show the epoch's rows from now on."""
        if epoch in self._written:
            self._committed[epoch] = self._written.pop(epoch)

    def rows(self) -> list[dict[str, Any]]:
        """Give all rows of the committed epochs, oldest epoch first."""
        return [row for epoch in sorted(self._committed) for row in self._committed[epoch].to_pylist()]


class ConsoleSink(_Simple):
    """Print each epoch's rows."""

    whole = False
    label = "console"

    def __init__(self, rows: int = 20) -> None:
        self._limit = rows

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Print the first rows of the epoch."""
        shown = rows.limit(self._limit).toArrow().to_pylist()
        if shown:
            print(f"-- epoch {epoch}")
            for row in shown:
                print("  " + ", ".join(f"{name}={value}" for name, value in row.items()))
        return {}


class FunctionSink(_Simple):
    """Call a function with an epoch's rows and a number, as Spark's foreachBatch does.

    The numbers count the calls from 0. After a crash the function may be called again with the same number and the
    same rows, so it must be idempotent by it; once the epoch is committed the number does not come again. An epoch
    that came because no data did, and has no rows, does not call it.
    """

    whole = False

    def __init__(self, function: Callable[[DataFrame, int], object], name: str = "") -> None:
        self.label = f"foreach:{name}" if name else "foreach"
        self._function = function
        self._next = 0

    def begin(self, start: SinkStart) -> None:
        """Go on counting where the last committed call was."""
        self._next = int(start.written["number"]) + 1 if start.written else 0

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Call the function."""
        self._function(rows, self._next)
        return {"number": self._next}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Count the call."""
        if written:
            self._next = int(written["number"]) + 1


def parquet(path: str | os.PathLike[str]) -> ParquetSink:
    """Write Parquet files, exactly once; read them back with `read_parquet`."""
    return ParquetSink(path)


def foreach(function: Callable[[DataFrame, int], object], name: str = "") -> FunctionSink:
    """Call a function with each epoch's rows and a number that counts from 0; it must be idempotent by the number.

    Where a job has several functions, give each a name: its numbers are kept by it, and else by their order.
    """
    return FunctionSink(function, name)


def memory() -> MemorySink:
    """Keep the rows in the driver's memory, for trying things out."""
    return MemorySink()


def console(rows: int = 20) -> ConsoleSink:
    """Print the first rows of each epoch."""
    return ConsoleSink(rows)


def none() -> NoSink:
    """Run the operators for their state alone."""
    return NoSink()
