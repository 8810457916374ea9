"""From one topic of Kafka to another, the broker beside it on one machine: exactly once, beside Spark's own pipeline.

ferryman    `aggregate(n=count(), sent=max("sent"))` and `sinks.kafka`: exactly once for who reads what is committed
spark       `groupBy().agg()` inside the JVM and Spark's own Kafka sink: at least once

The other part, `ingest`, is in a file of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench import connectors_kills, ingest
from bench.connectors_kafka import broker_module, committed, ferryman, fill, make, rows_of, spark_own
from bench.report import Progress, Result, environment, percentile, result_of, show, spread
from bench.sessions import ROCKSDB, Stopwatch, bench_session

ENGINES = ("ferryman", "spark")
PARTS = ("kafka", "ingest")
KEYS = 10_000
ONCE = {"availableNow": True}


class WrongResult(Exception):
    """An engine that is wrong is not measured."""


def run(
    *,
    rows: int = 500_000,
    per_epoch: int = 50_000,
    rounds: int = 2,
    rate: float = 1000.0,
    seconds: float = 20.0,
    warm: float = 10.0,
    kills: int = 50,
    seed: int = 1,
    parts: Sequence[str] = PARTS,
    ingest_rows: int = 50_000,
    ingest_kills: int = 20,
    instances: int | None = None,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure both engines on Kafka and kill Ferryman's driver; measure the ingest log.

    Parameters
    ----------
    rows, per_epoch
        Rows that wait in the topic, and how many of them an epoch takes.
    rounds
        Turns of each engine, after one to warm up.
    rate, seconds, warm
        For the latency: rows per second, how long to measure, and how long to run before.
    kills, seed
        How often a driver is killed, and what the steps follow from.
    parts
        Which of both to do.
    ingest_rows, ingest_kills
        For the ingest log: messages in a round, and how often its driver is killed.
    instances
        Parallel instances, and Spark's shuffle partitions; the number of cores by default.
    scratch
        A directory for the broker's log and checkpoints; a temporary one by default.
    """
    progress = progress or Progress()
    facts = environment()
    instances = instances or facts["cores"]
    parameters = {
        "rows": rows, "per_epoch": per_epoch, "rounds": rounds, "rate": rate, "seconds": seconds, "warm": warm,
        "kills": kills, "seed": seed, "parts": ",".join(parts), "ingest_rows": ingest_rows,
        "ingest_kills": ingest_kills, "instances": instances,
    }  # fmt: skip
    result = result_of("connectors", parameters, facts)
    if "kafka" in parts:
        result |= _kafka(progress, rows, per_epoch, rounds, rate, seconds, warm, kills, seed, instances, scratch)
    if "ingest" in parts:
        with progress.step("ingest"):
            result |= ingest.run(rows=ingest_rows, rounds=rounds, kills=ingest_kills)
    return result


def _kafka(
    progress: Progress,
    rows: int,
    per_epoch: int,
    rounds: int,
    rate: float,
    seconds: float,
    warm: float,
    kills: int,
    seed: int,
    instances: int,
    scratch: Path | None,
) -> Result:
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    brokers = broker_module()
    jars = {"spark.jars": ",".join(map(str, brokers.connector()))}
    try:
        with brokers.broker() as servers:
            with bench_session(instances, {**ROCKSDB, **jars}, log=work / "spark.log") as spark:
                turns = _throughput(spark, servers, work, rows, per_epoch, rounds, instances, progress)
                late = {
                    engine: _latency(spark, servers, engine, work, rate, seconds, warm, instances, progress)
                    for engine in ENGINES
                }
            counted: Result = {}
            if kills:
                with progress.step(f"{kills} kills"):
                    counted = connectors_kills.run(servers, work / "kills", kills, seed, progress)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    rates = {engine: _rate(turns[engine]) for engine in ENGINES}
    return {
        "kafka_rows_per_s": rates["ferryman"],
        "spark_rows_per_s": rates["spark"],
        "ratio_vs_spark": round(rates["ferryman"] / rates["spark"], 2),
        **_percentiles("kafka", late["ferryman"]),
        **_percentiles("spark", late["spark"]),
        **{name: value for name, value in counted.items() if name != "rows"},
        **({"kill_rows": counted["rows"]} if counted else {}),
        "rounds": {
            engine: [
                {"rows_per_s": _rate([turn]), "epoch_ms": spread([ms for _, ms in turn])} for turn in turns[engine]
            ]
            for engine in ENGINES
        },
        "latency_rows": {engine: len(late[engine]) for engine in ENGINES},
    }


# The rows and milliseconds of each epoch.
Turn = list[tuple[int, float]]


def _rate(turns: list[Turn]) -> int:
    rows, ms = (sum(epoch[part] for turn in turns for epoch in turn) for part in (0, 1))
    return round(rows / ms * 1000)


def _percentiles(name: str, latencies: list[float]) -> Result:
    return {f"{name}_p{point}_ms": percentile(latencies, point) for point in (50, 99)}


def _throughput(
    spark: SparkSession,
    servers: str,
    work: Path,
    rows: int,
    per_epoch: int,
    rounds: int,
    instances: int,
    progress: Progress,
) -> dict[str, list[Turn]]:
    """Have each engine take what waits in a topic, in turns; what comes of it has to be right."""
    with progress.step(f"send {rows:,} rows"):
        make(servers, "waiting")
        pad = "x" * 60
        sent = ((f"k-{number * 7919 % KEYS}", f'{{"sent": {number}, "pad": "{pad}"}}') for number in range(rows))
        fill(servers, "waiting", sent)
    right = {f"k-{number * 7919 % KEYS}": number for number in range(rows)}
    turns: dict[str, list[Turn]] = {engine: [] for engine in ENGINES}
    for turn in range(rounds + 1):
        for engine in ENGINES:
            place, target = work / f"{engine}-{turn}", f"{engine}-{turn}"
            make(servers, target)
            frame = rows_of(spark, servers, "waiting", per_epoch)
            with progress.step(f"{engine}, round {turn} of {rounds}"), Stopwatch(spark) as watch:
                taken: dict[int, int] = {}
                if engine == "ferryman":
                    job = ferryman(frame, servers, target, place, instances=instances, trigger=ONCE)
                    job.wait()
                    # Spark counts rows twice of an epoch that turns out to be too large for express.
                    taken = {epoch.batch: epoch.rows for epoch in job.progress() if not epoch.silent}
                else:
                    spark_own(frame, servers, target, place, ONCE).awaitTermination()
                told = sorted(watch.epochs(), key=lambda epoch: epoch.epoch)
            epochs = [(taken.get(epoch.epoch, epoch.rows), epoch.duration_ms) for epoch in told if epoch.rows]
            if sum(count for count, _ in epochs) != rows:
                raise WrongResult(f"{engine} took {sum(count for count, _ in epochs):,} of {rows:,} rows")
            last = dict(committed(servers, target))
            if {key: value["sent"] for key, value in last.items()} != right:
                raise WrongResult(f"{engine}: what is in the topic is not what a count over all rows gives")
            if sum(value["n"] for value in last.values()) != rows:
                raise WrongResult(f"{engine}: the counts do not come to {rows:,}")
            if turn or not rounds:
                # The first epoch of a query plans, and starts workers.
                turns[engine].append(epochs[1:])
            shutil.rmtree(place, ignore_errors=True)
    return turns


def _latency(
    spark: SparkSession,
    servers: str,
    engine: str,
    work: Path,
    rate: float,
    seconds: float,
    warm: float,
    instances: int,
    progress: Progress,
) -> list[float]:
    """Send rows open-loop; give how long each took until it could be read, in milliseconds."""
    source, target, place = f"{engine}-late", f"{engine}-late-out", work / f"{engine}-late"
    make(servers, source)
    make(servers, target)
    frame = rows_of(spark, servers, source, None)
    end: Callable[[], Any]
    if engine == "ferryman":
        end = ferryman(frame, servers, target, place, instances=instances).stop
    else:
        end = spark_own(frame, servers, target, place, {}).stop
    words = [sys.executable, "-m", "bench.connectors_load", servers, source, target, rate, warm, seconds]
    with progress.step(f"{engine}, latency of {rate:,.0f} rows per second"):
        try:
            done = subprocess.run(
                list(map(str, words)),
                cwd=Path(__file__).resolve().parents[1],
                stdout=subprocess.PIPE,
                check=True,
                text=True,
                timeout=seconds + warm + 120,
            )
        finally:
            end()
    latencies: list[float] = json.loads(done.stdout.splitlines()[-1])
    if len(latencies) < rate * seconds * 0.8:
        raise WrongResult(f"{engine}: {len(latencies):,} of {rate * seconds:,.0f} rows came in time")
    return latencies


def show_result(result: Result) -> None:
    """Print a result as a table for each part."""
    if "kafka_rows_per_s" in result:
        _show_kafka(result)
    if "ingest_rows_per_s" in result:
        figures = ("ingest_rows_per_s", "broker_rows_per_s", "ingest_kills", "ingest_lost", "ingest_doubled")
        show("the ingest log", [{name: result.get(name) for name in figures}])


def _show_kafka(result: Result) -> None:
    show(
        "from Kafka to Kafka",
        [
            {
                "engine": engine,
                "promise": promise,
                "rows/s": result[f"{name}_rows_per_s"],
                "p50 ms": result[f"{name}_p50_ms"],
                "p99 ms": result[f"{name}_p99_ms"],
                "kills": result.get("kills") if engine == "ferryman" else None,
                "lost": result.get("lost") if engine == "ferryman" else None,
                "doubled": result.get("doubled") if engine == "ferryman" else None,
            }
            for engine, name, promise in (
                ("ferryman", "kafka", "exactly once"),
                ("spark", "spark", "at least once"),
            )
        ],
    )
