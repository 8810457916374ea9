"""Where an epoch's rows go. A sink is idempotent by epoch: only one attempt at an epoch is ever committed.

`_engine.sink` says what a sink has to do with the engine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from ferryman._engine.sink import Sink, SinkStart
from ferryman._model.errors import CorruptCheckpoint
from ferryman._model.json_values import Misshapen, whole
from ferryman._spark.compat.session import computed
from ferryman._spark.sinks.parquet import ParquetSink, read_parquet

__all__ = ["Sink", "SinkStart", "console", "foreach", "memory", "none", "parquet", "read_parquet"]


_LABEL = re.compile(r"foreach(#[0-9]+)?")


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
    beside = True
    skips_silence = False
    label = "none"

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Compute the rows."""
        computed(rows)
        return {}

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        """Do nothing: they are computed."""
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
    beside = True
    skips_silence = False
    label = "memory"

    def __init__(self) -> None:
        self._written: dict[int, pa.Table] = {}
        self._committed: dict[int, pa.Table] = {}

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Bring the rows to the driver."""
        return self.write_table(rows.toArrow(), epoch)

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        """Keep the rows until the epoch is committed."""
        self._written[epoch] = rows
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
    skips_silence = True
    label = "console"

    def __init__(self, rows: int = 20) -> None:
        self._limit = rows

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Print the first rows of the epoch."""
        return self.write_table(rows.limit(self._limit).toArrow(), epoch)

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        """Print the first rows of those."""
        shown = rows.slice(0, self._limit).to_pylist()
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
    skips_silence = True

    def __init__(self, function: Callable[[DataFrame, int], object], name: str = "") -> None:
        # By the label itself it goes on with the numbers of one that had no name.
        self.label = name if _LABEL.fullmatch(name) else f"foreach:{name}" if name else "foreach"
        self.named = bool(name)
        self._function = function
        self._next = 0

    def begin(self, start: SinkStart) -> None:
        """Go on counting where the last committed call was."""
        self._next = self._number(start.written) + 1 if start.written else 0

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Call the function."""
        self._function(rows, self._next)
        return {"number": self._next}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Count the call."""
        if written:
            self._next = self._number(written) + 1

    def _number(self, written: Mapping[str, Any]) -> int:
        try:
            return whole(written["number"], "number")
        except (KeyError, Misshapen) as error:
            raise CorruptCheckpoint(
                f"the checkpoint does not say how often the function of sink {self.label!r} was called: its newest "
                "manifest is altered. Restore the whole checkpoint directory from one backup."
            ) from error


def parquet(path: str | os.PathLike[str]) -> ParquetSink:
    """Write Parquet files, exactly once; read them back with `read_parquet`."""
    return ParquetSink(path)


def foreach(function: Callable[[DataFrame, int], object], name: str = "") -> FunctionSink:
    """Call a function with each epoch's rows and a number that counts from 0; it must be idempotent by the number.

    Its numbers are kept by its name. Where a job has several functions all but one need one, and a start that has a
    function of another name in the place of one that was called is refused.
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
