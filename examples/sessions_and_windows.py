"""Sales by the minute and visits by session, of one stream, to two Parquet directories: all in one job.

Both are declared aggregates: nothing runs per row in Python. Any reader of Parquet reads the results. Minutes and
sessions that are not over are not there: they come when rows after them do.
Run it with `python examples/sessions_and_windows.py`. It prints:

    minutes: 1140 rows, 5700 visits
    sessions: 240 rows, 4800 visits, the longest of 20
    after a second start: 1140 rows, 240 rows
"""

import tempfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

import ferryman
from ferryman import Ferry, sinks, sources
from ferryman.aggregates import avg, count


def start(spark, place):
    """Start the job, or go on with it: the checkpoint knows where it was."""
    # A visit every 200 ms, of 60 users in turn. After four minutes nobody comes for one.
    visits = sources.generator(spark, rows=6_000, rows_per_epoch=1_000, keys=1, interval_ms=200.0)
    visits = visits.selectExpr(
        "id % 60 AS user",
        "event_time + make_interval(0, 0, 0, 0, 0, CAST(id DIV 1200 AS INT), 0) AS time",
        "value",
    )
    stream = Ferry(spark, place / "checkpoint").stream(visits).with_watermark("time", "10 seconds")
    minutes = stream.key_by("user").window("time", "1 minute").aggregate("minutes", visits=count(), value=avg("value"))
    sessions = stream.key_by("user").session("time", "30 seconds").aggregate("sessions", visits=count())
    return stream.ferry.start(
        "visits",
        minutes.write(sinks.parquet(place / "minutes")),
        sessions.write(sinks.parquet(place / "sessions")),
        instances=2,
        trigger={"availableNow": True},
    )


def main(place):
    spark = ferryman.session()
    start(spark, place).wait()
    minutes, sessions = (pq.read_table(place / name, columns=["visits"]) for name in ("minutes", "sessions"))
    print(f"minutes: {minutes.num_rows} rows, {pc.sum(minutes['visits'])} visits")
    longest = pc.max(sessions["visits"])
    print(f"sessions: {sessions.num_rows} rows, {pc.sum(sessions['visits'])} visits, the longest of {longest}")
    # There is nothing new: nothing is counted twice.
    start(spark, place).wait()
    again = [pq.read_table(place / name).num_rows for name in ("minutes", "sessions")]
    print(f"after a second start: {again[0]} rows, {again[1]} rows")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
