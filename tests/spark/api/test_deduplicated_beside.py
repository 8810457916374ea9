"""Deduplication gives the rows of Spark's own operators, batch by batch."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside

from ferryman import Ferry, sinks

INPUT = "id int, shop string, time timestamp"
BUILDS = {
    "forever": lambda rows: rows.dropDuplicates(["id", "shop"]),
    "late": lambda rows: rows.withWatermark("time", "10 seconds").dropDuplicates(["id"]),
    "bytime": lambda rows: rows.withWatermark("time", "10 seconds").dropDuplicates(),
    "within": lambda rows: rows.withWatermark("time", "10 seconds").dropDuplicatesWithinWatermark(["id", "shop"]),
}


def some_batches(epochs: int) -> list[list[tuple[Any, ...]]]:
    """Give rows that come again in the same batch and in later ones, early and late, with nulls in the key."""
    made, begin = random.Random(11), datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc)
    batches = []
    for epoch in range(epochs):
        # One row for each key, as which of several is the first one is not told by Spark; and some of them twice.
        rows = [
            (
                number or None,
                made.choice([None, "a"]),
                begin + datetime.timedelta(seconds=8 * epoch - made.randrange(25)),
            )
            for number in made.sample(range(40), 9)
        ]
        batches.append([*rows, *made.sample(rows, 4)])
    return batches


@pytest.mark.slow
@pytest.mark.parametrize("express", [True, False])
def test_deduplication_gives_the_rows_of_sparks(spark: Any, tmp_path: Path, express: bool) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give(*some_batches(8))
    found: dict[str, list[Any]] = {name: [] for name in BUILDS}
    stream = Ferry(spark, tmp_path / "checkpoint", express=express).stream(beside.stream())
    outputs = []
    for name, build in BUILDS.items():

        def taken(frame: Any, _: int, rows: list[Any] = found[name]) -> None:
            rows.append(frame.collect())

        outputs.append(build(stream).write(sinks.foreach(taken, name)))
    stream.ferry.start("job", *outputs, instances=2, trigger={"availableNow": True}).wait()
    for name, build in BUILDS.items():
        theirs: list[Any] = []
        query = build(beside.stream()).writeStream.foreachBatch(lambda frame, _: theirs.append(frame.collect()))  # noqa: B023
        query = query.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        query.start().awaitTermination()
        ours, spark_rows = ([sorted(map(repr, rows)) for rows in batches if rows] for batches in (found[name], theirs))
        assert ours == spark_rows, name
        assert len(ours) > 1
