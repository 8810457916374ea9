"""How well the simulation tells beforehand what a job does: first predict, then run the same, and give the error.

An engine model is made of one job, the calibration. The scenarios are other jobs: other rates, other numbers of
instances, rows that cost more, other triggers, too much load. For each it is predicted, before it runs, how long the
slowest of a hundred rows takes, and how long a change of the number of instances takes.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from bench.elastic import warm
from bench.elastic_job import MOST, RunningJob
from bench.elastic_load import Trace
from bench.elastic_rivals import Seen
from bench.report import Progress, Result, environment, result_of, show
from bench.sessions import bench_session
from ferryman._scale.epoch_metrics import EpochMetrics
from ferryman.autoscaling import EngineModel, SimulatedCluster, Simulation

# A prediction is the median of so many runs with different chance.
_SEEDS = 9
_WARM_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A job: what comes, and which number of instances it has from when on."""

    what: str
    trace: Trace
    instances: int
    changes: tuple[tuple[float, int], ...]


def _flat(rate: float, seconds: float, **other: float) -> Trace:
    return _ramp(rate, rate, seconds, **other)


def _ramp(low: float, high: float, seconds: float, **other: float) -> Trace:
    half = seconds / 2
    trace = Trace(low=low, high=high, warm_s=_WARM_S, quiet_s=0.0, rise_s=half, fall_s=half, after_s=0.0, bound_s=None)
    return replace(trace, **other)  # type: ignore[arg-type]


def _to_and_fro(
    one: int, other: int, seconds: float, phases: Sequence[float] = (0.1, 0.4, 0.7)
) -> tuple[tuple[float, int], ...]:
    """Change every five seconds, at different times within an interval."""
    times = range(round(_WARM_S) + 4, round(_WARM_S + seconds) - 3, 5)
    return tuple((at + phases[n % len(phases)], other if n % 2 == 0 else one) for n, at in enumerate(times))


CALIBRATION = Scenario(
    what="200 to 1,000 rows/s and back, 1 to 4 instances",
    trace=_ramp(200.0, 1000.0, 60.0),
    instances=1,
    changes=((18.3, 2), (26.6, 4), (42.2, 3), (50.5, 2), (58.4, 1)),
)
SCENARIOS = {
    "more": Scenario(
        what="1,500 rows/s, 5 and 6 instances",
        trace=_flat(1500.0, 35.0),
        instances=6,
        changes=_to_and_fro(6, 5, 35.0),
    ),
    "dearer": Scenario(
        what="350 rows/s of 5 ms, 3 and 4 instances",
        trace=_flat(350.0, 35.0, row_s=0.005),
        instances=3,
        changes=_to_and_fro(3, 4, 35.0),
    ),
    "back_to_back": Scenario(
        what="800 rows/s, no trigger, 3 and 4 instances",
        trace=_flat(800.0, 35.0, interval_ms=0),
        instances=3,
        changes=_to_and_fro(3, 4, 35.0),
    ),
    "too_much": Scenario(
        what="300 to 1,800 rows/s and back, 2 instances and 4 when it is too late",
        trace=_ramp(300.0, 1800.0, 30.0),
        instances=2,
        changes=((28.4, 4), (36.1, 5)),
    ),
    "slow_trigger": Scenario(
        what="600 rows/s, an epoch every 3 s, 2 and 3 instances",
        trace=_flat(600.0, 35.0, interval_ms=3000),
        instances=2,
        changes=_to_and_fro(2, 3, 35.0, phases=(0.4, 1.5, 2.6)),
    ),
}


def run(
    *,
    scenarios: Sequence[str] = tuple(SCENARIOS),
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Calibrate, predict, run, compare.

    Parameters
    ----------
    scenarios
        Which to run.
    scratch
        A directory for checkpoints; a temporary one by default.
    """
    progress = progress or Progress()
    result = result_of("simulation", {"scenarios": ",".join(scenarios)}, environment())
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    try:
        with bench_session(MOST, {}, log=work / "spark.log") as spark:
            with progress.step("warm up"):
                warm(spark, work / "warm")
            with progress.step("calibration"):
                epochs, _ = _measured(spark, CALIBRATION, work / "calibration")
            model = EngineModel.fitted(epochs, trigger_s=CALIBRATION.trace.interval_ms / 1000)
            result["calibration"] = {"what": CALIBRATION.what, "epochs": len(epochs), "model": asdict(model)}
            # All of them before any is run.
            predicted = {name: predict(model, SCENARIOS[name]) for name in scenarios}
            found: Result = {}
            for name in scenarios:
                with progress.step(name):
                    _, measured = _measured(spark, SCENARIOS[name], work / name)
                found[name] = {
                    "what": SCENARIOS[name].what,
                    "predicted": predicted[name],
                    "measured": measured,
                    "error": {key: _error(predicted[name][key], measured[key]) for key in ("p99_ms", "plan_ms")},
                }
    finally:
        shutil.rmtree(work, ignore_errors=True)
    result["scenarios"] = found
    for key in ("p99_ms", "plan_ms"):
        result[f"worst_error_{key}"] = max((abs(one["error"][key]) for one in found.values()), default=None)
    return result


def predict(model: EngineModel, scenario: Scenario) -> Result:
    """Say what a scenario will bring."""
    trace = scenario.trace
    engine = replace(
        model,
        # What a row costs is known beforehand: it is what the user's function does.
        row_s=model.row_s * trace.row_s / CALIBRATION.trace.row_s,
        trigger_s=trace.interval_ms / 1000,
    )
    cluster = SimulatedCluster(hosts=1, cores=MOST, keys=trace.keys)
    runs = [
        Simulation(
            load=trace.rate,
            engine=engine,
            cluster=cluster,
            instances=scenario.instances,
            changes=scenario.changes,
            seed=seed,
        ).run(trace.seconds)
        for seed in range(_SEEDS)
    ]
    late = [run.late_s(since=trace.warm_s) * 1000 for run in runs]
    around = [
        [epoch.metrics.took_s - epoch.metrics.work_s - epoch.metrics.sinks_s for epoch in run.epochs] for run in runs
    ]
    plans = [statistics.mean([plan.took_s * 1000 for plan in run.plans]) for run in runs if run.plans]
    return {
        "p99_ms": round(statistics.median(late)),
        "p99_ms_spread": [round(min(late)), round(max(late))],
        "plan_ms": round(statistics.median(plans)),
        "plan_ms_spread": [round(min(plans)), round(max(plans))],
        "plans": len(runs[0].plans),
        "driver_ms": round(statistics.median([statistics.median(one) for one in around]) * 1000),
    }


def _measured(spark: SparkSession, scenario: Scenario, place: Path) -> tuple[list[EpochMetrics], Result]:
    """Run a scenario; give what its epochs told, and what came of it."""
    left = list(scenario.changes)

    def rule(seen: Seen) -> int | None:
        return left.pop(0)[1] if left and seen.at_s >= left[0][0] else None

    running = RunningJob(spark, scenario.trace, None, place, scenario.instances)
    try:
        running.follow(rule, restarts=False, look_s=0.02)
        outcome = running.outcome()
        epochs = running.epochs()
    finally:
        running.job.stop()
    if not outcome.right:
        raise RuntimeError("a row came twice, or one that nobody sent: no figure of this run is worth anything")
    # As the simulation counts: the rows that were there in the end.
    done = (outcome.due >= scenario.trace.warm_s) & (outcome.due + outcome.late < scenario.trace.seconds)
    took = [decision["took_s"] * 1000 for decision in outcome.decisions]
    return epochs, {
        "p99_ms": round(float(np.percentile(outcome.late[done], 99)) * 1000),
        "plan_ms": round(statistics.mean(took)),
        "plans": len(took),
        "rows": int(done.sum()),
        "driver_ms": round(statistics.median([one.took_s - one.work_s - one.sinks_s for one in epochs]) * 1000),
    }


def _error(predicted: float, measured: float) -> float:
    return round(predicted / measured - 1, 3)


def show_result(result: Result) -> None:
    """Print a result as a table."""
    rows = [
        {
            "scenario": one["what"],
            "p99 predicted": one["predicted"]["p99_ms"],
            "measured": one["measured"]["p99_ms"],
            "error": f"{one['error']['p99_ms']:+.0%}",
            "plan predicted": one["predicted"]["plan_ms"],
            "plan measured": one["measured"]["plan_ms"],
            "plan error": f"{one['error']['plan_ms']:+.0%}",
        }
        for one in result["scenarios"].values()
    ]
    show("predicted first, then measured; ms", rows)


def table(result: Result) -> str:
    """Write the figures as the table of docs/autoscaling.md."""
    lines = [
        "| scenario | p99 predicted | measured | error | change predicted | measured | error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in result["scenarios"].values():
        said, was, error = one["predicted"], one["measured"], one["error"]
        lines.append(
            f"| {one['what']} | {said['p99_ms']:,} ms | {was['p99_ms']:,} ms | {error['p99_ms']:+.0%} "
            f"| {said['plan_ms']:,} ms | {was['plan_ms']:,} ms | {error['plan_ms']:+.0%} |"
        )
    return "\n".join(lines)
