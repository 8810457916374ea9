"""A `StatefulProcessor` of Spark's own, unchanged: the same class and the same call, on a Ferryman stream.

It tells each user's visits as they come, and how many there were when none has come for a minute.
Run it with `python examples/spark_processor.py`. It prints:

    ann: 1 visits so far
    ann: 3 visits so far
    bob: 1 visits so far
    bob: gone after 1 visits
"""

import json
import os
import tempfile
from pathlib import Path

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import ferryman
from ferryman import Ferry, sinks


class Visits(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.visits = handle.getValueState("visits", "n long")

    def handleInputRows(self, key, rows, timerValues):
        times = [int(row.time.timestamp() * 1000) for row in rows]
        n = (self.visits.get()[0] if self.visits.exists() else 0) + len(times)
        self.visits.update((n,))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(max(times) + 60_000)
        yield Row(user=key[0], what=f"{n} visits so far")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(user=key[0], what=f"gone after {self.visits.get()[0]} visits")
        self.visits.clear()

    def close(self):
        pass


def put(folder, number, *visits):
    """Write a file of visits."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{number}.json"
    path.write_text("\n".join(json.dumps({"user": user, "time": f"2026-01-01T{clock}Z"}) for user, clock in visits))
    os.utime(path, (number, number))


def main(place):
    put(place / "visits", 1, ("ann", "08:00:00"), ("bob", "08:00:10"))
    put(place / "visits", 2, ("ann", "08:01:00"), ("ann", "08:01:30"))

    spark = ferryman.session()
    reader = spark.readStream.schema("user string, time timestamp").option("maxFilesPerTrigger", 1)
    visits = Ferry(spark, place / "checkpoint").stream(reader.json(str(place / "visits")))
    told = (
        visits.withWatermark("time", "10 seconds")
        .groupBy("user")
        .transformWithState(Visits(), "user string, what string", "Append", "EventTime")
    )
    memory = sinks.memory()
    told.write(memory).start("visits", instances=2, trigger={"availableNow": True}).wait()
    for row in sorted(memory.rows(), key=lambda row: (row["user"], row["what"])):
        print(f"{row['user']}: {row['what']}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
