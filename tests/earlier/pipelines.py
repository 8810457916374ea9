"""Jobs of which checkpoints are kept as earlier versions of Ferryman wrote them: one per store, and a processor's.

Their source has the same rows whenever it is read, so what a job must hold after any number of rows is known.
To write one anew, with the version that is installed, as FOLDER/NAME.tar.gz:

    python tests/earlier/pipelines.py FOLDER NAME
"""

from __future__ import annotations

import socket
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

import ferryman
from ferryman import Ferry, List, Map, Operator, Value, avg, count, sinks, sources
from ferryman.aggregates import max as max_of

# The workers do not have the tests' folder on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

# How far the kept checkpoints came, and how far they go on in a test.
WRITTEN, FURTHER = 600, 1000
EPOCH = 100


class Trail(Operator):
    """Keep something of every row, in states of several kinds."""

    n = Value(int, 0)
    last = Value(str, "")
    measured = List(float, ttl=10**13)
    seen = Map(int, str)
    output = "key string, n long, last string"

    def process(self, key: Any, row: Any) -> Any:
        """Take a row."""
        self.n += 1
        self.last = f"{key}:{row.id}"
        self.measured.append(row.value)
        self.seen[row.id % 7] = self.last
        yield key, self.n, self.last


class Total(StatefulProcessor):
    """Add ids up per key, in a value, a list and a map, as on Spark."""

    def init(self, handle: Any) -> None:
        """Declare the states."""
        number = StructType([StructField("id", LongType())])
        self._total = handle.getValueState("total", number)
        self._ids = handle.getListState("ids", number)
        self._by_rest = handle.getMapState("byRest", number, number)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        """Take the rows of a key."""
        from pyspark.sql import Row

        total = self._total.get()[0] if self._total.exists() else 0
        for row in rows:
            total += row.id
            self._ids.appendValue((row.id,))
            self._by_rest.updateValue((row.id % 3,), (row.id,))
        self._total.update((total,))
        yield Row(key=key[0], total=total)

    def close(self) -> None:
        """Do nothing."""


def rows(spark: SparkSession, upto: int) -> DataFrame:
    """Give the rows of the source up to one of them."""
    made = sources.generator(spark, keys=9, rows=upto, rows_per_epoch=EPOCH, key_prefix="s-")
    return made.selectExpr("key", "id", "value")


def _aggregates(stream: Any) -> Any:
    return stream.key_by("key").aggregate(n=count(), mean=avg("value"), most=max_of("id"), name="Totals")


def _trail(stream: Any) -> Any:
    return stream.key_by("key").process(Trail)


def _processor(stream: Any) -> Any:
    grouped = stream.groupBy("key")
    return grouped.transformWithState(Total(), "key string, total long", "Append", "None")


# By the folder of the checkpoint: the pipeline, and the options of its ferry.
PIPELINES: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "columnar": (_aggregates, {}),
    "lmdb": (_trail, {}),
    "rocksdb": (_trail, {"store": "rocksdb"}),
    "processor": (_processor, {}),
}


def run(spark: SparkSession, name: str, checkpoint: Path, upto: int) -> list[dict[str, Any]]:
    """Run a job to the end of its rows, and give what came out."""
    build, options = PIPELINES[name]
    ferry = Ferry(spark, checkpoint, groups=8, snapshot_every=4, **options)
    sink = sinks.memory()
    job = build(ferry.stream(rows(spark, upto))).write(sink).start(name, instances=2, trigger={"availableNow": True})
    job.wait()
    return list(sink.rows())


def main(folder: Path, name: str) -> None:
    """Write a checkpoint."""
    # Of the machine it was written on it says nothing.
    socket.gethostname = lambda: "elsewhere"
    with tempfile.TemporaryDirectory() as place:
        checkpoint = Path(place) / name
        run(ferryman.session(), name, checkpoint, WRITTEN)
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(checkpoint, name, filter=_plain)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return None if info.name.endswith((".crc", ".lock")) else info


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
