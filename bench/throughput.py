"""Rows per second of a count and a sum per key, for Ferryman and for what Spark itself offers.

Every engine reads the same files in the same session, drops its output, and is timed by Spark's own
`triggerExecution`. The first epoch is the warm-up. Afterwards each shows its whole state, which must
equal a batch computation, or the benchmark fails.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from bench.data import Input, differences, write_input
from bench.processes import MemorySampler
from bench.report import Progress, Result, environment, result_of, show, spread
from bench.rivals import RIVALS, run_rival
from bench.sessions import ROCKSDB, EpochTime, Stopwatch, bench_session

ENGINES = (
    "ferryman_vectorised",
    "ferryman_rows",
    "ferryman_processor_row",
    "ferryman_processor_pandas",
    "spark_jvm",
    "spark_tws_row",
    "spark_tws_pandas",
    "spark_apply_in_pandas",
)
# These pay a round trip, or pandas frames, per key and epoch: tens of seconds for one epoch of 100 k keys.
SLOW = frozenset({"ferryman_processor_pandas", "spark_tws_row", "spark_tws_pandas", "spark_apply_in_pandas"})
RATIOS = {
    "vectorised_vs_jvm": ("ferryman_vectorised", "spark_jvm"),
    "rows_vs_tws_row": ("ferryman_rows", "spark_tws_row"),
    "rows_vs_tws_pandas": ("ferryman_rows", "spark_tws_pandas"),
    "rows_vs_apply_in_pandas": ("ferryman_rows", "spark_apply_in_pandas"),
    "processor_row_vs_tws_row": ("ferryman_processor_row", "spark_tws_row"),
    "processor_pandas_vs_tws_pandas": ("ferryman_processor_pandas", "spark_tws_pandas"),
}


class WrongResult(Exception):
    """An engine whose counts or sums are not those of a batch computation."""


def run(
    *,
    keys: Sequence[int] = (100_000,),
    rows: int = 1_000_000,
    epochs: int = 5,
    slow_epochs: int = 1,
    slow_max_keys: int = 100_000,
    slow_scale: int = 1,
    rounds: int = 1,
    engines: Sequence[str] = ENGINES,
    instances: int | None = None,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure every engine at every number of keys.

    Parameters
    ----------
    keys
        Numbers of keys; `engines` and `ratios` of the result are those of the first.
    rows
        Rows of an epoch.
    epochs, slow_epochs
        Measured epochs after the warm-up; the engines that take tens of seconds for one have their own.
    slow_max_keys
        Above it the slow engines are left out, and the result says so.
    slow_scale
        Divides rows and keys alike for the slow engines, which pay per key: the rows per key stay what
        they are and the run ends within minutes, but what an epoch costs at the least weighs more. 1 gives
        all engines the same data; use it for figures to publish.
    rounds
        How often each engine has its turn. With more than one, another round comes first and is dropped, because the
        JVM is still compiling.
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
        "keys": ",".join(map(str, keys)), "rows": rows, "epochs": epochs, "slow_epochs": slow_epochs,
        "slow_max_keys": slow_max_keys, "slow_scale": slow_scale, "rounds": rounds, "engines": ",".join(engines),
        "instances": instances,
    }  # fmt: skip
    result = result_of("throughput", parameters, facts)
    by_keys: dict[str, Result] = {}
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    try:
        with bench_session(instances, ROCKSDB, log=work / "spark.log") as spark:
            for count in keys:
                turns: dict[str, list[Result]] = {engine: [] for engine in engines}
                for turn in range(rounds + 1 if rounds > 1 else 1):
                    for engine in engines:
                        slow = engine in SLOW
                        if slow and count > slow_max_keys:
                            continue
                        scale, wanted = (slow_scale, slow_epochs) if slow else (1, epochs)
                        label = f"{engine}, {count:,} keys"
                        if rounds > 1:
                            label += f", round {turn} of {rounds}" if turn else ", warm-up"
                        with progress.step(label):
                            measured = _measure(spark, engine, work, rows, count, scale, wanted, instances)
                        progress.say(f"{label}: {measured['rows_per_s']:,} rows/s")
                        if turn or rounds == 1:
                            turns[engine].append(measured)
                skipped = {"skipped": f"over {slow_max_keys} keys; see --slow-max-keys"}
                by_keys[str(count)] = {
                    "engines": {engine: _pooled(each) if each else skipped for engine, each in turns.items()},
                    "ratios": _ratios(turns),
                    "ratios_spread": _ratios_spread(turns),
                }
    finally:
        shutil.rmtree(work, ignore_errors=True)
    first = by_keys[str(keys[0])]
    return {**result, **first, "by_keys": by_keys}


def _measure(
    spark: SparkSession,
    engine: str,
    work: Path,
    rows: int,
    keys: int,
    scale: int,
    epochs: int,
    instances: int,
) -> Result:
    rows, keys = max(1, rows // scale), max(1, keys // scale)
    folder = work / f"input-{rows}-{keys}-{epochs}"
    made = Input(folder, rows, keys, epochs + 1)
    if not folder.exists():
        write_input(folder, rows_per_epoch=rows, keys=keys, epochs=epochs + 1)
    run_dir = work / f"{engine}-{keys}"
    times, memory = measure(spark, engine, made, run_dir, instances)
    return _figures(times, made, memory, scale)


def measure(
    spark: SparkSession, engine: str, made: Input, run_dir: Path, instances: int
) -> tuple[list[EpochTime], MemorySampler]:
    """Run an engine over all its input and check what it holds in the end."""
    with Stopwatch(spark) as stopwatch, MemorySampler(interval_s=0.5) as memory:
        run_engine(spark, engine, made, run_dir / "checkpoint", None, instances)
        times = stopwatch.epochs()
    census = run_dir / "census"
    made.add_census()
    try:
        run_engine(spark, engine, made, run_dir / "checkpoint", census, instances)
        wrong = differences(spark, made, str(census))
    finally:
        made.remove_census()
    if wrong:
        raise WrongResult(f"{engine}: {wrong:,} rows of its state differ from a batch computation over the same files")
    if len(times) != made.epochs:
        raise WrongResult(f"{engine}: {made.epochs} epochs were expected and Spark reported {len(times)}")
    shutil.rmtree(run_dir, ignore_errors=True)
    return sorted(times, key=lambda time: time.epoch), memory


def run_engine(
    spark: SparkSession, engine: str, made: Input, checkpoint: Path, census: Path | None, instances: int
) -> None:
    if engine in RIVALS:
        run_rival(spark, engine, made, checkpoint, census)
    else:
        # Imported here so that the rivals can be measured on their own.
        from bench.ours import run_ferry

        run_ferry(spark, engine, made, checkpoint, census, instances)


def _figures(times: Sequence[EpochTime], made: Input, memory: MemorySampler, scale: int) -> Result:
    warm = [epoch.duration_ms for epoch in times[1:]]
    return {
        "rows_per_s": round(made.rows_per_epoch / (statistics.median(warm) / 1000)),
        "epoch_ms": spread(warm),
        "epochs_ms": warm,
        "warm_up_ms": times[0].duration_ms,
        "rows_per_epoch": made.rows_per_epoch,
        "keys": made.keys,
        "scaled_down_by": scale,
        "memory": memory.peaks(),
        "results": "equal to a batch computation",
    }


def _pooled(turns: Sequence[Result]) -> Result:
    """Give the figures of all turns of an engine: the medians are those of all its epochs."""
    epochs_ms = [duration for turn in turns for duration in turn["epochs_ms"]]
    return {
        **turns[-1],
        "rows_per_s": round(turns[-1]["rows_per_epoch"] / (statistics.median(epochs_ms) / 1000)),
        "rows_per_s_by_round": [turn["rows_per_s"] for turn in turns],
        "epoch_ms": spread(epochs_ms),
        "epochs_ms": epochs_ms,
    }


def _ratios(turns: Mapping[str, Sequence[Result]]) -> Result:
    rates = {engine: _pooled(each)["rows_per_s"] for engine, each in turns.items() if each}
    return {
        name: round(rates[ours] / rates[rival], 2)
        for name, (ours, rival) in RATIOS.items()
        if ours in rates and rival in rates
    }


def _ratios_spread(turns: Mapping[str, Sequence[Result]]) -> Result:
    """Give the ratios round by round."""
    return {
        name: spread(
            [mine["rows_per_s"] / theirs["rows_per_s"] for mine, theirs in zip(turns[ours], turns[rival], strict=True)]
        )
        for name, (ours, rival) in RATIOS.items()
        if turns.get(ours) and turns.get(rival)
    }


def show_result(result: Result) -> None:
    """Print a result as tables."""
    for keys, part in result["by_keys"].items():
        rows = [
            {
                "engine": name,
                "rows/s": figures.get("rows_per_s", "skipped"),
                "epoch ms": figures.get("epoch_ms", {}).get("median"),
                "min": figures.get("epoch_ms", {}).get("min"),
                "max": figures.get("epoch_ms", {}).get("max"),
                "epochs": figures.get("epoch_ms", {}).get("n"),
                "rows": figures.get("rows_per_epoch"),
                "worker MB": figures.get("memory", {}).get("worker_peak_mb"),
            }
            for name, figures in part["engines"].items()
        ]
        show(f"throughput, {int(keys):,} keys", rows)
        if part["ratios"]:
            show("ratios", [{"ratio": name, "times": value} for name, value in part["ratios"].items()])
