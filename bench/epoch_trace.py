"""What a small epoch is made of: its phases one after the other, medians over many epochs, drawn as a timeline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.report import Result, show

# Spark's phases of a micro-batch around its sink, in their order, and what they are.
BEFORE = {
    "latestOffset": "Spark looks for rows",
    "walCommit": "Spark writes the offsets",
    "queryPlanning": "Spark plans",
}
AFTER = {"commitOffsets": "Spark commits the batch"}
# Those of an epoch.
OURS = {
    "begin": "begin",
    "tasks": "build the plan; by express, run the tasks",
    "sinks": "sinks; by a shuffle, the tasks run here",
    "gather": "gather the receipts",
    "commit": "write the manifest",
    "tell": "tell the sinks",
}
BETWEEN = "call Python and return"


def trace(spark: SparkSession, place: Path, rows: int, keys: int, instances: int, epochs: int, warm: int) -> Result:
    """Run one job by express and by a shuffle; give the median of every phase, in milliseconds."""
    from bench.epoch import small_source
    from bench.ours import start_job

    found: Result = {}
    for name in ("ferryman", "ferryman_by_shuffle"):
        source = small_source(spark, rows, keys, instances)
        job, query = start_job(spark, source, place / name, instances, name)
        try:
            job.wait_for(lambda job=job: job.epoch >= warm + epochs, timeout=600)  # type: ignore[misc]
            batches = {progress["batchId"]: progress["durationMs"] for progress in query.recentProgress}
            measured = [epoch for epoch in job.progress()[-epochs:] if "addBatch" in batches.get(epoch.batch, {})]
            found[name] = _medians([_phases(batches[epoch.batch], epoch.phases_ms) for epoch in measured])
        finally:
            job.stop()
    return found


def _phases(spark: Mapping[str, int], ours: Mapping[str, float]) -> dict[str, float]:
    phases = {label: float(spark.get(name, 0)) for name, label in BEFORE.items()}
    phases[BETWEEN] = max(0.0, spark["addBatch"] - sum(ours.values()))
    phases.update({label: ours.get(name, 0.0) for name, label in OURS.items()})
    phases.update({label: float(spark.get(name, 0)) for name, label in AFTER.items()})
    return phases


def _medians(epochs: list[dict[str, float]]) -> dict[str, float]:
    return {phase: round(statistics.median(epoch[phase] for epoch in epochs), 2) for phase in epochs[0]}


def draw(found: Mapping[str, Mapping[str, float]], title: str, path: Path) -> None:
    """Draw the phases of both as bars on one scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 3.6))
    colours = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    names = {"ferryman": "express", "ferryman_by_shuffle": "shuffle"}
    for row, phases in enumerate(reversed(found.values())):
        begin = 0.0
        for number, (phase, length) in enumerate(phases.items()):
            label = phase if row == 0 else None
            axes.barh(row, length, left=begin, color=colours[number % len(colours)], label=label, height=0.6)
            begin += length
        axes.text(begin + 0.5, row, f"{begin:.0f} ms", va="center")
    axes.set_yticks(range(len(found)), [names.get(name, name) for name in reversed(found)])
    axes.set_xlabel("milliseconds since the trigger, median of each phase")
    axes.set_title(title)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    plt.close(figure)


def show_trace(found: Mapping[str, Mapping[str, float]]) -> None:
    """Print the phases as a table."""
    phases = list(next(iter(found.values())))
    rows: list[dict[str, Any]] = [
        {"phase": phase, **{name: each[phase] for name, each in found.items()}} for phase in phases
    ]
    show("an epoch, phase by phase (ms)", rows)
