"""How soon the key groups of a lost executor process again: one of four hosts is killed while rows come open-loop.

    executor    Ferryman without replicas, and Spark's own transformWithState on RocksDB with changelog, on one cluster
    replicas    Ferryman with a standing replica, with the state once and twice as large; and what replicas cost

Rows are due by the clock (`open_loop`). A group processes again when a row of it that was due after the loss has been
put out. Of Spark's query, whose epochs are there whole or not at all, all groups count.
"""

from __future__ import annotations

import dataclasses
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from bench.losses import PATIENCE_S, again, executors, kill_executor, wait_for
from bench.movable import movable_operator, movable_processor
from bench.open_loop import Kept, Load, watch
from bench.reconfigure import cluster_session, megabytes
from bench.report import Progress, Result, environment, result_of, show
from bench.sessions import stderr_to
from ferryman import Ferry
from ferryman._engine.progress import EpochProgress
from ferryman._spark.api.job import Job

PARTS = ("executor", "replicas")
HOSTS = 4
# One for each core of a host; so many instances, and partitions of the state of Spark's query.
INSTANCES = 2 * HOSTS


@dataclass(frozen=True)
class Loss:
    """What came of the loss of an executor.

    Attributes
    ----------
    first_s, all_s
        When the first and the last of the groups in question processed again, in seconds after the loss.
    others_s
        The same of the last of all other groups.
    epochs
        How many epochs were committed from the loss until all processed again.
    rebuilt, rebuilt_bytes
        How many main copies tasks had to make again from the checkpoint until then, and what they read there for it.
    made_of
        Those epochs: seconds from the loss to the commit of each, of all of it, and of the longest of its tasks.
    """

    first_s: float
    all_s: float
    others_s: float | None = None
    epochs: int = 0
    rebuilt: int = 0
    rebuilt_bytes: int = 0
    made_of: tuple[Result, ...] = ()

    def facts(self) -> Result:
        """Give it as JSON values."""
        raw = dataclasses.asdict(self)
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in raw.items()}


def run(
    *,
    progress: Progress,
    parts: Sequence[str],
    bytes: int,
    keys: int,
    rate: float,
    interval_ms: int,
    losses: int,
    scratch: Path | None,
) -> Result:
    """Kill executors, and say how soon everything processes again.

    Parameters
    ----------
    progress
        Where to say what is under way.
    parts
        Which of `PARTS`.
    bytes, keys
        How much state there is, and of how many keys.
    rate, interval_ms
        How many rows come in a second, and how often an epoch begins.
    losses
        How many executors are lost in turn of each job; the medians count.
    scratch
        Where to put files.
    """
    asked = {
        "parts": ",".join(parts),
        "bytes": megabytes(bytes),
        "keys": keys,
        "rate": rate,
        "interval_ms": interval_ms,
    }
    result = result_of("recovery", {**asked, "losses": losses}, environment())
    load = Load(keys=keys, size=bytes // keys, rate=rate, interval_ms=interval_ms, hosts=HOSTS, warm_s=10.0)
    place = Path(tempfile.mkdtemp(prefix="ferryman-recovery-", dir=scratch))
    settings = {"spark.sql.shuffle.partitions": str(INSTANCES)}
    try:
        with stderr_to(place / "log"), cluster_session(place / "hosts", HOSTS, settings) as spark:
            if "executor" in parts:
                result["executor"] = _executor(spark, progress, load, place, losses)
            if "replicas" in parts:
                result["replicas"] = _replicas(spark, progress, load, place, losses)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {**result, **headline(result)}


def headline(result: Result) -> Result:
    """Give the figures that are promised."""
    found: Result = {}
    if executor := result.get("executor"):
        found["ratio_vs_spark_restart"] = round(
            _median(executor["ferryman"], "all_s") / _median(executor["spark"], "all_s"), 3
        )
    if replicas := result.get("replicas"):
        once, twice = replicas["once"], replicas["twice"]
        found["replica_failover_epochs"] = max(loss["epochs"] for loss in once)
        found["replica_rebuilt_bytes"] = max(loss["rebuilt_bytes"] for loss in (*once, *twice))
        found["replica_growth_when_state_doubles"] = round(_median(twice, "all_s") / _median(once, "all_s"), 3)
        found["replicas_throughput_ratio"] = replicas["throughput"]["ratio"]
    return found


def _median(losses: Sequence[Result], what: str) -> float:
    return statistics.median(loss[what] for loss in losses)


def _executor(spark: SparkSession, progress: Progress, load: Load, place: Path, losses: int) -> Result:
    found: Result = {}
    with _ours(spark, progress, load, place / "ours", "ferryman") as (job, kept, start):
        found["ferryman"] = [_loss(progress, load, job, kept, start, number).facts() for number in range(losses)]
    with _theirs(spark, progress, load, place / "spark") as (kept, start):
        found["spark"] = [_spark_loss(progress, load, kept, start, number).facts() for number in range(losses)]
    return found


def _replicas(spark: SparkSession, progress: Progress, load: Load, place: Path, losses: int) -> Result:
    found: Result = {}
    for name, size in (("once", load.size), ("twice", 2 * load.size)):
        some = dataclasses.replace(load, size=size)
        with _ours(spark, progress, some, place / name, f"replicas, {name}", replicas=1) as (job, kept, start):
            found[name] = [_loss(progress, some, job, kept, start, number).facts() for number in range(losses)]
        shutil.rmtree(place / name, ignore_errors=True)
    found["throughput"] = _throughput(spark, progress, place / "throughput")
    return found


@contextmanager
def _ours(
    spark: SparkSession, progress: Progress, load: Load, place: Path, what: str, replicas: int = 0
) -> Iterator[tuple[Job, Kept, datetime]]:
    """Run our job, with all of its state there."""
    start = load.start()
    kept = Kept(load, start)
    ferry = Ferry(spark, str(place), groups=load.groups, snapshot_every=30, replicas=replicas)
    operator = movable_operator(load.size, 0.0, f"{place}.work")
    stream = ferry.stream(load.rows(spark, start)).key_by("key").process(operator, name="Movable")
    job = stream.write(kept).start("recovery", instances=INSTANCES, trigger=load.trigger)
    try:
        with progress.step(f"filling, {what}"):
            kept.wait(load.warm_s)
        yield job, kept, start
    finally:
        job.stop()


def _loss(progress: Progress, load: Load, job: Job, kept: Kept, start: datetime, number: int) -> Loss:
    """Kill the executor of an instance, and see when its groups process again."""

    def ready() -> bool:
        # Every host has an instance again, and every standby what it is to have.
        fresh = not job._runner.coordinator.standbys.count or (job.replicated or -1) >= job.epoch - 2
        return fresh and len(set(_hosts(job))) == HOSTS

    with progress.step("all hosts there"):
        if not job.wait_for(ready, timeout=PATIENCE_S):
            raise RuntimeError(f"the instances are on {_hosts(job)}; replicas are of epoch {job.replicated}")
        kept.wait(5.0)
    hosts, owner = _hosts(job), job._runner.coordinator.table.owner
    host = sorted(set(hosts))[1 + number % (HOSTS - 1)]
    lost = [group for group, instance in enumerate(owner) if hosts[instance] == host]
    others = [group for group, instance in enumerate(owner) if hosts[instance] != host]
    with progress.step(f"{host} lost"):
        killed = kill_executor(host)
        wait_for(lambda: len(again(load, kept, start, killed)) == load.groups)
    back = again(load, kept, start, killed)
    until = max(back[group] for group in lost)
    epochs = [told for told in job.progress() if killed <= told.committed_ms / 1000 <= killed + until + 0.5]
    return Loss(
        first_s=min(back[group] for group in lost),
        all_s=until,
        others_s=max(back[group] for group in others),
        epochs=len({epoch for epoch, at, _ in kept.parts if killed <= at <= killed + until}),
        rebuilt=sum(told.operators["Movable"]["rebuilt"] for told in epochs),
        rebuilt_bytes=sum(told.operators["Movable"]["rebuilt_bytes"] for told in epochs),
        made_of=tuple(_made_of(told, killed) for told in epochs),
    )


def _made_of(told: EpochProgress, since: float) -> Result:
    busy = max(told.operators["Movable"]["busy_ms"], default=0.0)
    found = {"at_s": told.committed_ms / 1000 - since, "took_s": told.duration_ms / 1000, "task_s": busy / 1000}
    return {name: round(seconds, 2) for name, seconds in found.items()}


def _hosts(job: Job) -> list[str]:
    newest = job.progress()[-1:]
    return [host for epoch in newest for host in epoch.operators["Movable"]["hosts"]]


@contextmanager
def _theirs(spark: SparkSession, progress: Progress, load: Load, place: Path) -> Iterator[tuple[Kept, datetime]]:
    """Run Spark's own query, with all of its state there."""
    start = load.start()
    kept = Kept(load, start)
    processor, schema = movable_processor(load.size, 0.0, f"{place}.work")
    counted = load.rows(spark, start).groupBy("key").transformWithState(processor, schema, "Update", "None")
    writer = counted.writeStream.foreachBatch(kept.write).option("checkpointLocation", str(place))
    query = (writer.trigger(**load.trigger) if load.trigger else writer).start()
    try:
        with progress.step("filling, spark"):
            kept.wait(load.warm_s)
        yield kept, start
    finally:
        query.stop()


def _spark_loss(progress: Progress, load: Load, kept: Kept, start: datetime, number: int) -> Loss:
    with progress.step("all hosts there"):
        wait_for(lambda: len(executors()) == HOSTS)
        kept.wait(5.0)
    host = sorted(executors())[1 + number % (HOSTS - 1)]
    with progress.step(f"{host} lost, spark"):
        killed = kill_executor(host)
        wait_for(lambda: len(again(load, kept, start, killed)) == load.groups)
    back = again(load, kept, start, killed)
    epochs = len({epoch for epoch, at, _ in kept.parts if killed <= at <= killed + max(back.values())})
    return Loss(first_s=min(back.values()), all_s=max(back.values()), epochs=epochs)


def _throughput(spark: SparkSession, progress: Progress, place: Path, seconds: float = 12.0, rounds: int = 3) -> Result:
    """Measure rows per second with replicas and without, in turns, of a job that is never without rows."""
    from ferryman import aggregates, sinks, sources

    rows = sources.generator(spark, keys=100_000, rows_per_epoch=100_000, partitions=2)
    ferry = Ferry(spark, str(place), groups=64, replicas=1, snapshot_every=1000)
    stream = ferry.stream(rows).key_by("key").aggregate(n=aggregates.count(), total=aggregates.sum("value"))
    job = stream.write(sinks.none()).start("throughput", instances=HOSTS)
    found: dict[int, list[float]] = {0: [], 1: []}
    try:
        with progress.step("throughput with replicas and without"):
            job.wait_for(lambda: job.epoch >= 20 and job.replicated is not None, timeout=PATIENCE_S)
            for _ in range(rounds):
                for count in (1, 0):
                    job._runner.coordinator.standbys.keep(count)
                    job.wait_for(lambda: job.replicated is not None, timeout=PATIENCE_S)
                    before, began = job.epoch, time.monotonic()
                    watch(seconds)
                    done = [told for told in job.progress() if told.epoch > before]
                    found[count].append(sum(told.rows for told in done) / (time.monotonic() - began))
    finally:
        job.stop()
    without, with_ = (statistics.median(found[count]) for count in (0, 1))
    return {
        "rows_per_s_without": [round(rate) for rate in found[0]],
        "rows_per_s_with": [round(rate) for rate in found[1]],
        "ratio": round(with_ / without, 3),
    }


def show_result(result: Result) -> None:
    """Print what was found."""
    lines = [
        {"": f"{part}, {name}", **{what: value for what, value in loss.items() if what != "made_of"}}
        for part in PARTS
        for name, losses in result.get(part, {}).items()
        if name != "throughput"
        for loss in losses
    ]
    show("an executor lost", lines)
    if "replicas" in result:
        print(result["replicas"]["throughput"])
    for name in ("ratio_vs_spark_restart", "replica_failover_epochs", "replica_rebuilt_bytes",
                 "replica_growth_when_state_doubles", "replicas_throughput_ratio"):  # fmt: skip
        if name in result:
            print(f"{name}  {result[name]}")
