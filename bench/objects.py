"""What a checkpoint in an object store costs: requests of an epoch, and its time beside one on the local disk.

The server is on this machine and speaks S3's protocol: requests are counted as they come, and their number is that of
any store. Their time is not: a store over a network adds its own round trips, which are told too.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.epoch import small_source
from bench.ours import start_job
from bench.report import Progress, Result, environment, percentile, result_of, show, spread
from bench.s3_server import Server, server
from bench.sessions import bench_session

PLACES = ("disk", "store")


def run(
    *,
    rows: int = 100,
    keys: int = 1000,
    rounds: int = 3,
    epochs: int = 60,
    warm: int = 20,
    instances: int | None = None,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure epochs of one operator with its checkpoint on the disk and in a store, in turns.

    Parameters
    ----------
    rows, keys, rounds, epochs, warm, instances, scratch, progress
        As in `epoch`.
    """
    progress = progress or Progress()
    facts = environment()
    instances = instances or facts["cores"]
    parameters = {
        "rows": rows, "keys": keys, "rounds": rounds, "epochs": epochs, "warm": warm, "instances": instances,
    }  # fmt: skip
    result = result_of("objects", parameters, facts)
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    turns: dict[str, list[list[float]]] = {place: [] for place in PLACES}
    asked: Counter[str] = Counter()
    try:
        settings = {"spark.sql.streaming.numRecentProgressUpdates": "100000"}
        with server() as running, bench_session(instances, settings, log=work / "spark.log") as spark:
            round_trip = _round_trip_ms(running)
            for turn in range(rounds + 1):
                for place in PLACES:
                    name = f"{place}-{turn}"
                    checkpoint = running.uri(name) if place == "store" else str(work / name)
                    with progress.step(f"{place}, " + (f"round {turn} of {rounds}" if turn else "warm-up")):
                        times, requests = _turn(spark, running, checkpoint, rows, keys, instances, warm, epochs)
                    if turn:
                        turns[place].append(times)
                        asked += requests
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {**result, **_figures(turns, asked, rounds * epochs), "round_trip_ms": round_trip}


def _round_trip_ms(running: Server) -> float:
    """Measure one small put on the server."""
    from ferryman._log.files.directory import directory

    place, times = directory(running.uri("round-trip")), []
    for number in range(50):
        began = time.perf_counter()
        place.write(str(number), b"x" * 1000)
        times.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(times), 2)


def _turn(
    spark: SparkSession,
    running: Server,
    checkpoint: str,
    rows: int,
    keys: int,
    instances: int,
    warm: int,
    epochs: int,
) -> tuple[list[float], Counter[str]]:
    source = small_source(spark, rows, keys, instances)
    # It takes a path or a URI.
    place: Any = checkpoint
    job, query = start_job(spark, source, place, instances)
    try:
        job.wait_for(lambda: job.epoch >= warm)
        before, first = running.counts(), job.epoch
        job.wait_for(lambda: job.epoch >= first + epochs)
        asked, last = running.counts() - before, job.epoch
    finally:
        job.stop()
    durations = [epoch["durationMs"] for epoch in query.recentProgress if "addBatch" in epoch["durationMs"]]
    times = [float(duration["triggerExecution"]) for duration in durations[warm : warm + epochs]]
    # Some more epochs may have come before the second look.
    return times, Counter({kind: round(count * epochs / (last - first)) for kind, count in asked.items()})


def _figures(turns: dict[str, list[list[float]]], asked: Counter[str], epochs: int) -> Result:
    pooled = {place: [time for turn in each for time in turn] for place, each in turns.items()}
    figures: Result = {
        f"{place}_p{percent}_ms": round(percentile(times, percent), 1)
        for place, times in pooled.items()
        for percent in (50, 99)
    }
    pairs = zip(turns["store"], turns["disk"], strict=True)
    figures["store_vs_disk"] = spread([statistics.median(mine) / statistics.median(theirs) for mine, theirs in pairs])
    figures["requests_per_epoch"] = {kind: round(count / epochs, 2) for kind, count in sorted(asked.items())}
    return figures


def show_result(result: Result) -> None:
    """Print the figures."""
    rows = [
        {"checkpoint": place, "p50 ms": result[f"{place}_p50_ms"], "p99 ms": result[f"{place}_p99_ms"]}
        for place in PLACES
    ]
    show("An epoch of one operator", rows)
    show("Requests of an epoch", [{"": "requests", **result["requests_per_epoch"]}])
    print(f"one small put: {result['round_trip_ms']} ms; store over disk: {result['store_vs_disk']['median']}")
