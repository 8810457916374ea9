"""Rows per second of declared windows, beside `groupBy(window(...))` of Spark's inside the JVM.

Both read the same files in the same session, drop their output, and are timed by Spark's own `triggerExecution`. The
first epochs are the warm-up. Windows close in some epochs and not in others, so a rate is of all epochs together.
Afterwards both run on less, and put out the very windows that a batch computation gives, or the benchmark fails.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.data import FILES_PER_EPOCH, Input
from bench.report import Progress, Result, environment, result_of, show, spread
from bench.sessions import ROCKSDB, EpochTime, Stopwatch, bench_session
from bench.throughput import WrongResult
from ferryman import Ferry, sinks
from ferryman import aggregates as agg

SCHEMA = "key long, time timestamp, value double"
DELAY = "2 seconds"
BEGIN_US = 1_700_000_000_000_000
WINDOWS = {"tumbling": ("10 seconds", "10 seconds"), "sliding": ("10 seconds", "2 seconds")}
MODES = ("append", "update")
# Epochs before those that count: the JVM compiles, and the first windows fill.
WARM = 3


@dataclass(frozen=True)
class Timed(Input):
    """Files whose rows have a time."""

    def stream(self, spark: SparkSession) -> DataFrame:
        """Stream the files, an epoch's worth at a time."""
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_EPOCH)
        return reader.option("latestFirst", "false").parquet(str(self.folder))


def write_input(folder: Path, *, rows: int, keys: int, epochs: int, epoch_s: float) -> Timed:
    """Write the files: time moves on by so many seconds in an epoch, and rows are up to a second out of order."""
    folder.mkdir(parents=True)
    made = Timed(folder, rows, keys, epochs)
    random = np.random.default_rng(1)
    each = rows // FILES_PER_EPOCH
    for epoch in range(epochs):
        for part in range(FILES_PER_EPOCH):
            number = (epoch * FILES_PER_EPOCH + part) * each + np.arange(each)
            seconds = number * (epoch_s / rows) + random.uniform(0, 1, each)
            columns = {
                "key": random.integers(0, keys, each),
                "time": pa.array(BEGIN_US + (seconds * 1e6).astype(np.int64), pa.timestamp("us", "UTC")),
                # Multiples of 1/64 add up exactly in any order, so results can be compared for equality.
                "value": random.integers(0, 6400, each) / 64.0,
            }
            made.write(epoch, part, pa.table(columns))
    return made


def spark_jvm(rows: DataFrame, window: str) -> DataFrame:
    """Group by window and key inside the JVM, as Spark's guide does it."""
    grouped = rows.withWatermark("time", DELAY).groupBy(F.window("time", *WINDOWS[window]), "key")
    return grouped.agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def ferryman(stream: Any, window: str, mode: str) -> Any:
    """Declare the same windows."""
    size, every = WINDOWS[window]
    keyed = stream.withWatermark("time", DELAY).key_by("key")
    windows = keyed.window("time", size, every, updates=mode == "update")
    return windows.aggregate("windows", n=agg.count(), total=agg.sum("value"))


def _run_spark(spark: SparkSession, made: Timed, window: str, mode: str, place: Path, keep: Path | None) -> None:
    writer = spark_jvm(made.stream(spark), window).writeStream.outputMode(mode)
    if keep is None:
        writer = writer.format("noop")
    else:
        writer = writer.foreachBatch(lambda batch, _: batch.write.mode("append").parquet(str(keep)))
    writer.option("checkpointLocation", str(place)).trigger(availableNow=True).start().awaitTermination()


def _run_ferryman(
    spark: SparkSession, made: Timed, window: str, mode: str, place: Path, keep: Path | None, *, instances: int
) -> None:
    out = ferryman(Ferry(spark, checkpoint=str(place)).stream(made.stream(spark)), window, mode)
    kept = str(keep)
    sink = sinks.none() if keep is None else sinks.foreach(lambda batch, _: batch.write.mode("append").parquet(kept))
    out.write(sink).start("windows", instances=instances, trigger={"availableNow": True}).wait()


def _runs(instances: int) -> Mapping[str, Callable[..., None]]:
    return {"ferryman": partial(_run_ferryman, instances=instances), "spark_jvm": _run_spark}


def run(
    *,
    rows: int = 500_000,
    keys: int = 20_000,
    epochs: int = 10,
    epoch_s: float = 4.0,
    rounds: int = 2,
    windows: Sequence[str] = tuple(WINDOWS),
    modes: Sequence[str] = MODES,
    instances: int | None = None,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure both engines on every kind of windows.

    Parameters
    ----------
    rows, keys
        Rows of an epoch, and the keys that they spread over.
    epochs
        Measured epochs, after those to warm up.
    epoch_s
        By how many seconds event time moves on in an epoch.
    rounds
        How often each engine has its turn; the first one is dropped if there are several.
    windows, modes
        Which windows, and when they are put out.
    instances
        Parallel instances, and Spark's shuffle partitions; the number of cores by default.
    scratch
        A directory for input and checkpoints; a temporary one by default.
    """
    progress = progress or Progress()
    facts = environment()
    instances = instances or facts["cores"]
    parameters = {
        "rows": rows, "keys": keys, "epochs": epochs, "epoch_s": epoch_s, "rounds": rounds,
        "windows": ",".join(windows), "modes": ",".join(modes), "instances": instances,
    }  # fmt: skip
    result = result_of("windows", parameters, facts)
    cases: dict[str, Result] = {}
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    try:
        with bench_session(instances, ROCKSDB, log=work / "spark.log") as spark:
            made = write_input(work / "input", rows=rows, keys=keys, epochs=epochs + WARM, epoch_s=epoch_s)
            for window in windows:
                for mode in modes:
                    case = f"{window}, {mode}"
                    cases[case] = _case(spark, made, window, mode, work, rounds, instances, progress)
                    progress.say(f"{case}: {cases[case]['ratio']} times Spark's")
            small = write_input(work / "small", rows=20_000, keys=500, epochs=5, epoch_s=epoch_s)
            with progress.step("compare with a batch"):
                for window in windows:
                    _check(spark, small, window, work, instances)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    ratios = {case: figures["ratio"] for case, figures in cases.items()}
    return {**result, "cases": cases, "window_ratio_vs_jvm": min(ratios.values()), "ratios": ratios}


def _case(
    spark: SparkSession,
    made: Timed,
    window: str,
    mode: str,
    work: Path,
    rounds: int,
    instances: int,
    progress: Progress,
) -> Result:
    turns: dict[str, list[list[float]]] = {}
    for turn in range(rounds):
        for engine, start in _runs(instances).items():
            place = work / f"{engine}-{window}-{mode}-{turn}"
            with progress.step(f"{window}, {mode}: {engine}, round {turn + 1} of {rounds}"), Stopwatch(spark) as watch:
                start(spark, made, window, mode, place, None)
                times = watch.epochs()
            turns.setdefault(engine, []).append(_measured(times, made))
            shutil.rmtree(place, ignore_errors=True)
    counted = {engine: each[1:] if rounds > 1 else each for engine, each in turns.items()}
    engines = {engine: _figures(each, made.rows_per_epoch) for engine, each in counted.items()}
    ratio = engines["ferryman"]["rows_per_s"] / engines["spark_jvm"]["rows_per_s"]
    return {"engines": engines, "ratio": round(ratio, 2)}


def _measured(times: Sequence[EpochTime], made: Timed) -> list[float]:
    """Give the durations of the epochs that count: those with data, but for the first."""
    counted = [time.duration_ms for time in sorted(times, key=lambda time: time.epoch) if time.rows][WARM:]
    if len(counted) != made.epochs - WARM:
        raise WrongResult(f"{made.epochs - WARM} epochs were expected and Spark reported {len(counted)}")
    return counted


def _figures(turns: Sequence[Sequence[float]], rows: int) -> Result:
    every = [duration for turn in turns for duration in turn]
    return {
        "rows_per_s": round(rows * len(every) / (sum(every) / 1000)),
        "rows_per_s_by_round": [round(rows * len(turn) / (sum(turn) / 1000)) for turn in turns],
        "epoch_ms": spread(every),
        "epochs_ms": every,
    }


def _check(spark: SparkSession, made: Timed, window: str, work: Path, instances: int) -> None:
    """Have both engines put out what a batch computation gives for the windows that are over."""
    rows = spark.read.schema(SCHEMA).parquet(str(made.folder))
    size, every = WINDOWS[window]
    grouped = rows.groupBy(F.window("time", size, every), "key").agg(
        F.count("*").alias("n"), F.sum("value").alias("total")
    )
    over = rows.agg(F.max("time") - F.expr(f"INTERVAL {DELAY}")).collect()[0][0]
    right = grouped.where(F.col("window.end") <= F.lit(over)).select("window", "key", "n", "total")
    for engine, start in _runs(instances).items():
        keep = work / f"kept-{engine}-{window}"
        start(spark, made, window, "append", work / f"check-{engine}-{window}", keep)
        found = spark.read.parquet(str(keep)).select("window", "key", "n", "total")
        wrong = right.exceptAll(found).count() + found.exceptAll(right).count()
        if wrong or not found.count():
            raise WrongResult(f"{engine}, {window}: {wrong:,} windows differ from those of a batch computation")


def show_result(result: Result) -> None:
    """Print a result as a table."""
    rows = [
        {
            "windows": case,
            "engine": engine,
            "rows/s": each["rows_per_s"],
            "epoch ms": each["epoch_ms"]["median"],
            "min": each["epoch_ms"]["min"],
            "max": each["epoch_ms"]["max"],
            "times Spark's": figures["ratio"] if engine == "ferryman" else None,
        }
        for case, figures in result["cases"].items()
        for engine, each in figures["engines"].items()
    ]
    show(f"windows, {result['parameters']['keys']:,} keys", rows)
