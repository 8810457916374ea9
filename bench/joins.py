"""Rows per second and bytes of state of an interval join of two streams, beside Spark's own stream-stream join.

Both read the same files in the same session, and hand the same columns to the same small aggregation, so that what they
joined can be compared: it must be what a batch gives, or the benchmark fails. Spark runs on RocksDB with changelogs.
`RATIOS` has a function for each ratio of the result; what another part measures is added there and to `run`.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.report import Progress, Result, environment, result_of, show, spread
from bench.sessions import ROCKSDB, Stopwatch, bench_session
from ferryman import Ferry, sinks
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.fold.snapshot import write_snapshot

SCHEMAS = {"left": "key long, at timestamp, price double", "right": "key long, seen timestamp, pieces double"}
# An epoch's rows are of so many seconds, and a pair's are no further apart than half of that.
EPOCH_S = 60
DELAY = "1 second"
START_S = 1_700_000_000
ENGINES = ("ferryman", "spark")
SETTINGS = {
    **ROCKSDB,
    # What its experts turn off: counting the rows of the store reads each key before it is written.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}


_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


class WrongResult(Exception):
    """An engine that joined something else than a batch does."""


@dataclass
class Joined:
    """What came out of a join: how many rows, and a sum over them that adds up exactly."""

    rows: int = 0
    total: float = 0.0
    epochs: int = field(default=0, compare=False)

    def take(self, frame: DataFrame, epoch: int) -> None:
        """Add the rows of an epoch."""
        self.epochs += 1
        found = frame.agg(F.count("*"), F.sum(F.col("price") + F.col("pieces"))).collect()[0]
        self.rows += found[0]
        self.total += found[1] or 0.0


@dataclass(frozen=True)
class Input:
    """The files of both streams, one of each for an epoch."""

    folder: Path
    rows: int
    keys: int
    epochs: int

    def write(self) -> None:
        """Write them, in the order of time, as they would come."""
        random = np.random.default_rng(1)
        for side, schema in SCHEMAS.items():
            (self.folder / side).mkdir(parents=True)
            names = [column.split()[0] for column in schema.split(", ")]
            count = self.rows // self.epochs
            for epoch in range(self.epochs):
                begin_us = (START_S + epoch * EPOCH_S) * 1_000_000
                times = np.sort(random.integers(0, EPOCH_S * 1_000_000, count)) + begin_us
                keys = random.integers(0, self.keys, count)
                values = random.integers(0, 6400, count) / 64.0
                table = pa.table([keys, pa.array(times, pa.timestamp("us", "UTC")), values], names=names)
                path = self.folder / side / f"{epoch:05d}.parquet"
                pq.write_table(table, path, compression="snappy")

    def stream(self, spark: SparkSession, side: str) -> DataFrame:
        """Stream the files of a side, an epoch's at a time."""
        reader = spark.readStream.schema(SCHEMAS[side]).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / side))

    def wanted(self, spark: SparkSession) -> Joined:
        """Join them as a batch."""
        left, right = (spark.read.schema(SCHEMAS[side]).parquet(str(self.folder / side)) for side in SCHEMAS)
        made = Joined()
        made.take(left.join(right, "key").where(_BOUND), 0)
        return made


_BOUND = f"seen BETWEEN at - INTERVAL {EPOCH_S // 2} SECONDS AND at + INTERVAL {EPOCH_S // 2} SECONDS"


def run_spark(spark: SparkSession, made: Input, checkpoint: Path, instances: int) -> Joined:
    """Run Spark's own join."""
    left = made.stream(spark, "left").withWatermark("at", DELAY)
    right = made.stream(spark, "right").withWatermark("seen", DELAY).withColumnRenamed("key", "other")
    joined, out = left.join(right, F.expr(f"key = other AND {_BOUND}")).drop("other"), Joined()
    writer = joined.writeStream.queryName("spark").outputMode("append").foreachBatch(out.take)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return out


def run_ferryman(spark: SparkSession, made: Input, checkpoint: Path, instances: int) -> Joined:
    """Run ours."""
    ferry = Ferry(spark, checkpoint)
    left, right = (
        ferry.stream(made.stream(spark, side), side).with_watermark(time, DELAY).key_by("key")
        for side, time in (("left", "at"), ("right", "seen"))
    )
    out = Joined()
    output = left.join(right, within=f"{EPOCH_S // 2} seconds").write(sinks.foreach(out.take, "pairs"))
    output.start("joins", instances=instances, trigger={"availableNow": True}).wait()
    return out


def _snapshot_bytes(checkpoint: Path) -> int:
    """Give how many bytes of files the newest state takes, folded."""
    kept = Checkpoint(directory(str(checkpoint)))
    newest = kept.epochs()[-1]
    write_snapshot(kept, newest)
    return sum(ref.bytes for refs in kept.snapshot(newest).tables.values() for ref in refs)


def _sst_bytes(checkpoint: Path) -> int:
    """Give how many bytes of files the newest state of Spark takes: those that its newest snapshots list."""
    total = 0
    for folder in {path.parent for path in (checkpoint / "state").rglob("*.zip")}:
        newest = max(folder.glob("*.zip"), key=lambda path: int(path.stem.split("_")[0]))
        with zipfile.ZipFile(newest) as snapshot:
            listed = json.loads(snapshot.read("metadata").split(b"\n", 1)[1])
        total += newest.stat().st_size + sum(file["sizeBytes"] for file in listed["sstFiles"])
    return total


_RUN: dict[str, Callable[[SparkSession, Input, Path, int], Joined]] = {"ferryman": run_ferryman, "spark": run_spark}
# Where the checkpoint of each has its state, and how the bytes are found that the newest one takes.
_STATE = {"ferryman": ("deltas", "snapshots"), "spark": ("state",)}
_NEWEST = {"ferryman": _snapshot_bytes, "spark": _sst_bytes}


def _of(figure: str, better: str, worse: str, engines: Mapping[str, Result]) -> float | None:
    if better not in engines or worse not in engines:
        return None
    return round(float(engines[better][figure]) / float(engines[worse][figure]), 2)


RATIOS: dict[str, Callable[[Mapping[str, Result]], float | None]] = {
    "ratio_vs_spark_join": partial(_of, "rows_per_s", "ferryman", "spark"),
    "state_bytes_ratio": partial(_of, "state_bytes", "ferryman", "spark"),
}


def run(
    *,
    rows: int = 1_000_000,
    keys: int = 100_000,
    epochs: int = 10,
    rounds: int = 2,
    engines: Sequence[str] = ENGINES,
    instances: int | None = None,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure the join of two streams.

    Parameters
    ----------
    rows, keys
        Rows of each stream, in all epochs, and the keys that they spread over.
    epochs
        In how many epochs they come.
    rounds
        Turns of each engine, after one that is dropped: the JVM is still compiling.
    engines
        Which to measure.
    instances
        Parallel instances, and Spark's shuffle partitions; the number of cores by default.
    scratch
        A directory for input and checkpoints; a temporary one by default.
    """
    progress = progress or Progress()
    facts = environment()
    instances = instances or facts["cores"]
    parameters = {
        "rows": rows, "keys": keys, "epochs": epochs, "rounds": rounds, "engines": ",".join(engines),
        "instances": instances,
    }  # fmt: skip
    result = result_of("joins", parameters, facts)
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    made = Input(work / "input", rows, keys, epochs)
    made.write()
    turns: dict[str, list[Result]] = {engine: [] for engine in engines}
    state: dict[str, int] = {}
    try:
        with bench_session(instances, SETTINGS, log=work / "spark.log") as spark:
            wanted = made.wanted(spark)
            for turn in range(rounds + 1):
                for engine in engines:
                    label = f"{engine}, " + (f"round {turn} of {rounds}" if turn else "warm-up")
                    with progress.step(label):
                        measured = _measure(spark, engine, made, work / "checkpoint", instances, wanted)
                    progress.say(f"{label}: {measured['rows_per_s']:,} rows/s")
                    if turn:
                        turns[engine].append(measured)
            for engine in engines:
                with progress.step(f"{engine}, state"):
                    state[engine] = _state_bytes(spark, engine, made, work / "checkpoint", instances)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    pooled = {engine: {**_pooled(each), "state_bytes": state[engine]} for engine, each in turns.items()}
    ratios = {name: ratio for name, of in RATIOS.items() if (ratio := of(pooled)) is not None}
    return {**result, "engines": pooled, "pairs": wanted.rows, **ratios}


def _measure(spark: SparkSession, engine: str, made: Input, checkpoint: Path, instances: int, wanted: Joined) -> Result:
    with Stopwatch(spark) as stopwatch:
        out = _RUN[engine](spark, made, checkpoint, instances)
        times = sorted(stopwatch.epochs(), key=lambda time: time.epoch)
    if out != wanted:
        raise WrongResult(f"{engine} joined {out}, and a batch {wanted}")
    per_epoch = 2 * (made.rows // made.epochs)
    # The first warms up; what comes without data is no part of it.
    warm = [time.duration_ms for time in times if time.rows >= per_epoch][1:]
    kept = sum(
        path.stat().st_size for folder in _STATE[engine] for path in (checkpoint / folder).rglob("*") if path.is_file()
    )
    shutil.rmtree(checkpoint)
    return {
        "rows_per_s": round(per_epoch / (statistics.median(warm) / 1000)),
        "epochs_ms": warm,
        "checkpoint_bytes": kept,
        "results": "equal to a batch",
    }


def _state_bytes(spark: SparkSession, engine: str, made: Input, checkpoint: Path, instances: int) -> int:
    """Run an engine once more, for what its state takes in the end; Spark without changelogs, so that all is there."""
    before = spark.conf.get(_CHANGELOG)
    spark.conf.set(_CHANGELOG, "false")
    try:
        _RUN[engine](spark, made, checkpoint, instances)
        return _NEWEST[engine](checkpoint)
    finally:
        spark.conf.set(_CHANGELOG, before or "true")
        shutil.rmtree(checkpoint, ignore_errors=True)


def _pooled(turns: Sequence[Result]) -> Result:
    epochs_ms = [time for turn in turns for time in turn["epochs_ms"]]
    return {
        "rows_per_s": round(statistics.median(turn["rows_per_s"] for turn in turns)),
        "rows_per_s_by_round": [turn["rows_per_s"] for turn in turns],
        "epoch_ms": spread(epochs_ms),
        "checkpoint_bytes": round(statistics.median(turn["checkpoint_bytes"] for turn in turns)),
        "results": turns[-1]["results"],
    }


def show_result(result: Result) -> None:
    """Print a result as tables."""
    engines: dict[str, Any] = result["engines"]
    rows = [
        {
            "engine": name,
            "rows/s": figures["rows_per_s"],
            "epoch ms": figures["epoch_ms"]["median"],
            "state bytes": figures["state_bytes"],
            "checkpoint bytes": figures["checkpoint_bytes"],
        }
        for name, figures in engines.items()
    ]
    show("interval join of two streams", rows)
    show("ratios", [{"ratio": name, "times": result[name]} for name in RATIOS if name in result])
