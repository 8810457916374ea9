"""The driver that `bench drivers` starts twice: python -m bench.driven PLACE. It ends when PLACE/stop is there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ferryman
from ferryman import Ferry, Operator, Value, aggregates, sinks

SCHEMA = "key string, id long"


class Trail(Operator):
    """Keep a digest per key that depends on every row and on their order."""

    n = Value(int, 0)
    digest = Value(int, 0)
    output = "key string, id long, n long, digest long"

    def process(self, key: str, row: Any) -> Any:
        """Put out the digest after every row."""
        self.n += 1
        self.digest = (self.digest * 1_000_003 + row.id + 1) % ((1 << 61) - 1)
        yield key, row.id, self.n, self.digest


def by_number(folder: Path) -> Any:
    """Write the rows of a call into a file of its number: what a function has to be, idempotent by it."""
    folder.mkdir(exist_ok=True)

    def write(rows: Any, number: int) -> None:
        listed = sorted(tuple(row) for row in rows.collect())
        draft = folder / f".{number}.{os.getpid()}"
        draft.write_text(json.dumps(listed))
        draft.rename(folder / f"{number:06d}.json")

    return sinks.foreach(write)


def main(place: Path) -> None:
    """Run the job until it is told to stop, or it is taken over."""
    spark = ferryman.session("drivers", "local[1]", conf={"spark.log.level": "OFF"})
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 5).json(str(place / "files"))
    ferry = Ferry(spark, str(place / "checkpoint"), groups=16, idle="2 seconds", snapshot_every=20, retain=1_000_000)
    trail = ferry.stream(files).key_by("key").process(Trail)
    count = trail.key_by("key").aggregate(rows=aggregates.count(), last=aggregates.last("id"))
    outputs = [
        trail.write(sinks.parquet(place / "trail")),
        trail.write(by_number(place / "calls")),
        count.write(sinks.parquet(place / "count")),
        count.write(sinks.memory()),
        count.write(sinks.none()),
    ]
    job = ferry.start("drivers", *outputs, instances=2, trigger={"processingTime": "100 milliseconds"})
    try:
        job.wait_for((place / "stop").exists)
        job.stop()
        job.wait()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
