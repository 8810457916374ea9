"""The driver that the fault tests kill: python drive.py CHECKPOINT OUT ROWS PER_EPOCH INSTANCES MASTER."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fleet

import ferryman


def main(checkpoint: str, out: str, rows: str, per_epoch: str, instances: str, master: str) -> None:
    spark = ferryman.session("ferryman-faults", master)
    options = {"idle": "200 milliseconds"} if os.environ.get("FLEET_IDLE") else {}
    job = fleet.start(
        spark, checkpoint, out, rows=int(rows), per_epoch=int(per_epoch), instances=int(instances), **options
    )
    job.wait()
    print(f"done at epoch {job.epoch}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
