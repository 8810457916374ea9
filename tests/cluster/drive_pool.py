"""The driver of the tests of executors that come and go: python drive_pool.py FILES MASTER SCENARIO.

Rows come for as long as SCENARIO goes on, an epoch's at a time. It is a list of steps in JSON, one after the other;
what cannot be had within two minutes ends it. FILES/result.json says what came of it.
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
from drive import BRIEF
from until import until

import ferryman
from ferryman._spark.compat.session import executors

PER_EPOCH = 40
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": BRIEF,
    "spark.executor.extraJavaOptions": f"{BRIEF} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.decommission.enabled": "true",
    # So that an executor that is decommissioned is there for a while.
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "3s",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    "spark.python.daemon.module": "ferryman._spark.session.warm_workers",
}


class Scenario:
    """The steps, each of which waits for something or does something."""

    def __init__(self, files: Path, spark, job, instances: int) -> None:
        self.files = files
        self.spark = spark
        self.job = job
        self.wished = instances

    def wish(self, instances: int) -> None:
        """Have the policy wish for so many from now on."""
        (self.files / "wish").write_text(str(instances))

    def rescale(self, instances: int) -> None:
        """Change the number of instances as a user does."""
        assert self.job.rescale(instances).wait(120)

    def executors(self, count: int) -> None:
        """Wait until there are so many executors."""
        # The driver is one of them to Spark.
        until(lambda: len(executors(self.spark)) == count + 1, f"{count} executors")

    def hosts(self, count: int) -> None:
        """Wait for an epoch on so many hosts."""
        until(lambda: len(self._hosts()) == count, f"{count} hosts")

    def left(self, count: int) -> None:
        """Wait until instances have left so many hosts that they were on when this was asked."""
        before = self._hosts()
        until(lambda: len(before - self._hosts()) >= count, f"{count} hosts to be left")

    def instances(self, count: int) -> None:
        """Wait for an epoch with so many instances."""
        until(lambda: self.job.instances == count, f"{count} instances")

    def said(self, text: str) -> None:
        """Wait until the job says something of its scaling."""
        until(lambda: text in self.job.scaling(), f"{text!r} in {self.job.scaling()!r}")

    def state_hosts(self, count: int) -> None:
        """Wait until so many state hosts are known."""
        known = self.job._runner.coordinator.state_hosts
        until(lambda: len(known.locations) == count, f"{count} state hosts")

    def epochs(self, count: int) -> None:
        """Wait for so many epochs more."""
        last = self.job.epoch + count
        until(lambda: self.job.epoch >= last, f"{count} epochs")

    def tell(self, name: str) -> None:
        """Tell the test, and wait until it says so."""
        (self.files / name).touch()
        until((self.files / f"{name}.go").exists, f"{name}.go")

    def _hosts(self) -> set[str]:
        newest = self.job.progress()[-1:]
        return {host for epoch in newest for operator in epoch.operators.values() for host in operator["hosts"]}


def main(files: Path, master: str, options: dict, steps: list) -> None:
    """Run a job while the steps go on."""
    spark = ferryman.session("ferryman-pool", master, conf=CONF)
    instances, rows, over = options.get("instances", 1), 0, threading.Event()
    (files / "wish").write_text(str(instances))

    def wished(history):
        return ferryman.autoscaling.Wish(int((files / "wish").read_text() or instances), "so the test says")

    quick = ferryman.Autoscale(
        policy=wished, window=0.5, scale_out_after=0, scale_in_after=0, cool_down=0, max=options.get("max", 8)
    )
    job = fleet.start(
        spark,
        str(files / "checkpoint"),
        str(files / "out"),
        rows=PER_EPOCH,
        per_epoch=PER_EPOCH,
        instances=instances,
        parts=("trail", "words"),
        trigger={"processingTime": "100 milliseconds"},
        groups=12,
        retain=500,
        home=options.get("home"),
        pool=ferryman.Pool(**options["pool"]) if "pool" in options else None,
        autoscale=None if options.get("scaled_by_hand") else quick,
    )

    def feed() -> None:
        nonlocal rows
        rows = PER_EPOCH
        while job.active and not over.is_set():
            # What is there is done before there is more: no epoch is behind.
            if job.epoch and sum(epoch.rows for epoch in job.progress()) >= rows:
                time.sleep(0.05)
                rows += PER_EPOCH
                fleet.put(files / "checkpoint-source", rows, PER_EPOCH)
            time.sleep(0.02)

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    scenario, failed = Scenario(files, spark, job, instances), ""
    times = []
    try:
        for name, value in steps:
            began = time.monotonic()
            getattr(scenario, name)(value)
            times.append([name, value, round(time.monotonic() - began, 2), job.epoch])
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    finally:
        over.set()
        feeder.join()
    if not failed:
        job.wait_for(lambda: sum(epoch.rows for epoch in job.progress()) >= rows)
    scaling = job.scaling()
    job.stop()
    result = {
        "failed": failed,
        "rows": rows,
        "scaling": scaling,
        "steps": times,
        "history": [change.facts() for change in job.history()],
        "decisions": [str(decision) for decision in job.decisions()],
        "epochs": [dataclasses.asdict(epoch) for epoch in job.progress()],
    }
    (files / "result.new").write_text(json.dumps(result))
    (files / "result.new").rename(files / "result.json")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))
