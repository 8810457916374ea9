"""How long a row takes from when it is due to the commit of its epoch, with epochs back to back.

Rows come open-loop: a process of its own sends row `i` when `i / rate` seconds have passed, whether or not anybody
reads it. Spark's own socket source hands them on, in the JVM, to both engines alike.

    ferryman           one operator, on this machine; its commit is that of the manifest
    ferryman_shuffle   the same without express epochs
    spark_tws          Spark's own transformWithState: RocksDB with changelogs; its commit is the end of the micro-batch
    ferryman_cluster   a standalone cluster of two hosts on this machine, an instance on each
    ferryman_cluster_shuffle   the same without express epochs
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.report import Progress, Result, environment, percentile, result_of, show, spread
from bench.rivals import tws_row
from bench.sessions import ROCKSDB, bench_session, stderr_to

ENGINES = ("ferryman", "ferryman_shuffle", "spark_tws", "ferryman_cluster", "ferryman_cluster_shuffle")
_KEYS = 1000

# Sends numbers, one a line, each when it is due; says its port, and when the first is due, once somebody listens.
_FEEDER = """
import socket, sys, time
rate = float(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
there, _ = server.accept()
there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
start = time.time()
print(start, flush=True)
sent = 0
while True:
    due = int((time.time() - start) * rate)
    if due > sent:
        there.sendall("".join(f"{number}\\n" for number in range(sent, due)).encode())
        sent = due
    time.sleep(0.001)
"""

# A micro-batch: the first row after it, and when it was committed.
Commit = tuple[int, float]


def run(
    *,
    rate: float = 500.0,
    seconds: float = 20.0,
    warm: float = 15.0,
    rounds: int = 3,
    engines: Sequence[str] = ENGINES,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure the latency of rows with every engine, round after round.

    Parameters
    ----------
    rate
        Rows per second, whatever happens.
    seconds, warm
        How long to measure in a turn, and how long to run before.
    rounds
        Turns of each engine.
    engines
        Which to measure.
    scratch
        A directory for checkpoints; a temporary one by default.
    """
    progress = progress or Progress()
    parameters = {"rate": rate, "seconds": seconds, "warm": warm, "rounds": rounds, "engines": ",".join(engines)}
    result = result_of("latency", parameters, environment())
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    turns: dict[str, list[list[float]]] = {engine: [] for engine in engines}
    try:
        for clustered in (False, True):
            chosen = [engine for engine in engines if ("_cluster" in engine) == clustered]
            if not chosen:
                continue
            with _session(work, clustered=clustered) as spark:
                for turn in range(rounds):
                    for engine in chosen:
                        with progress.step(f"{engine}, round {turn + 1} of {rounds}"):
                            place = work / f"{engine}-{turn}"
                            turns[engine].append(_turn(spark, engine, place, rate, warm, seconds))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {**result, **_figures(turns)}


@contextmanager
def _session(work: Path, *, clustered: bool) -> Iterator[SparkSession]:
    settings = {**ROCKSDB, "spark.sql.streaming.numRecentProgressUpdates": "100000"}
    if not clustered:
        with bench_session(2, settings, log=work / "spark.log") as spark:
            yield spark
        return
    from bench.reconfigure import cluster_session

    with stderr_to(work / "cluster.log"), cluster_session(work / "cluster", 2, settings) as spark:
        yield spark


def _turn(spark: SparkSession, engine: str, place: Path, rate: float, warm: float, seconds: float) -> list[float]:
    """Run one engine; give the latencies of the rows that were due while it was measured, in milliseconds."""
    feeder = subprocess.Popen([sys.executable, "-c", _FEEDER, str(rate)], stdout=subprocess.PIPE, text=True)
    try:
        assert feeder.stdout is not None
        lines = (
            spark.readStream.format("socket")
            .option("host", "127.0.0.1")
            .option("port", feeder.stdout.readline().strip())
        )
        number = "CAST(value AS LONG)"
        rows = lines.load().selectExpr(f"{number} % {_KEYS} AS key", f"CAST({number} AS DOUBLE) AS value")
        commits, stop = (_start_spark if engine == "spark_tws" else _start_ferryman)(spark, engine, rows, place)
        try:
            start = float(feeder.stdout.readline())
            time.sleep(warm + seconds)
            found = commits()
        finally:
            stop()
    finally:
        feeder.kill()
        feeder.wait()
    first, last = int(warm * rate), int((warm + seconds) * rate)
    latencies: list[float] = []
    at = 0
    for end, committed in found:
        latencies += [(committed - start - row / rate) * 1000 for row in range(max(at, first), min(end, last))]
        at = max(at, end)
    if len(latencies) < (last - first) / 2:
        raise RuntimeError(f"{engine} did {len(latencies)} of {last - first} rows: it does not keep up")
    return latencies


def _start_ferryman(
    spark: SparkSession, engine: str, rows: DataFrame, place: Path
) -> tuple[Callable[[], list[Commit]], Callable[[], None]]:
    from bench.ours import row_by_row
    from ferryman import Ferry, sinks

    ferry = Ferry(spark, checkpoint=str(place), idle=None, express=not engine.endswith("_shuffle"))
    job = row_by_row(ferry, rows).write(sinks.none()).start("latency", instances=2)
    query = next(query for query in spark.streams.active if query.name == "latency")

    def commits() -> list[Commit]:
        ends = {progress["batchId"]: _end(progress) for progress in query.recentProgress}
        epochs = (epoch for epoch in job.progress() if not epoch.silent)
        return [(ends[epoch.batch], epoch.committed_ms / 1000) for epoch in epochs if epoch.batch in ends]

    return commits, job.stop


def _start_spark(
    spark: SparkSession, engine: str, rows: DataFrame, place: Path
) -> tuple[Callable[[], list[Commit]], Callable[[], None]]:
    writer = tws_row(rows).writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(place)).start()

    def commits() -> list[Commit]:
        return [(_end(progress), _ended(progress)) for progress in query.recentProgress if _is_epoch(progress)]

    return commits, query.stop


def _is_epoch(progress: Any) -> bool:
    return "addBatch" in progress["durationMs"]


def _end(progress: Any) -> int:
    """Give the first row after a micro-batch: the socket's offset is that of its last."""
    return int(json.loads(str(progress["sources"][0]["endOffset"]))) + 1


def _ended(progress: Any) -> float:
    from datetime import datetime

    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    return float(began + progress["durationMs"]["triggerExecution"] / 1000)


def _figures(turns: dict[str, list[list[float]]]) -> Result:
    engines: Result = {}
    for name, each in turns.items():
        pooled = [latency for turn in each for latency in turn]
        engines[name] = {
            "p50_ms": round(percentile(pooled, 50), 1),
            "p99_ms": round(percentile(pooled, 99), 1),
            "rows": len(pooled),
            "p50_ms_by_round": [round(statistics.median(turn), 1) for turn in each],
            "p99_ms_by_round": [round(percentile(turn, 99), 1) for turn in each],
        }
    figures: Result = {"engines": engines}
    for prefix, name in (("", "ferryman"), ("cluster_", "ferryman_cluster"), ("spark_tws_", "spark_tws")):
        if name in engines:
            figures[f"{prefix}p50_ms"] = engines[name]["p50_ms"]
            figures[f"{prefix}p99_ms"] = engines[name]["p99_ms"]
    if "ferryman" in engines and "spark_tws" in engines:
        pairs = zip(engines["ferryman"]["p50_ms_by_round"], engines["spark_tws"]["p50_ms_by_round"], strict=True)
        figures["ratio_vs_spark_tws"] = round(figures["p50_ms"] / figures["spark_tws_p50_ms"], 3)
        figures["ratio_vs_spark_tws_spread"] = spread([ours / theirs for ours, theirs in pairs])
    return figures


def show_result(result: Result) -> None:
    """Print a result as a table."""
    rows = [
        {
            "engine": name,
            "p50 ms": figures["p50_ms"],
            "p99 ms": figures["p99_ms"],
            "rows": figures["rows"],
            "p50 by round": " ".join(f"{median:.0f}" for median in figures["p50_ms_by_round"]),
        }
        for name, figures in result["engines"].items()
    ]
    show(f"from due to committed, {result['parameters']['rate']:,.0f} rows/s, epochs back to back", rows)
    if "ratio_vs_spark_tws" in result:
        print(f"p50 beside Spark's transformWithState: {result['ratio_vs_spark_tws']}")
