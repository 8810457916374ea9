"""A job that has to do with time in every way, for tests of zones; run as a program it is one in a process of its own.

python zoned.py CHECKPOINT OUT
"""

from __future__ import annotations

import datetime
import operator
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ferryman import Ferry, Map, Operator, Reducing, Span, TumblingWindow, Value, aggregates, sinks, sources


class Seen(Operator):
    """Keeps times, and what is made of them."""

    latest = Value(datetime.datetime)
    hours = Map(str, int)
    output = "key string, at timestamp, hour string"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.latest = row.event_time
        hour = f"{row.event_time:%H:%M} {row.event_time.tzinfo}"
        self.hours[hour] = row.id
        yield key, row.event_time, hour


class PerMinute(Operator):
    """Counts in windows of event time."""

    by_event_time = True
    counts = TumblingWindow(60_000, Reducing(int, operator.add))
    output = "key string, start long, n long"

    def process(self, key: Any, row: Any) -> None:
        self.counts.add(row.event_time, 1)

    def closed(self, key: Any, span: Span, result: int) -> Iterator[Any]:
        yield key, span.start, result


def start(spark: SparkSession, checkpoint: str, out: str) -> Any:
    """Start it on rows that are always the same; the last epochs are combined before the shuffle."""
    rows = sources.generator(
        spark, rows=66_000, rows_per_epoch=22_000, keys=4, key_prefix="s-", interval_ms=7.0, partitions=2
    )
    ferry = Ferry(spark, checkpoint, groups=8, retain=10)
    stream = ferry.stream(rows)
    some = stream.transform(lambda frame: frame.where("id % 2000 = 0"))
    at = {name: getattr(aggregates, name)("event_time") for name in ("min", "max", "first", "last")}
    streams = {
        "extremes": stream.key_by("key").aggregate(**at, name="Extremes"),
        "by_time": some.key_by("event_time").aggregate(n=aggregates.count(), name="ByTime"),
        "seen": some.key_by("key").process(Seen),
        "windows": some.with_watermark("event_time", "10 seconds").key_by("key").process(PerMinute),
    }
    outputs = [result.write(sinks.parquet(f"{out}/{name}")) for name, result in streams.items()]
    return ferry.start("zoned", *outputs, instances=2, trigger={"availableNow": True})


def deltas(checkpoint: Path) -> list[str]:
    """List the deltas, whose names have the checksums of their bytes."""
    return sorted(file.name for file in (checkpoint / "deltas").iterdir())


def main() -> None:
    """Run it in a session whose zone is that of the machine."""
    from ferryman import session

    spark = session("zoned", "local[2]")
    start(spark, sys.argv[1], sys.argv[2]).wait()
    print(spark.conf.get("spark.sql.session.timeZone"), datetime.datetime.now().astimezone().tzinfo)
    spark.stop()


if __name__ == "__main__":
    main()
