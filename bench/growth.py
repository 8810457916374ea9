"""Whether an epoch's cost follows the keys it touches or the keys that exist.

The first epoch gives every key state; the measured epochs all touch the same few keys. What grows from
one number of existing keys to the next is the cost of state that nobody asked for.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.data import FILES_PER_EPOCH, Input
from bench.report import Progress, Result, environment, result_of, show, spread
from bench.sessions import ROCKSDB, bench_session
from bench.throughput import measure


def run(
    *,
    existing: Sequence[int] = (10_000, 100_000, 1_000_000),
    touched: int = 10_000,
    rows: int = 100_000,
    epochs: int = 5,
    engines: Sequence[str] = ("ferryman_vectorised", "spark_jvm"),
    instances: int | None = None,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Measure the same epochs at every number of existing keys.

    Parameters
    ----------
    existing
        Numbers of keys that have state.
    touched, rows
        Keys and rows of a measured epoch.
    epochs
        Measured epochs, after one to fill and one to warm up.
    engines
        Which to measure.
    instances, scratch, progress
        As in `throughput`.
    """
    progress = progress or Progress()
    facts = environment()
    instances = instances or facts["cores"]
    parameters = {
        "existing": ",".join(map(str, existing)), "touched": touched, "rows": rows, "epochs": epochs,
        "engines": ",".join(engines), "instances": instances,
    }  # fmt: skip
    result = result_of("growth", parameters, facts)
    measured: dict[str, Result] = {engine: {} for engine in engines}
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    try:
        with bench_session(instances, ROCKSDB, log=work / "spark.log") as spark:
            # The first pass is dropped: in it the JVM compiles, which would weigh on the smallest number.
            for turn, count in enumerate((existing[0], *existing)):
                made = _write(work / f"input-{turn}", count, min(touched, count), rows, epochs)
                for engine in engines:
                    label = f"{engine}, {count:,} keys exist" + ("" if turn else ", warm-up")
                    with progress.step(label):
                        times, memory = measure(spark, engine, made, work / f"{engine}-{turn}", instances)
                    if turn:
                        measured[engine][str(count)] = {
                            "fill_ms": times[0].duration_ms,
                            "epoch_ms": spread([time.duration_ms for time in times[2:]]),
                            "memory": memory.peaks(),
                        }
                shutil.rmtree(made.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {**result, "engines": measured, "growth": {engine: _growth(each) for engine, each in measured.items()}}


def _write(folder: Path, existing: int, touched: int, rows: int, epochs: int) -> Input:
    folder.mkdir()
    made = Input(folder, rows, existing, epochs + 2)
    random = np.random.default_rng(1)
    # Spread over all keys, so that no engine finds them side by side.
    chosen = random.choice(existing, touched, replace=False)
    for part, keys in enumerate(np.array_split(np.arange(existing, dtype=np.int64), FILES_PER_EPOCH)):
        made.write(0, part, pa.table({"key": keys, "value": np.ones(len(keys))}))
    for epoch in range(1, made.epochs):
        for part in range(FILES_PER_EPOCH):
            picked = random.choice(chosen, rows // FILES_PER_EPOCH)
            made.write(epoch, part, pa.table({"key": picked, "value": np.ones(len(picked))}))
    return made


def _growth(by_existing: Result) -> Result:
    counts = sorted(map(int, by_existing))
    first, last = (by_existing[str(count)] for count in (counts[0], counts[-1]))
    return {
        "keys": round(counts[-1] / counts[0], 2),
        "epoch_ms": round(last["epoch_ms"]["median"] / first["epoch_ms"]["median"], 3),
        "worker_anon_mb": round(last["memory"]["worker_anon_mb"] - first["memory"]["worker_anon_mb"], 1),
    }


def show_result(result: Result) -> None:
    """Print a result as a table."""
    rows = [
        {
            "engine": engine,
            "keys that exist": int(count),
            "epoch ms": figures["epoch_ms"]["median"],
            "min": figures["epoch_ms"]["min"],
            "max": figures["epoch_ms"]["max"],
            "fill ms": figures["fill_ms"],
            "worker MB": figures["memory"]["worker_peak_mb"],
            "of it anonymous": figures["memory"]["worker_anon_mb"],
        }
        for engine, each in result["engines"].items()
        for count, figures in each.items()
    ]
    show(f"{result['parameters']['touched']:,} keys touched per epoch", rows)
