"""What users notice while state moves from host to host: latency of every row before, during and after the change.

One Spark standalone cluster on this machine, each worker with an address and a home of its own. Rows come open-loop:
each is due at a time that was fixed beforehand, and its latency counts from that time to the commit of its epoch,
whether or not the job was there to read it.

    live, push, ...   Ferryman, with each of its strategies: one engine, one transport, one job that goes through all
    spark             Spark's own way: stop the query, repartition its state offline, start it again

Every host hands half of its key groups to the next one, and with the next strategy gets them back; so half of the state
moves and the load stays even. Spark, which cannot do that, goes from two to four partitions. Only while `replicate` is
tried, from before it is watched until it is over, has every host a standing replica on the next one.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench import idle as idle_cost
from bench.latency import Change, draw, typical, write_windows
from bench.movable import movable_operator, payload
from bench.offline import repartitioned_offline
from bench.open_loop import Kept, Load, Span, watch
from bench.report import Progress, Result, environment, result_of, show
from bench.sessions import ROCKSDB, refuse_running_session, stderr_to
from ferryman import Ferry, session
from ferryman._migrate.planning import moved
from ferryman._migrate.strategies import STRATEGIES as MIGRATIONS
from ferryman._operator.cells.variables import VALUE
from ferryman._serve import client
from ferryman._serve.wire import Take
from ferryman._spark.api.job import Job
from ferryman._spark.session.local_cluster import standalone
from ferryman._state.store.contract import part_schema

STRATEGIES = (*MIGRATIONS, "spark")
SWEPT = ("push", "pause_resume", "batched")
SWEEPS = ("bytes", "keys", "hosts")

# State whose main copies are read and compared in the end, and how long that may take on a slow line; of a larger one,
# some key groups.
_COMPARED_BYTES = 200_000_000
_COMPARED_S = 3.0


def run(
    *,
    progress: Progress,
    load: Load,
    strategies: Sequence[str],
    sizes: Sequence[int],
    sweeps: Mapping[str, Sequence[int]],
    rounds: int,
    still: bool = False,
    idle: int,
    chart: Path | None,
    scratch: Path | None,
) -> Result:
    """Run every strategy on the same load, and say what was noticed.

    Parameters
    ----------
    progress
        Where to say what is under way.
    load
        What they are given.
    strategies
        Their names.
    sizes
        Bytes of moving state to run `live` with.
    sweeps
        Values of a parameter to run `push` and its rivals with.
    rounds
        How many times each of them; Spark's own way goes once.
    still
        Whether to watch, after each of `sizes`, for as long again while nothing is changed.
    idle
        How often to measure what it costs to be ready for a change.
    chart
        Where to draw the latency.
    scratch
        Where to put files.
    """
    given = {
        name.removesuffix("_s"): value
        for name, value in dataclasses.asdict(load).items()
        if name != "size" and value is not None
    }
    asked = {
        "bytes": load.size,
        "strategies": ",".join(strategies) or None,
        "sizes": ",".join(map(megabytes, sizes)) or None,
        "sweep": [f"{name}={','.join(map(str, values))}" for name, values in sweeps.items()],
        "rounds": rounds if rounds > 1 else None,
        "still": still or None,
        "idle": idle or None,
    }
    result = result_of("reconfigure", {**given, **asked}, environment())
    result["link"] = load.link()
    place = Path(tempfile.mkdtemp(prefix="ferryman-bench-", dir=scratch))
    try:
        with stderr_to(place / "log"):
            if strategies:
                _strategies(result, progress, load, strategies, rounds, chart, place)
            if sizes:
                _sizes(result, progress, load, sizes, rounds, still, place)
            if sweeps:
                _sweeps(result, progress, load, sweeps, rounds, place)
            if idle:
                with cluster_session(place / "idle", 2) as spark, progress.step("idle"):
                    result["idle"] = idle_cost.measure(spark, place / "idle-jobs", rounds=idle)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return result


def _strategies(
    result: Result, progress: Progress, load: Load, names: Sequence[str], rounds: int, chart: Path | None, place: Path
) -> None:
    found: dict[str, list[Change]] = {}
    with cluster_session(place / "strategies", load.hosts) as spark:
        ours = [name for name in names if name != "spark"]
        if ours:
            found.update(_ferryman(spark, progress, load, place / "ours", ours, rounds))
        if "spark" in names:
            with progress.step("spark"):
                found["spark"] = [repartitioned_offline(spark, load, place / "spark")]
    result["strategies"] = {name: typical(found[name]) for name in names}
    result["ratios"] = _ratios(result["strategies"])
    if chart is not None:
        write_windows(found, chart.with_suffix(".csv"))
        title = f"{load.keys * load.size / 2e6:,.0f} MB of state move, {load.rate:,.0f} rows/s"
        draw(chart.with_suffix(".csv"), title, chart)
        result["chart"] = chart.name


def _sizes(
    result: Result, progress: Progress, load: Load, sizes: Sequence[int], rounds: int, still: bool, place: Path
) -> None:
    found: dict[str, Result] = {}
    with cluster_session(place / "sizes", load.hosts) as spark:
        for size in sizes:
            large = replace(load, keys=max(load.groups, round(2 * size / load.size)))
            name = megabytes(size)
            changes = _ferryman(spark, progress, large, place / name, ["live"], rounds, f" {name}", still)
            found[name] = typical(changes["live"])
            shutil.rmtree(place / name, ignore_errors=True)
    result["sizes"] = found
    result["flatness"] = flatness([figures["stoppage_ms"] for figures in found.values()], 1.0)
    noise = max(figures["noise_ms"] for figures in found.values())
    result["flatness_above_noise"] = flatness([figures["stoppage_ms"] for figures in found.values()], max(1.0, noise))


def flatness(stoppages: Sequence[float], floor_ms: float) -> float:
    """Divide the largest stoppage by the smallest; one below the floor cannot be told from the floor.

    Commits are timed in whole milliseconds, so 1 ms is the least floor there is.
    """
    floored = [max(stoppage, floor_ms) for stoppage in stoppages]
    return round(max(floored) / min(floored), 2)


def _sweeps(
    result: Result, progress: Progress, load: Load, sweeps: Mapping[str, Sequence[int]], rounds: int, place: Path
) -> None:
    points = {(what, value): _with(load, what, value) for what, values in sweeps.items() for value in values}
    found: dict[Load, dict[str, Result]] = {}
    for hosts in sorted({point.hosts for point in points.values()}):
        with cluster_session(place / f"hosts-{hosts}", hosts) as spark:
            for (what, value), point in points.items():
                if point.hosts == hosts and point not in found:
                    changes = _ferryman(
                        spark, progress, point, place / f"{what}-{value}", SWEPT, rounds, f" {what}={value}"
                    )
                    found[point] = {how: typical(ones) for how, ones in changes.items()}
    result["sweeps"] = {
        what: {
            str(value): {**found[points[what, value]], "ratios": _ratios(found[points[what, value]])}
            for value in values
        }
        for what, values in sweeps.items()
    }


def _with(load: Load, what: str, value: int) -> Load:
    """Change one parameter. With more hosts there are as many more keys and rows: each host has what it had."""
    if what == "bytes":
        return replace(load, size=value)
    if what == "keys":
        return replace(load, keys=value)
    return replace(load, hosts=value, keys=load.keys * value // load.hosts, rate=load.rate * value / load.hosts)


@contextmanager
def cluster_session(place: Path, hosts: int, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Run a session on a standalone cluster of so many hosts, all of them on this machine."""
    refuse_running_session()
    place.mkdir(parents=True)
    with standalone(place / "cluster", hosts=hosts, cores=2, memory="2g") as cluster:
        conf = {
            **ROCKSDB,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.executor.memory": "1g",
            "spark.cores.max": str(2 * hosts),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "spark.python.daemon.module": "ferryman._spark.session.warm_workers",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(place / "local"),
            **(settings or {}),
        }
        spark = session("ferryman bench reconfigure", cluster.url, conf=conf)
        try:
            yield spark
        finally:
            spark.stop()


def _ferryman(
    spark: SparkSession,
    progress: Progress,
    load: Load,
    place: Path,
    hows: Sequence[str],
    rounds: int,
    note: str = "",
    still: bool = False,
) -> dict[str, list[Change]]:
    """Run one job through a change with each strategy in turn, there and back, so many rounds.

    With `still`, each is followed by as long a time in which nothing is changed.
    """
    with progress.step(f"filling{note}"):
        job, kept = _spread_job(spark, load, place)
    spans: dict[str, list[Span]] = {how: [] for how in hows}
    stills: dict[str, list[Span]] = {how: [] for how in hows}
    try:
        with progress.step(f"warming{note}"):
            kept.wait(load.warm_s, Path(f"{place}.work"))
            # There and back once, as Spark's query is restarted once: what happens for the first time is not measured.
            for forward in (True, False):
                _change(job, "live", forward=forward, most=load.hosts)
        for number, how in enumerate([*hows] * rounds):
            with progress.step(how + note):
                if how == "replicate":
                    # Standing replicas are what it is about: they are there before anybody asks for a change.
                    _replicas(job, 1)
                since = time.time()
                watch(load.before_s)
                usual, asked = kept.worst(since), time.time()
                change, moving = _change(job, how, forward=number % 2 == 0)
                ended = time.time()
                facts = {"moved_bytes": change.moved_bytes, "duration_ms": round((ended - asked) * 1000)}
                watch(load.after_s)
                # As calm as a change has to leave it: near its limits a stream is not the same twice.
                kept.settle(1.2 * usual)
                spans[how].append(Span(since, asked, ended, time.time(), moving, {**facts, "moves": len(moving)}))
                if still:
                    stills[how].append(_stood_still(load, ended - asked, moving))
                if how == "replicate":
                    # The next one is to find none.
                    _replicas(job, 0)
        right = _mains_right(job, load)
    finally:
        job.stop()
    rows = kept.rows({epoch.epoch: epoch.committed_ms / 1000 for epoch in job.progress()})
    for how, ones in stills.items():
        for span, none in zip(spans[how] if still else (), ones, strict=True):
            span.facts.update(_without(kept.change(rows, none)))
    return {
        how: [kept.change(rows, replace(span, facts={**span.facts, "state_equal": right})) for span in ones]
        for how, ones in spans.items()
    }


def _stood_still(load: Load, seconds: float, moving: frozenset[int]) -> Span:
    """Watch for as long as a change took, and change nothing."""
    since = time.time()
    watch(load.before_s)
    asked = time.time()
    watch(seconds)
    return Span(since, asked, time.time(), time.time(), moving, {})


def _without(still: Change) -> Result:
    """Give what the formulas say of a time in which nothing was changed."""
    figures = still.figures()
    return {"still_stoppage_ms": figures["stoppage_ms"], "still_p99_ms": figures["p99_during_ms"]}


def _spread_job(spark: SparkSession, load: Load, place: Path) -> tuple[Job, Kept]:
    """Start a job, and wait until its instances are on as many hosts; the last may come a little later."""
    start = load.start()
    kept = Kept(load, start)
    ferry = Ferry(spark, str(place), groups=load.groups, snapshot_every=30)
    operator = movable_operator(load.size, load.work_ms / 1000, f"{place}.work")
    stream = ferry.stream(load.rows(spark, start)).key_by("key").process(operator, name="Movable")
    job = stream.write(kept).start("reconfigure", instances=load.hosts, trigger=load.trigger)
    try:
        hosts = job._runner.coordinator.state_hosts
        bytes_per_s = None if load.link_mbit is None else load.link_mbit * 1e6 / 8
        hosts.launch = replace(hosts.launch, bytes_per_s=bytes_per_s, delay_s=load.delay_ms / 1000)
        if not job.wait_for(lambda: job.epoch >= 2 and len(set(_placed(job))) == load.hosts, timeout=600):
            raise RuntimeError(f"the instances are not on {load.hosts} hosts but on {_placed(job)}")
    except BaseException:
        job.stop()
        raise
    return job, kept


def _placed(job: Job) -> list[str]:
    """Name the host of each instance in the newest epoch."""
    newest = job.progress()[-1:]
    return [host for epoch in newest for host in epoch.operators["Movable"]["hosts"]]


def _ring(owner: Sequence[int], hosts: int, *, forward: bool) -> dict[int, int]:
    """Say which groups go where: half of what each instance had at first goes to the next one, or comes back."""
    step = 1 if forward else -1
    return {group: (now + step) % hosts for group, now in enumerate(owner) if group % 2}


def _change(job: Job, how: str, *, forward: bool, most: int | None = None) -> tuple[Any, frozenset[int]]:
    """Move the groups of the ring, or only some of them, spread over the hosts."""
    coordinator = job._runner.coordinator
    table = coordinator.table
    to = _ring(table.owner, table.instances, forward=forward)
    if most is not None:
        to = dict(list(to.items())[:: len(to) // most])
    change = coordinator.request("move", lambda table, _: moved(table, to), how)
    if not change.wait(600):
        raise RuntimeError(f"{how}: the plan ended {change.phase}: {change.reason}")
    return change, frozenset(to)


def _replicas(job: Job, count: int) -> None:
    """Have so many standing replicas, and wait until they have everything, or are gone."""
    job._runner.coordinator.standbys.keep(count)
    if not job.wait_for(lambda: job.replicated is not None, timeout=600):
        raise RuntimeError("the standing replicas do not keep up with the stream")


def _mains_right(job: Job, load: Load) -> bool:
    """Compare the main copies where they are now with what a job that never moved has."""
    coordinator = job._runner.coordinator
    spec = coordinator.layout.nodes["Movable"].stream.spec
    table = next(table for table in spec.kept if table.name.endswith(".held"))
    schema = part_schema(table.key, table.state)
    most = min(_COMPARED_BYTES, (load.link_mbit or 1e9) * 1e6 / 8 * _COMPARED_S * load.hosts)
    step = max(1, math.ceil(load.keys * load.size / most))
    found: dict[str, bytes] = {}
    launch = coordinator.state_hosts.launch
    for instance, at in coordinator.layout.find_hosts(launch).items():
        mine = [group for group, owner in enumerate(coordinator.table.owner) if owner == instance]
        take = Take({table.name: table.backend}, tuple(mine[::step]))
        for _, mains in client.take(at.location or "", launch.access, take, {table.name: schema}):
            rows = mains[table.name][0]
            values = (next(iter(value.values())) for value in rows[VALUE].to_pylist())
            found.update(zip(rows["key"].to_pylist(), values, strict=True))
    whole = step > 1 or len(found) == load.keys
    return whole and all(value == payload(key, load.size) for key, value in found.items())


def _ratios(strategies: Mapping[str, Result]) -> Result:
    ratios: Result = {}
    live = strategies.get("live")
    if live:
        ratios["live_p99_during_vs_before"] = round(live["p99_during_ms"] / live["p99_before_ms"], 2)
    if live and "spark" in strategies:
        # A stoppage of less than a millisecond cannot be told from none.
        ratios["spark_stoppage_vs_live"] = round(strategies["spark"]["stoppage_ms"] / max(1.0, live["stoppage_ms"]), 1)
    for rival in ("pause_resume", "batched"):
        if "push" in strategies and rival in strategies and strategies[rival]["stabilise_ms"]:
            push, other = (strategies[how]["stabilise_ms"] for how in ("push", rival))
            ratios[f"push_stabilise_vs_{rival}"] = None if push is None else round(push / other, 2)
    return ratios


def megabytes(size: int) -> str:
    """Write a number of bytes as people do."""
    return f"{size // 10**9}GB" if size >= 10**9 and size % 10**9 == 0 else f"{size / 1e6:g}MB"


def show_result(result: Result) -> None:
    """Print the figures as tables."""
    if "strategies" in result:
        show("latency through a change", [_line(name, figures) for name, figures in result["strategies"].items()])
        print(json.dumps(result["ratios"]))
    if "sizes" in result:
        show("live, by the state that moves", [_line(name, figures) for name, figures in result["sizes"].items()])
        print(json.dumps({name: result[name] for name in ("flatness", "flatness_above_noise")}))
    for what, swept in result.get("sweeps", {}).items():
        lines = [
            {what: value, **{how: found[how]["stabilise_ms"] for how in SWEPT}, **found["ratios"]}
            for value, found in swept.items()
        ]
        show(f"stabilise_ms, by {what}", lines)
    if "idle" in result:
        print(json.dumps(result["idle"]))


COLUMNS = ("stoppage_ms", "stabilise_ms", "p99_before_ms", "p99_during_ms", "p99_after_ms", "max_ms", "duration_ms")


def _line(name: str, one: Result) -> Result:
    right = one["exactly_once"] and one["in_order"] and one["state_equal"] is not False
    figures = {column.removesuffix("_ms").replace("_", " "): one[column] for column in COLUMNS}
    return {"": name, **figures, "MB": round(one["moved_bytes"] / 1e6, 1), "right": "yes" if right else "NO"}


if __name__ == "__main__":
    from bench.evaluation import write

    write()
