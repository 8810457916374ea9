"""One SparkSession for all engines of a run, and a listener that times every epoch the same way.

The settings are those each rival's experts would choose; what helps one engine is on for all.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

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


class Stopwatch:
    """Collect the epochs of the one query that runs, from Spark's own progress events.

    While the query runs an event is only kept. Read in Python at once, as PySpark's own listener does it, it would cost
    two hundred calls of the JVM an epoch, and they would get into the way of an engine whose driver is in Python.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._streams: Any = spark._jsparkSession.streams()
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)
        self._wrap = getattr(gateway.jvm, "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper")
        self._changed = threading.Condition()
        self._progress: list[Any] = []
        self._run: Any = None
        self._ended: list[Any] = []

    def __enter__(self) -> Stopwatch:
        self._listener = self._wrap(self)
        self._streams.addListener(self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.removeListener(self._listener)

    def onQueryStarted(self, event: Any) -> None:
        with self._changed:
            self._run = event.runId().toString()

    def onQueryProgress(self, event: Any) -> None:
        with self._changed:
            self._progress.append(event)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        with self._changed:
            # Events come late: this may be the end of a query before.
            self._ended.append(event.runId().toString())
            self._changed.notify_all()

    def epochs(self, timeout: float = 3600.0) -> list[EpochTime]:
        """Wait until the query has ended, and give its epochs."""
        with self._changed:
            self._changed.wait_for(lambda: self._run in self._ended, timeout)
        told = [json.loads(event.progress().json()) for event in self._progress]
        return [
            EpochTime(epoch["batchId"], epoch["numInputRows"], float(parts["triggerExecution"]), parts)
            for epoch in told
            # What only looked for data has no addBatch, and is no epoch.
            if "addBatch" in (parts := epoch["durationMs"]) and epoch["runId"] == self._run
        ]

    class Java:
        implements: ClassVar = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
