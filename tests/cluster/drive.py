"""The driver of the cluster tests: python drive.py CHECKPOINT OUT ROWS PER_EPOCH INSTANCES MASTER CORES FILES [CONF].

FILES is a directory. Every committed epoch becomes a line of JSON in FILES/progress. A file FILES/7.stop makes the task
that processes row 7 stop there: it says in 7.inside where it is, and goes on when there is a 7.go. FILES/changes.json
says after which epoch to rescale to how many instances, with which strategy, one after the other; or what to move
where; the job is stopped two epochs after the last of them. What came of it goes to FILES/history.json, and what was
refused to FILES/refused. Sites are in FILES/sites.json, more options of the job in FILES/options.json, its
parts in FILES/parts.json; FILES/replicated is the newest epoch that its replicas have. With FILES/between, which has a
number, no epoch begins after that many until a host is lost, and whatever was lost is restored beside the stream;
FILES/paused is there when the job waits for it. CONF is more Spark settings, as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fleet
from pyspark import TaskContext
from until import until

import ferryman
from ferryman._migrate import lost_hosts

ENOUGH_S = 120

# Compiling well takes these short-lived JVMs longer than they live.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def stopping_at(ids: set[int], files: Path) -> type[fleet.Trail]:
    """Make a Trail that stops, once, at each of some rows."""

    class Trail(fleet.Trail):
        def process(self, key, row):
            if row.id in ids and not (files / f"{row.id}.inside").exists():
                where = {"host": os.environ["SPARK_LOCAL_IP"], "instance": TaskContext.get().partitionId()}
                # Renamed, so that whoever sees it sees all of it.
                (files / f"{row.id}.begun").write_text(json.dumps(where))
                (files / f"{row.id}.begun").rename(files / f"{row.id}.inside")
                deadline = time.monotonic() + ENOUGH_S
                while not (files / f"{row.id}.go").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
            return super().process(key, row)

    return Trail


def hosts_of(job) -> int:
    """Count the hosts that the instances were on in the newest epoch."""
    newest = job.progress()[-1:]
    return len({host for epoch in newest for operator in epoch.operators.values() for host in operator["hosts"]})


def waits_for_a_loss(job, files: Path) -> None:
    """Keep the next epoch from beginning until a host is lost, once state hosts are there."""
    lost_hosts.LONG_S = 0.0
    after, coordinator = int((files / "between").read_text()), job._runner.coordinator

    def wait() -> None:
        until(lambda: job.epoch >= after and coordinator.state_hosts.locations, "so many epochs", ENOUGH_S)
        with job._turn:
            before = coordinator.layout.cluster_hosts()
            until(lambda: before == set(coordinator.state_hosts.locations), "a state host everywhere", ENOUGH_S)
            (files / "paused").touch()
            until(lambda: before - coordinator.layout.cluster_hosts(), "the loss of a host", ENOUGH_S)

    threading.Thread(target=wait, daemon=True).start()


def main(checkpoint, out, rows, per_epoch, instances, master, cores, files, conf="{}") -> None:
    stops = {int(path.stem) for path in Path(files).glob("*.stop")}
    if stops:
        fleet.Trail = stopping_at(stops, Path(files))
    spark = ferryman.session(
        "ferryman-cluster",
        master,
        conf={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": BRIEF,
            "spark.executor.extraJavaOptions": f"{BRIEF} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
            "spark.executor.memory": "512m",
            # Begin when all executors are there, so that a test can tell where instances should be.
            "spark.cores.max": cores,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            # In real use Ferryman is installed where the executors run, and then they can have its daemon.
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "spark.python.daemon.module": "ferryman._spark.session.warm_workers",
            **json.loads(conf),
        },
    )
    changes = Path(files) / "changes.json"
    wanted = {int(epoch): n for epoch, n in json.loads(changes.read_text()).items()} if changes.exists() else {}
    options = Path(files) / "options.json"
    sites = Path(files) / "sites.json"
    job = fleet.start(
        spark,
        checkpoint,
        out,
        rows=int(rows),
        per_epoch=int(per_epoch),
        instances=int(instances),
        parts=json.loads((Path(files) / "parts.json").read_text()),
        **{
            **({"retain": 100, "groups": 8} if wanted else {}),
            **({"sites": [ferryman.Site(*site) for site in json.loads(sites.read_text())]} if sites.exists() else {}),
            **(json.loads(options.read_text()) if options.exists() else {}),
        },
    )
    if (Path(files) / "between").exists():
        waits_for_a_loss(job, Path(files))
    with open(Path(files) / "progress", "a", encoding="utf-8", buffering=1) as lines:
        told = 0

        def tell() -> bool:
            nonlocal told
            for progress in job.progress()[told:]:
                lines.write(json.dumps(dataclasses.asdict(progress)) + "\n")
                told += 1
            if job.replicated is not None:
                (Path(files) / "replicated.new").write_text(str(job.replicated))
                (Path(files) / "replicated.new").rename(Path(files) / "replicated")
            due = [epoch for epoch in sorted(wanted) if epoch <= job.epoch]
            # Where a test is about travel, not before there is somewhere to go: Spark may place instances on one host.
            apart = not (Path(files) / "apart").exists() or hosts_of(job) > 1
            if job.active and due and apart and all(change.over for change in job.history()):
                what, strategy = wanted.pop(due[0])
                if isinstance(what, int):
                    job.rescale(what, strategy=strategy)
                elif isinstance(what, dict):
                    try:
                        job.move(**what, strategy=strategy)
                    except ferryman.errors.InvalidPlan as error:
                        (Path(files) / "refused").write_text(str(error))
                else:
                    # A key, to the first instance on another host.
                    placed = job.progress()[-1].operators["Trail"]["hosts"]
                    owner = job._runner.coordinator.table.owner[job.group_of(what)]
                    to = next(instance for instance, host in enumerate(placed) if host != placed[owner])
                    job.move(keys=what, to=to, strategy=strategy)
            if changes.exists() and not wanted and all(change.over for change in job.history()):
                # Nobody is interested in what comes after.
                return bool(job.epoch >= (job.history()[-1].switched_epoch or 0) + 2 and not job._runner.latest.held)
            return not job.active

        job.wait_for(tell)
        if job.active and changes.exists():
            job.stop()
        job.wait()
        tell()
    history = [{**change.facts(), "arrivals": change.arrivals} for change in job.history()]
    (Path(files) / "history.json").write_text(json.dumps(history))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
