"""An initial state belongs to the keys it is grouped by, whatever its columns are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman._spark.api.stream import Stream
from ferryman._spark.plan.schema import declared_struct
from ferryman._spark.processor.initial_state import initial_rows
from ferryman.errors import InvalidConfiguration

INPUT = "sensor string, room int, value long"


class Started(StatefulProcessor):
    """Count on from the initial state."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "count long, first string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        count, first = self.seen.get() or (0, "nothing")
        self.seen.update((count + len(list(rows)), first))
        yield Row(sensor=key[0], room=key[1], count=self.seen.get()[0], first=first)

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        self.seen.update((initialState.n, f"{tuple(key)} {initialState.asDict()}"))

    def close(self) -> None:
        pass


def test_its_grouping_stands_for_the_key_by_position(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([("a", 1, 5), ("b", 2, 5)], [("a", 1, 6), ("a", 2, 6)])
    # Its column of the key's own name is something else.
    initial = spark.createDataFrame(
        [(1, "x", "a", 10), (2, "y", "b", 20), (1, "a", "c", 30)], "place int, sensor string, id string, n long"
    )

    def build(df: Any) -> Any:
        return df.groupBy("sensor", "room").transformWithState(
            Started(),
            "sensor string, room int, count long, first string",
            "Update",
            "None",
            initialState=initial.groupBy("id", "place"),
        )

    same(beside.on_ferryman(build), beside.on_spark(build))


def rows_of(spark: Any, group: Callable[[Any], Any]) -> Any:
    frame = spark.createDataFrame([("a", 1, 2), ("b", 3, 4)], "id string, place short, n long")
    keyed = Stream(None, declared_struct(INPUT, "input")).key_by("sensor", "room")
    return initial_rows(group(frame), keyed, "op")


class Calls(StatefulProcessor):
    """Tell which rows come in one call."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield Row(values=[row.value for row in rows])

    def close(self) -> None:
        pass


def test_beside_it_the_rows_of_a_key_come_in_one_call(spark: Any, tmp_path: Path) -> None:
    """With Spark so many at a time as a frame may have, in the first batch, though it has no frames here."""
    own = spark.newSession()
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
    beside = Beside(own, tmp_path, INPUT)
    beside.give([("a", 1, number) for number in range(5)])
    initial = own.createDataFrame([("a", 1)], "sensor string, n long").groupBy("sensor")

    def build(df: Any) -> Any:
        return df.groupBy("sensor").transformWithState(Calls(), "values array<long>", "Update", "None", initial)

    assert beside.on_ferryman(build) == [([0, 1, 2, 3, 4],)]
    assert len(beside.on_spark(build)) == 3


def test_it_may_be_grouped_by_anything_of_the_keys_types(spark: Any) -> None:
    for group in (
        lambda frame: frame.groupBy("id", "place"),
        lambda frame: frame.groupBy([frame.id, F.col("place").cast("int")]),
        lambda frame: frame.groupBy(F.lower(F.upper("id")), F.col("place").alias("room")),
    ):
        made = rows_of(spark, group)
        assert made.schema.simpleString().startswith("struct<sensor:string,room:int,_initial:struct<id:string")
        assert [(row.sensor, row.room) for row in made.collect()] == [("a", 1), ("b", 3)]


@pytest.mark.parametrize(
    ("group", "says"),
    [
        (lambda frame: frame.groupBy("id"), "is grouped by id string, and the stream by sensor string, room int"),
        (lambda frame: frame.groupBy("place", "id"), "is grouped by place smallint, id string, and"),
        (lambda frame: frame.groupBy("id", "n"), "is grouped by id string, n bigint, and"),
        (lambda frame: frame.groupBy(), "is grouped by nothing"),
        (lambda frame: frame, "Give a grouped batch DataFrame"),
        (lambda frame: frame.sparkSession.readStream.format("rate").load().groupBy("value"), "a streaming DataFrame"),
    ],
)
def test_a_grouping_that_does_not_fit_the_key_is_refused(spark: Any, group: Any, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"'op'.*{says}"):
        rows_of(spark, group)
