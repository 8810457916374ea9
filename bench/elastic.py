"""Load grows tenfold and shrinks again: the autoscaler beside a fixed number of instances, and beside others' rules.

Rows are due by the clock, and every row takes an instance a fixed time, which it waits: so one instance is a bottleneck
on a machine of few cores too. The same trace for all, one after the other, in one session.

    autoscaled       Ferryman's own autoscaler
    fixed_peak       as many instances as the peak needs, all the time
    fixed_mean       as many as would do all rows in the time of the trace
    lag              a rule of lag, as KEDA has it; changes are Ferryman's, with no stop
    restart          the rule of Flink's operator with its windows; for every change the query is stopped and started
    restart_quick    the same rule with windows as short as Ferryman's: what stopping and starting alone costs
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from bench.elastic_job import MOST, RunningJob
from bench.elastic_load import Outcome, Trace, changes, instance_seconds
from bench.elastic_rivals import Lag, Rule, TrueRateWindows
from bench.report import Progress, Result, environment, result_of, show
from bench.sessions import bench_session
from ferryman import Autoscale
from ferryman.autoscaling import EngineModel, Flat, SimulatedCluster, Simulation, TrueRates

CONTENDERS = ("autoscaled", "fixed_peak", "fixed_mean", "lag", "restart", "restart_quick")
# The trace as it is by default: what everything else is shortened by.
_USUAL_RISE_S = 300.0
# How many rows per second come at the least, and at the most.
_LOW, _HIGH = 250.0, 2500.0
# Latency is looked at in windows, by when rows were due.
_WINDOW_S = 5.0
# How long a job runs before anything is measured.
_WARM_S = 12.0


def run(
    *,
    minutes: float = 5.0,
    seconds: float | None = None,
    contenders: Sequence[str] = CONTENDERS,
    together: bool = False,
    chart: Path | None = None,
    add: Path | None = None,
    flat_hours: float = 1.0,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run the trace with every contender.

    Parameters
    ----------
    minutes
        How long the load grows, and shrinks.
    seconds
        How long the whole trace is instead.
    contenders
        Who runs it.
    together
        Whether they run at the same time, in one session, and not one after the other.
    chart
        Where to draw it.
    add
        An earlier result of the same trace on this machine, whose contenders are shown beside these.
    flat_hours
        How many simulated hours of flat load there are at each of several rates; 0 for none.
    scratch
        A directory for checkpoints; a temporary one by default.
    """
    progress = progress or Progress()
    trace = trace_of(minutes, seconds)
    pace = _USUAL_RISE_S / trace.rise_s
    parameters = {
        "minutes": None if seconds is not None else minutes,
        "seconds": seconds,
        "contenders": ",".join(contenders) or "none",
        "together": together,
        "add": None if add is None else add.name,
        "flat-hours": flat_hours,
    }
    result = result_of("elastic", parameters, environment())
    result["trace"] = {**asdict(trace), "seconds": trace.seconds}
    result["pace"] = round(pace, 2)
    options = autoscale_of(pace)
    result["autoscale"] = {name: str(value) for name, value in vars(options).items() if value is not None}
    oracle = trace.oracle()
    oracle_s = instance_seconds(oracle, trace.warm_s, trace.seconds)
    result["oracle"] = {
        "instance_seconds": round(oracle_s, 1),
        "scale_outs": sum(after > before for (_, before), (_, after) in pairwise(oracle)),
        "most": max(count for _, count in oracle),
        "steps": oracle,
    }
    result["contenders"] = {} if add is None else _earlier(result, add)
    work = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    try:
        if contenders:
            with bench_session(MOST * (len(contenders) if together else 1), {}, log=work / "spark.log") as spark:
                with progress.step("warm up"):
                    warm(spark, work / "warm")
                # At the same time, or each for itself.
                for some in [list(contenders)] if together else [[name] for name in contenders]:
                    with progress.step(", ".join(some)), ThreadPoolExecutor(len(some)) as pool:
                        turns = [
                            pool.submit(_turn, spark, trace, name, pace, work / name, 4.0 + 2.5 * len(some))
                            for name in some
                        ]
                        for name, turn in zip(some, turns, strict=True):
                            result["contenders"][name] = figures(trace, turn.result())
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if flat_hours:
        with progress.step("flat load in simulated time"):
            result["flat"] = on_flat_load(flat_hours)
            result["decisions_on_flat_load"] = sum(one["decisions"] for one in result["flat"])
    result["in_simulated_time"] = in_simulated_time(trace, options)
    if "autoscaled" in result["contenders"]:
        ours = result["contenders"]["autoscaled"]
        result["p99_worst_ratio"] = ours["p99_worst_ratio"]
        result["instance_seconds_vs_oracle"] = ours["instance_seconds_vs_oracle"]
        result["scale_outs_beyond_oracle"] = ours["scale_outs"] - result["oracle"]["scale_outs"]
        result["given_back"] = ours["instances_in_the_end"] == oracle[-1][1]
    if chart is not None and result["contenders"]:
        from bench.elastic_chart import draw

        draw(result, chart)
        result["chart"] = chart.name
    return result


def _earlier(result: Result, file: Path) -> Result:
    earlier = json.loads(file.read_text())
    if earlier["trace"] != json.loads(json.dumps(result["trace"])):
        raise RuntimeError(f"{file} has another trace: give the same --minutes or --seconds")
    result["added_at"] = earlier["environment"]["at"]
    return dict(earlier["contenders"])


def trace_of(minutes: float, seconds: float | None = None) -> Trace:
    """Make the trace: so long up and so long down, and some time before and after; or so long in all.

    Examples
    --------
    >>> trace_of(5.0).seconds, trace_of(5.0, seconds=150.0).seconds, trace_of(5.0, seconds=150.0).rise_s
    (762.0, 150.0, 49.0)
    """
    rise_s, quiet_s, after_s = minutes * 60, 30.0, 120.0
    if seconds is not None:
        rise_s = (seconds - _WARM_S - quiet_s - after_s) / 2
        if rise_s < _USUAL_RISE_S / 2:
            quiet_s, after_s = 10.0, 30.0
            rise_s = (seconds - _WARM_S - quiet_s - after_s) / 2
    return Trace(low=_LOW, high=_HIGH, warm_s=_WARM_S, quiet_s=quiet_s, rise_s=rise_s, fall_s=rise_s, after_s=after_s)


def autoscale_of(pace: float) -> Autoscale:
    """Give the options of the autoscaler: the defaults, shortened as the load is, as far as epochs of 1 s allow."""
    if pace <= 1:
        return Autoscale(max=MOST)
    window_s = max(3.0, round(5 / pace, 1))
    return Autoscale(
        max=MOST,
        policy=TrueRates(window_s=window_s, ahead_s=max(4.0, round(10 / pace, 1))),
        window=window_s,
        scale_out_after=max(1.0, round(2 / pace, 1)),
        scale_in_after=max(5.0, round(60 / pace, 1)),
        cool_down=max(2.0, round(5 / pace, 1)),
    )


# -- a turn ---------------------------------------------------------------------------------------------


def warm(spark: SparkSession, place: Path) -> None:
    """Have compilers and workers warm before the first contender."""
    trace = replace(trace_of(5.0), high=_LOW, warm_s=0.0, quiet_s=0.0, rise_s=10.0, fall_s=5.0, after_s=0.0)
    running = RunningJob(spark, trace, None, place)
    try:
        running.job.wait_for(lambda: len(running.job.progress()) > 2, timeout=120)
        running.job.rescale(MOST // 2).wait()
        running.follow(None, restarts=False)
    finally:
        running.job.stop()


def _turn(spark: SparkSession, trace: Trace, name: str, pace: float, place: Path, start_s: float) -> Outcome:
    """Run the trace with one contender."""
    options = autoscale_of(pace) if name == "autoscaled" else None
    running = RunningJob(spark, trace, options, place, start_s=start_s)
    try:
        fixed = {"fixed_peak": max(count for _, count in trace.oracle()), "fixed_mean": trace.mean_needed}.get(name)
        if fixed is not None:
            running.job.rescale(fixed).wait()
        running.follow(_rule(name, trace, pace), restarts=name.startswith("restart"))
        return running.outcome()
    finally:
        running.job.stop()


def _rule(name: str, trace: Trace, pace: float) -> Rule | None:
    if name == "lag":
        # What is on its way, at the target: rows wait half an interval for their epoch, and then as long as it works.
        per_instance = trace.target / trace.row_s * trace.interval_ms / 1000 * (0.5 + trace.target)
        return Lag(per_instance=per_instance, pace=pace, most=MOST)
    if name == "restart":
        return TrueRateWindows(pace=pace, most=MOST)
    if name == "restart_quick":
        # The windows of Ferryman's autoscaler.
        return TrueRateWindows(pace=1.0, most=MOST, window_s=5, stable_s=2, fewer_s=60 / pace, catch_up_s=60)
    return None


# -- figures --------------------------------------------------------------------------------------------


def figures(trace: Trace, outcome: Outcome) -> Result:
    """Say what came of a turn."""
    oracle = trace.oracle()
    windows = outcome.windows(_WINDOW_S)
    quiet_until = trace.warm_s + trace.quiet_s
    measured = outcome.due >= trace.warm_s
    quiet = float(np.percentile(outcome.late[measured & (outcome.due < quiet_until)], 99))
    worst = max(p99 for _, p99 in windows)
    spent = instance_seconds(outcome.steps, trace.warm_s, trace.seconds)
    # The autoscaler says more than what it changes.
    done = [one for one in outcome.decisions if one.get("kind") in (None, "scale out", "scale in")]
    ups = [one for one in done if one["after"] > one["before"]]
    return {
        "p99_quiet_ms": round(quiet * 1000),
        "p99_ms": round(float(np.percentile(outcome.late[measured], 99)) * 1000),
        "p99_worst_ms": round(worst * 1000),
        "p99_worst_ratio": round(worst / quiet, 2),
        "instance_seconds": round(spent, 1),
        "instance_seconds_vs_oracle": round(spent / instance_seconds(oracle, trace.warm_s, trace.seconds), 3),
        "scale_outs": len(ups),
        "scale_ins": len(done) - len(ups),
        "instances_most": max(count for _, count in outcome.steps),
        "instances_in_the_end": outcome.steps[-1][1],
        "rows": len(outcome.due),
        "rows_not_done": outcome.missing,
        "exactly_once": outcome.right,
        "decisions": outcome.decisions,
        "steps": changes(outcome.steps),
        "windows_s_p99_ms": [[round(begin, 1), round(p99 * 1000)] for begin, p99 in windows],
    }


def on_flat_load(hours: float) -> list[Result]:
    """Count what is decided on flat noisy load in simulated time, at several rates, once the first minutes are over."""
    found = []
    engine = EngineModel(row_s=0.002, trigger_s=1.0, noise=0.1)
    for rate in range(250, 2750, 250):
        settle_s = 600.0
        run = Simulation(load=Flat(rate), engine=engine, autoscale=Autoscale(max=MOST), seed=rate).run(
            settle_s + hours * 3600
        )
        late = [decision for decision in run.changes if decision.time_ms / 1000 > settle_s]
        instances = run.epochs[-1].metrics.instances
        found.append({"rows_per_s": rate, "instances": instances, "decisions": len(late)})
    return found


# What an epoch costs on two cores, as `ferryman bench simulation` has calibrated it.
ENGINE = EngineModel(
    overhead_s=0.13, per_instance_s=0.0, express_s=0.07, fixed_s=0.015, row_s=0.002, cold_s=0.08, noise=0.04,
    driver_noise=0.3, before_s=0.03, trigger_s=1.0,
)  # fmt: skip


def in_simulated_time(trace: Trace, options: Autoscale, seeds: Sequence[int] = range(1, 6)) -> list[Result]:
    """Run the autoscaler through the trace in simulated time, where no other work of the machine is in its way."""
    found, oracle = [], trace.oracle()
    for seed in seeds:
        run = Simulation(
            load=trace.rate,
            engine=replace(ENGINE, row_s=trace.row_s, trigger_s=trace.interval_ms / 1000),
            cluster=SimulatedCluster(hosts=1, cores=MOST, keys=trace.keys),
            autoscale=options,
            seed=seed,
        ).run(trace.seconds)
        steps = [(epoch.metrics.began_s, epoch.metrics.instances) for epoch in run.epochs]
        begins = np.arange(trace.warm_s, trace.seconds, _WINDOW_S)
        worst = max(run.late_s(since=begin, until=begin + _WINDOW_S) for begin in begins)
        quiet = run.late_s(since=trace.warm_s, until=trace.warm_s + trace.quiet_s)
        spent = instance_seconds(steps, trace.warm_s, trace.seconds)
        outs = sum(decision.kind == "scale out" for decision in run.changes)
        found.append(
            {
                "seed": seed,
                "p99_worst_ratio": round(worst / quiet, 2),
                "instance_seconds_vs_oracle": round(spent / instance_seconds(oracle, trace.warm_s, trace.seconds), 3),
                "scale_outs_beyond_oracle": outs - sum(after > before for (_, before), (_, after) in pairwise(oracle)),
                "given_back": steps[-1][1] == oracle[-1][1],
            }
        )
    return found


def show_result(result: Result) -> None:
    """Print a result as a table."""
    rows = [
        {
            "contender": name,
            "p99 quiet ms": one["p99_quiet_ms"],
            "p99 worst ms": one["p99_worst_ms"],
            "ratio": one["p99_worst_ratio"],
            "instance-seconds": one["instance_seconds"],
            "vs oracle": one["instance_seconds_vs_oracle"],
            "out": one["scale_outs"],
            "in": one["scale_ins"],
            "in the end": one["instances_in_the_end"],
            "not done": one["rows_not_done"],
            "exactly once": str(one["exactly_once"]),
        }
        for name, one in result.get("contenders", {}).items()
    ]
    trace = result["trace"]
    if rows:
        show(f"{trace['low']:,.0f} to {trace['high']:,.0f} rows/s in {trace['rise_s']:.0f} s, and back", rows)
    show("the autoscaler through the same trace in simulated time", result["in_simulated_time"])
    if "decisions_on_flat_load" in result:
        print(f"decisions on flat load: {result['decisions_on_flat_load']}")
