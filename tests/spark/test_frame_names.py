"""A stream has the names of Spark's DataFrame: those that work row by row, and a word on the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import Ferry
from ferryman.errors import FerrymanError, InvalidConfiguration, NotOnStream

INPUT = "k string, v long, time timestamp"


class Told(StatefulProcessor):
    """Tell the key and the fields of what comes in, and call back with the key."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.handle.registerTimer(0)
        for row in rows:
            yield Row(what=f"{key} {sorted(row.asDict().items())}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(what=repr(key))

    def close(self) -> None:
        pass


@pytest.fixture
def beside(spark: Any, tmp_path: Path) -> Beside:
    from processor.test_processor import at

    made = Beside(spark, tmp_path, INPUT)
    made.give([("a", 1, at(0)), ("b", 7, at(1))], [("a", 8, at(40)), ("b", -3, at(50))], [("late", 9, at(2))])
    return made


def test_steps_row_by_row_are_those_of_a_dataframe(beside: Beside) -> None:
    def build(df: Any) -> Any:
        made = df.withColumn("w", F.col("v") * 2).filter("w > 0").selectExpr("k", "v", "w", "time", "v + 1 AS u")
        made = made.withColumnRenamed("u", "t").drop("w").withColumns({"x": F.lit(1)}).where(F.col("x") == 1)
        made = made.filter(made.v > 0).filter(made["t"] > 1).withColumnsRenamed({"x": "y"})
        assert made.columns == ["k", "v", "time", "t", "y"]
        assert made.isStreaming
        marked = made.withWatermark("time", "10 seconds")
        return marked.groupBy("k").transformWithState(Told(), "what string", "Append", "EventTime")

    ours = Ferry(beside.spark, beside.place / "ferried").stream(beside.stream())
    assert build(ours).schema == build(beside.stream()).schema
    same(beside.on_ferryman(_unwatched(build)), beside.on_spark(_unwatched(build), "append"))


def _unwatched(build: Any) -> Any:
    """The steps are called on the stream itself, not on what watches it."""
    from processor.calls import WatchedStream

    return lambda watched: WatchedStream(build(watched.inner), watched._calls)


@pytest.mark.parametrize("key", ["K", "`k`", F.col])
def test_columns_are_found_in_upper_and_lower_case(beside: Beside, key: Any) -> None:
    def build(df: Any) -> Any:
        column = key if isinstance(key, str) else key("K")
        grouped = df.withWatermark("TIME", "10 seconds").groupBy(column)
        return grouped.transformWithState(Told(), "what string", "Append", "EventTime")

    same(beside.on_ferryman(build), beside.on_spark(build, "append"))


def test_columns_that_differ_in_case_alone_are_told_apart_where_the_session_does(spark: Any, beside: Beside) -> None:
    stream = Ferry(spark, beside.place / "ferried").stream(beside.stream())
    assert stream.key_by("K").names == ("k",)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(FerrymanError, match="no column 'K'"):
            stream.groupBy("K")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("writeStream", r"stream\.write\(sinks\.foreach\(function\)\)\.start\(name\)"),
        ("union", "before ferry.stream"),
        ("dropDuplicates", r"key_by\("),
        ("show", "in a sink"),
        ("fillna", r"stream\.transform\(lambda rows: rows\.fillna\("),
        ("nonsense", "'k', 'v', 'time'"),
    ],
)
def test_what_a_stream_does_not_have_is_said_with_what_to_write(beside: Beside, name: str, said: str) -> None:
    stream = Ferry(beside.spark, beside.place / "ferried").stream(beside.stream())
    with pytest.raises(NotOnStream, match=said):
        getattr(stream, name)
    assert not hasattr(stream, name), "to Python it is not there"


def test_aggregates_of_a_grouped_stream_are_said_too(beside: Beside) -> None:
    grouped = Ferry(beside.spark, beside.place / "ferried").stream(beside.stream()).groupBy("k")
    with pytest.raises(NotOnStream, match=r"stream\.key_by\('k'\)\.aggregate"):
        grouped.count()


def test_a_column_with_the_name_of_an_inner_part_of_a_stream_does_no_harm(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "parent string, spec long, time timestamp")
    beside.give([("a", 1, None)])
    stream = Ferry(spark, tmp_path / "f").stream(beside.stream())
    marked = stream.withWatermark("time", "1 second").where(stream["parent"] == "a")
    assert marked.groupBy("parent").transformWithState(Told(), "what string", "Append", "EventTime").columns == ["what"]


def test_a_batch_is_refused_with_the_line_to_change(spark: Any, tmp_path: Path) -> None:
    batch = spark.createDataFrame([("a", 1)], "k string, v long")
    with pytest.raises(InvalidConfiguration, match=r"readStream.*leave ferry.stream out.*initialState"):
        Ferry(spark, tmp_path / "f").stream(batch)
