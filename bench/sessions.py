"""One SparkSession for all engines of a run, and a listener that times every epoch the same way.

The settings are those each rival's experts would choose; what helps one engine is on for all.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from bench.report import cores
from ferryman._spark.session.session import session

_STREAMING = "org.apache.spark.sql.execution.streaming"
SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "4g",
}
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def refuse_running_session() -> None:
    """Refuse to measure, or to stop in the end, a session that somebody else has started."""
    if SparkContext._active_spark_context is not None:
        raise RuntimeError(
            "a SparkSession is running already in this process: it is not where, and not as, the benchmark wants it"
        )


@contextmanager
def bench_session(instances: int, settings: Mapping[str, str], log: Path) -> Iterator[SparkSession]:
    """Run a session on this machine's cores, with as many shuffle partitions as instances."""
    refuse_running_session()
    conf = {**SETTINGS, **settings, "spark.sql.shuffle.partitions": str(instances)}
    with stderr_to(log):
        spark = session("ferryman bench", f"local[{max(cores(), instances)}]", conf=conf)
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def stderr_to(log: Path) -> Iterator[None]:
    """Keep what the JVM and its workers print in a file, and show its end if the benchmark fails.

    Spark's transformWithState workers print lines for every task, in the middle of the progress shown.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(kept, b"".join(log.read_bytes().splitlines(keepends=True)[-40:]))
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@dataclass(frozen=True)
class EpochTime:
    """Hold what Spark reported of one epoch."""

    epoch: int
    rows: int
    duration_ms: float
    parts_ms: dict[str, int] = field(default_factory=dict)


class Stopwatch(StreamingQueryListener):
    """Collect the epochs of the one query that runs, from Spark's own progress events."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._changed = threading.Condition()
        self._epochs: list[EpochTime] = []
        self._ended = False
        # Events come late: the end of one query may be told after the next has started.
        self._run: object = None

    def __enter__(self) -> Stopwatch:
        self._spark.streams.addListener(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.streams.removeListener(self)

    def onQueryStarted(self, event: Any) -> None:
        with self._changed:
            self._epochs, self._ended, self._run = [], False, event.runId

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        parts = dict(progress.durationMs)
        # What only looked for data has no addBatch, and is no epoch.
        if "addBatch" not in parts or progress.runId != self._run:
            return
        with self._changed:
            self._epochs.append(
                EpochTime(progress.batchId, progress.numInputRows, float(parts["triggerExecution"]), parts)
            )
            self._changed.notify_all()

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        with self._changed:
            self._ended = self._ended or event.runId == self._run
            self._changed.notify_all()

    def epochs(self, at_least: int | None = None, timeout: float = 3600.0) -> list[EpochTime]:
        """Wait until the query has ended, or has done that many epochs, and give them."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._ended or (at_least is not None and len(self._epochs) >= at_least), timeout
            )
            return list(self._epochs)
