"""What one small epoch costs: 100 rows through Ferryman, through a plain shuffle, and through nothing.

    floor             foreachBatch that does nothing
    stateless         foreachBatch with repartition and mapInArrow, dropped
    stateless_native  the same two steps in the stream's own plan, with Spark's noop sink
    ferryman          one stateful operator, output dropped
    chain             three of them, one after the other, on one key
    other_keys        three, one after the other, each on a key that the one before has made
    three_sinks       three beside each other, each with a sink

Those of `bench.routes` are there to be named: ways to do without a shuffle, each without any state. With `_by_shuffle`
behind its name, a job of ours does without express epochs.

All in one session and in turns, so that the drift of a machine falls on all of them alike.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench import epoch_trace
from bench.report import Progress, Result, environment, percentile, result_of, show, spread
from bench.routes import ROUTES
from bench.sessions import bench_session

Running = tuple[StreamingQuery, Callable[[], None]]
Start = Callable[[SparkSession, DataFrame, Path, int, int], Running]


def _start_floor(spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int, epochs: int) -> Running:
    writer = rows.writeStream.foreachBatch(lambda batch, epoch: None)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    return query, query.stop


def _start_stateless(spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int, epochs: int) -> Running:
    schema = rows.schema

    # Made here so that Spark ships it by value.
    def through(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches

    def shuffle(batch: DataFrame, epoch: int) -> None:
        # Stopped in the middle of a Spark job, the query would print Java's stack; so it idles at the end.
        if epoch >= epochs:
            return
        moved = batch.repartition(instances, "key").mapInArrow(through, schema)
        moved.write.format("noop").mode("overwrite").save()

    query = rows.writeStream.foreachBatch(shuffle).option("checkpointLocation", str(checkpoint)).start()
    return query, query.stop


def _start_native(spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int, epochs: int) -> Running:
    def through(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches

    moved = rows.repartition(instances, "key").mapInArrow(through, rows.schema)
    query = moved.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    return query, query.stop


def _starting(shape: str) -> Start:
    def start(spark: SparkSession, rows: DataFrame, checkpoint: Path, instances: int, epochs: int) -> Running:
        # Imported here so that the others can be measured on their own.
        from bench.ours import start_small

        return start_small(spark, rows, checkpoint, instances, shape)

    return start


OURS = ("ferryman", "chain", "other_keys", "three_sinks")
CONTENDERS: dict[str, Start] = {
    "floor": _start_floor,
    "stateless": _start_stateless,
    "stateless_native": _start_native,
    **ROUTES,
    **{shape: _starting(shape) for shape in OURS},
    **{f"{shape}_by_shuffle": _starting(f"{shape}_by_shuffle") for shape in OURS},
}
RATIOS = (
    ("ratio_vs_stateless", "ferryman", "stateless"),
    ("ratio_vs_stateless_native", "ferryman", "stateless_native"),
    ("ratio_vs_floor", "ferryman", "floor"),
    ("ratio_vs_shuffle", "ferryman", "ferryman_by_shuffle"),
    *((f"{shape}_vs_one", shape, "ferryman") for shape in OURS[1:]),
    *((f"{route}_vs_stateless", route, "stateless") for route in ROUTES),
)
USUAL = ("floor", "stateless", "stateless_native", *OURS, "ferryman_by_shuffle")


def run(
    *,
    rows: int = 100,
    keys: int = 1000,
    rounds: int = 4,
    epochs: int = 60,
    warm: int = 20,
    instances: int | None = None,
    contenders: Sequence[str] = USUAL,
    chart: Path | None = None,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure the epochs of every contender, round after round.

    Parameters
    ----------
    rows, keys
        Rows of an epoch, and how many keys they spread over.
    rounds
        How often each contender has its turn; one more round comes first and is dropped, because
        the JVM is still compiling.
    epochs, warm
        Measured epochs of a turn, and the epochs before them that are dropped.
    instances
        Parallel instances, and Spark's shuffle partitions; the number of cores by default.
    contenders
        Which to measure.
    chart
        Where to draw what an epoch is made of; it is not looked at if left out.
    scratch
        A directory for checkpoints; a temporary one by default.
    """
    progress = progress or Progress()
    facts = environment()
    instances = instances or facts["cores"]
    parameters = {
        "rows": rows, "keys": keys, "rounds": rounds, "epochs": epochs, "warm": warm,
        "instances": instances, "contenders": ",".join(contenders),
    }  # fmt: skip
    result = result_of("epoch", parameters, facts)
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    turns: dict[str, list[list[float]]] = {name: [] for name in contenders}
    try:
        settings = {"spark.sql.streaming.numRecentProgressUpdates": "100000"}
        with bench_session(instances, settings, log=work / "spark.log") as spark:
            for turn in range(rounds + 1):
                for name in contenders:
                    label = f"{name}, " + (f"round {turn} of {rounds}" if turn else "warm-up")
                    with progress.step(label):
                        times = _turn(
                            spark,
                            name,
                            work / f"{name}-{turn}",
                            rows,
                            keys,
                            instances,
                            warm + epochs,
                        )
                    if turn:
                        turns[name].append(times[warm:])
            if chart is not None:
                with progress.step("what an epoch is made of"):
                    traced = epoch_trace.trace(spark, work / "trace", rows, keys, instances, 3 * epochs, 3 * warm)
                epoch_trace.draw(traced, f"An epoch of {rows} rows on {facts['cores']} cores", chart)
                result["trace"], result["chart"] = traced, chart.name
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {**result, **_figures(turns)}


def small_source(spark: SparkSession, rows: int, keys: int, instances: int) -> DataFrame:
    """Stream so many rows per epoch."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", instances)
        .load()
        .selectExpr(f"value % {keys} AS key", "CAST(value AS DOUBLE) AS value")
    )


def _turn(
    spark: SparkSession,
    name: str,
    checkpoint: Path,
    rows: int,
    keys: int,
    instances: int,
    epochs: int,
) -> list[float]:
    source = small_source(spark, rows, keys, instances)
    query, stop = CONTENDERS[name](spark, source, checkpoint, instances, epochs)
    try:
        # Asking now and then disturbs less than a listener, which Spark calls in Python after every epoch.
        while query.isActive and (query.lastProgress or {"batchId": -1})["batchId"] < epochs:
            time.sleep(0.25)
    finally:
        stop()
    # What only looked for data has no addBatch, and is no epoch.
    durations = [epoch["durationMs"] for epoch in query.recentProgress if "addBatch" in epoch["durationMs"]]
    if len(durations) < epochs:
        raise RuntimeError(f"{name} did {len(durations)} of {epochs} epochs and ended; see its error above")
    return [float(duration["triggerExecution"]) for duration in durations[:epochs]]


def _figures(turns: dict[str, list[list[float]]]) -> Result:
    medians = {name: [statistics.median(turn) for turn in each] for name, each in turns.items()}
    contenders: Result = {}
    for name, each in turns.items():
        pooled = [time for turn in each for time in turn]
        contenders[name] = {
            "p50_ms": round(percentile(pooled, 50), 2),
            "p99_ms": round(percentile(pooled, 99), 2),
            "epochs": len(pooled),
            "p50_ms_by_round": [round(median, 2) for median in medians[name]],
        }
    figures: Result = {"contenders": contenders}
    for name, ours, other in RATIOS:
        if ours in contenders and other in contenders:
            figures[name] = round(contenders[ours]["p50_ms"] / contenders[other]["p50_ms"], 3)
            pairs = zip(medians[ours], medians[other], strict=True)
            figures[f"{name}_spread"] = spread([mine / theirs for mine, theirs in pairs])
    for name, contender, figure in (
        ("express_p50_ms", "ferryman", "p50_ms"),
        ("express_p99_ms", "ferryman", "p99_ms"),
        ("spark_p50_ms", "stateless", "p50_ms"),
        ("spark_p99_ms", "stateless", "p99_ms"),
    ):
        if contender in contenders:
            figures[name] = contenders[contender][figure]
    return figures


def show_result(result: Result) -> None:
    """Print a result as tables."""
    rows = [
        {
            "contender": name,
            "p50 ms": figures["p50_ms"],
            "p99 ms": figures["p99_ms"],
            "epochs": figures["epochs"],
            "p50 by round": " ".join(f"{median:.0f}" for median in figures["p50_ms_by_round"]),
        }
        for name, figures in result["contenders"].items()
    ]
    show(f"an epoch of {result['parameters']['rows']} rows", rows)
    ratios = [
        {"ratio": name, "times": value}
        for name, value in result.items()
        if isinstance(value, float) and "_ms" not in name
    ]
    if ratios:
        show("ratios", ratios)
