"""The driver of the cluster tests: python drive.py CHECKPOINT OUT ROWS PER_EPOCH INSTANCES MASTER PROGRESS [MARKS].

Writes a line of JSON per committed epoch to the file PROGRESS. With a directory MARKS, a task stops inside
`process` at the rows that are named there, says where it is, and goes on when it is told to.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fleet

import ferryman

ENOUGH_S = 120


def stopping_at(marks: Path) -> type[fleet.Trail]:
    """Make a Trail that stops at row 7 if there is a file 7.stop, and writes its host to 7.inside."""
    ids = {int(path.stem) for path in marks.glob("*.stop")}

    class Trail(fleet.Trail):
        def process(self, key, row):
            if row.id in ids and not (inside := marks / f"{row.id}.inside").exists():
                # Renamed, so that whoever sees it sees all of it.
                (marks / f"{row.id}.host").write_text(os.environ["SPARK_LOCAL_IP"])
                (marks / f"{row.id}.host").rename(inside)
                deadline = time.monotonic() + ENOUGH_S
                while not (marks / f"{row.id}.go").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
            return super().process(key, row)

    return Trail


def main(checkpoint, out, rows, per_epoch, instances, master, progress, marks=None) -> None:
    if marks:
        fleet.Trail = stopping_at(Path(marks))
    spark = ferryman.session(
        "ferryman-cluster",
        master,
        conf={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            # In real use Ferryman is installed where the executors run.
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
    )
    job = fleet.start(spark, checkpoint, out, rows=int(rows), per_epoch=int(per_epoch), instances=int(instances))
    with open(progress, "a", encoding="utf-8", buffering=1) as lines:
        told = 0

        def tell() -> bool:
            nonlocal told
            for one in job.progress()[told:]:
                lines.write(json.dumps(dataclasses.asdict(one)) + "\n")
                told += 1
            return not job.active

        job.wait_for(tell)
        job.wait()
        tell()
    print(f"done at epoch {job.epoch}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
