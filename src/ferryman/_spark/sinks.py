"""Where an epoch's rows go. A sink is idempotent by epoch: writing epoch E again replaces epoch E.

A sink writes before the manifest and is told afterwards that the epoch is committed. What it returns
from `write` stands in the manifest, so after a crash `commit` can be said again from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ferryman._log.directory import Directory, directory
from ferryman._model.errors import ForeignCheckpoint

OWNER = "_ferryman/owner.json"


class Sink(Protocol):
    """Take the rows of an epoch.

    `label` names the sink in the manifests. `whole` tells that `write` runs exactly one action over all
    rows, so that the engine need not keep them; a sink that may look at the rows twice, or only at some,
    gets rows that are already computed.
    """

    whole: bool
    label: str

    def begin(self, job_id: str, epoch: int) -> None:
        """Learn that a job begins or goes on, and which epoch it has committed last (0: none)."""

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Write the rows of an epoch; return what `commit` will need."""

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Learn that the epoch is committed; may be said more than once."""


class NoSink:
    """Run the operators and drop their output."""

    whole = True
    label = "none"

    def begin(self, job_id: str, epoch: int) -> None:
        """Nothing to do."""

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Compute the rows."""
        rows.write.format("noop").mode("overwrite").save()
        return {}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Nothing to do."""


class MemorySink:
    """Keep the rows of committed epochs in the driver's memory, for trying things out.

    Examples
    --------
    >>> sink = MemorySink()
    >>> sink.rows()
    []
    """

    whole = True
    label = "memory"

    def begin(self, job_id: str, epoch: int) -> None:
        """Nothing to do."""

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


class ConsoleSink:
    """Print each epoch's rows."""

    whole = False
    label = "console"

    def begin(self, job_id: str, epoch: int) -> None:
        """Nothing to do."""

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

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Nothing to do."""


class FunctionSink:
    """Call a function with the rows and the epoch, as Spark's foreachBatch does.

    The function must be idempotent by epoch: after a crash it may be called again with the same epoch
    and the same rows. A silent epoch calls it with no rows.
    """

    whole = False
    label = "foreach"

    def begin(self, job_id: str, epoch: int) -> None:
        """Nothing to do."""

    def __init__(self, function: Callable[[DataFrame, int], object]) -> None:
        self._function = function

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Call the function."""
        self._function(rows, epoch)
        return {}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Nothing to do: the function has no second step."""


class ParquetSink:
    """Write Parquet files, exactly once: only the files of committed epochs are ever listed.

    An epoch's files are written to `epoch=<number>/` and appear in `_ferryman/<number>.json` after the
    epoch's manifest. `read` gives the rows of those epochs and no others.
    """

    whole = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path).rstrip("/")
        self.label = f"parquet:{self.path}"
        self._directory = directory(self.path)

    def begin(self, job_id: str, epoch: int) -> None:
        """Refuse the output of another checkpoint; forget epochs that a restored checkpoint no longer has."""
        try:
            owner = json.loads(self._directory.read(OWNER).to_pybytes())["job"]
        except FileNotFoundError:
            owner = job_id
            self._directory.write(OWNER, json.dumps({"job": job_id}).encode())
        if owner != job_id:
            raise ForeignCheckpoint(
                f"{self.path} holds the output of a job with another checkpoint; its epochs would be mixed with those "
                "of this job. Write to another directory, or remove that one."
            )
        later = [name for name in _lists(self._directory) if int(name[:-5]) > epoch]
        self._directory.delete(f"_ferryman/{name}" for name in later)

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Write the epoch's files, in place of those of an attempt that was not committed."""
        folder = f"epoch={epoch:012d}"
        rows.write.mode("overwrite").parquet(f"{self._directory.spark_uri}/{folder}")
        files = [f"{folder}/{name}" for name in self._directory.list(folder) if name.endswith(".parquet")]
        return {"files": files, "schema": rows.schema.json()}

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """List the epoch's files."""
        self._directory.write(f"_ferryman/{epoch:012d}.json", json.dumps(written).encode())

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the rows of all committed epochs as a DataFrame."""
        return read_parquet(spark, self.path)


def _lists(place: Directory) -> list[str]:
    return [name for name in place.list("_ferryman") if name[:-5].isdigit()]


def read_parquet(spark: SparkSession, path: str | os.PathLike[str]) -> DataFrame:
    """Read what a Parquet sink wrote: the rows of committed epochs, and no others."""
    place = directory(os.fspath(path).rstrip("/"))
    lists = [json.loads(place.read(f"_ferryman/{name}").to_pybytes()) for name in _lists(place)]
    if not lists:
        raise ForeignCheckpoint(
            f"{path} holds no committed epoch of a Ferryman Parquet sink. Check the path, or wait for the first epoch."
        )
    schema = StructType.fromJson(json.loads(lists[-1]["schema"]))
    files = [f"{place.spark_uri}/{name}" for one in lists for name in one["files"]]
    return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)


def parquet(path: str | os.PathLike[str]) -> ParquetSink:
    """Write Parquet files, exactly once; read them back with `read_parquet`."""
    return ParquetSink(path)


def foreach(function: Callable[[DataFrame, int], object]) -> FunctionSink:
    """Call a function with each epoch's rows and number; it must be idempotent by epoch."""
    return FunctionSink(function)


def memory() -> MemorySink:
    """Keep the rows in the driver's memory, for trying things out."""
    return MemorySink()


def console(rows: int = 20) -> ConsoleSink:
    """Print the first rows of each epoch."""
    return ConsoleSink(rows)


def none() -> NoSink:
    """Run the operators for their state alone."""
    return NoSink()
