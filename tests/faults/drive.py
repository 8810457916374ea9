"""The driver that the fault tests kill: python drive.py CHECKPOINT OUT ROWS PER_EPOCH INSTANCES MASTER."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fleet

import ferryman
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman.errors import InvalidPlan

# Compiling well takes these short-lived JVMs longer than they live.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(checkpoint: str, out: str, rows: str, per_epoch: str, instances: str, master: str) -> None:
    spark = ferryman.session("ferryman-faults", master, conf={"spark.driver.extraJavaOptions": BRIEF})
    parts = os.environ.get("FLEET_PARTS", ",".join(fleet.ALL)).split(",")
    options: dict[str, object] = {"idle": "200 milliseconds"} if os.environ.get("FLEET_IDLE") else {}
    if os.environ.get("FLEET_FSYNC"):
        options["fsync"] = True
    sizes = {"rows": int(rows), "per_epoch": int(per_epoch), "instances": int(instances)}
    job = fleet.start(spark, checkpoint, out, **sizes, parts=parts, **options)
    if os.environ.get("FLEET_PIN"):
        # To and fro, as long as rows come: whenever it is killed, a key is on its way or pinned.
        key = os.environ["FLEET_PIN"]
        job.wait_for(lambda: job.epoch >= 1)
        committed = Checkpoint(directory(checkpoint)).latest()
        assert committed is not None, "there was an epoch"
        home = committed.routing.owner[job.group_of(key)]
        while job.active:
            pinned = key in {pin.key for pin in job.pins()}
            with contextlib.suppress(InvalidPlan):
                change = job.move(keys=key, to=home if pinned else 1 - home)
                job.wait_for(lambda change=change: change.over)
    job.wait()
    print(f"done at epoch {job.epoch}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
