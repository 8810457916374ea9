"""How much memory a Python worker holds while its state grows far beyond an epoch.

`fill` gives every key its state, `touch` then restarts the job and updates keys all over it. The state
is fixed-width columns (declared sums) or one text of bytes per key (an operator, row by row). The bound
that counts is the anonymous memory: mapped files are the kernel's to drop when it needs the room.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.ours import run_wide
from bench.processes import MemorySampler
from bench.report import Progress, Result, environment, result_of, show
from bench.sessions import bench_session
from ferryman.sources import generator


def run(
    *,
    keys: int = 10_000_000,
    size: int = 100,
    rows: int = 500_000,
    touch_epochs: int = 5,
    kind: str = "columns",
    instances: int = 2,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Fill the state, touch it, and keep the peak memory of every worker.

    Parameters
    ----------
    keys, size
        Keys with state, and bytes of state for each.
    rows
        Rows of an epoch.
    touch_epochs
        Epochs of the second phase.
    kind
        `columns` for fixed-width state, `bytes` for one value of bytes per key.
    instances, scratch, progress
        As in `throughput`.
    """
    progress = progress or Progress()
    parameters = {
        "keys": keys, "bytes": size, "rows": rows, "touch_epochs": touch_epochs, "kind": kind,
        "instances": instances,
    }  # fmt: skip
    result = result_of("memory", parameters, environment())
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    seconds: dict[str, float] = {}
    try:
        with (
            bench_session(instances, {}, log=work / "spark.log") as spark,
            MemorySampler() as memory,
        ):
            for phase, total in (("fill", keys), ("touch", keys + touch_epochs * rows)):
                memory.phase = phase
                began = time.perf_counter()
                with progress.step(f"{phase}, {keys:,} keys of {size} bytes"):
                    stream = _rows(spark, keys, total, rows)
                    keys_found = run_wide(spark, stream, work / "checkpoint", size, kind, instances)
                seconds[phase] = round(time.perf_counter() - began, 1)
            memory.phase = "check"
            if (found := keys_found()) != keys:
                raise RuntimeError(f"{keys:,} keys were given state and {found:,} have it")
            on_disk = sum(path.stat().st_size for path in (work / "checkpoint").rglob("*") if path.is_file())
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {
        **result,
        "state_mb": round(keys * (size + 8) / 2**20, 1),
        "checkpoint_mb": round(on_disk / 2**20, 1),
        "seconds": seconds,
        "workers": {phase: peaks for phase, peaks in memory.by_phase().items() if phase in seconds},
        "peak": memory.peaks(),
    }


def _rows(spark: SparkSession, keys: int, total: int, rows: int) -> DataFrame:
    stream = generator(spark, rows=total, rows_per_epoch=rows)
    return stream.selectExpr(f"CASE WHEN id < {keys} THEN id ELSE pmod(xxhash64(id), {keys}L) END AS key", "value")


def show_result(result: Result) -> None:
    """Print a result as a table."""
    rows = [
        {
            "phase": phase,
            "worker": pid,
            "peak MB": peak["rss"],
            "anonymous": peak["anon"],
            "mapped files": peak["file"],
            "shared memory": peak["shmem"],
            "seconds": result["seconds"][phase],
        }
        for phase, workers in result["workers"].items()
        for pid, peak in workers.items()
    ]
    show(f"{result['state_mb']:,} MB of state, {result['checkpoint_mb']:,} MB of checkpoint", rows)
