"""A stream has the names of Spark's DataFrame: those that work row by row, and a word on the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from processor.test_processor import at
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import Ferry
from ferryman.aggregates import count
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


@pytest.mark.parametrize("key", ["K", *(pytest.param(key, marks=pytest.mark.slow) for key in ("`k`", F.col))])
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
        ("unionByName", r"stream\.union\(other\)"),
        ("distinct", r"stream\.dropDuplicates\(\)"),
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


def test_a_column_is_given_by_name_or_place_as_by_a_dataframe(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "k string, Value long, name string, `a ``b` long")
    beside.give([("a", 1, "x", 2)])
    frame, stream = beside.stream(), Ferry(spark, tmp_path / "f").stream(beside.stream())
    for item in ("VALUE", "value", "`Value`", "k", 0, 2, -3):
        chosen = stream.select(stream[item].alias("it")).schema
        assert chosen == frame.select(frame[item].alias("it")).schema, item
    assert stream.select(stream["a `b"]).columns == ["a `b"]
    for wrong in ("nothing", 4, -5, None):
        with pytest.raises(NotOnStream, match=r"no column .*'k', 'Value', 'name'"):
            stream[wrong]  # type: ignore[index]
    # Operators and steps have parts of that name.
    with pytest.raises(NotOnStream, match=r'The column goes by stream\["name"\]'):
        stream.name  # noqa: B018
    assert not hasattr(stream, "parent")


def test_a_batch_is_refused_with_the_line_to_change(spark: Any, tmp_path: Path) -> None:
    batch = spark.createDataFrame([("a", 1)], "k string, v long")
    with pytest.raises(InvalidConfiguration, match=r"readStream.*leave ferry.stream out.*initialState"):
        Ferry(spark, tmp_path / "f").stream(batch)


STEPS = {
    "renamed": lambda df: df.withColumnRenamed("time", "when"),
    "by another name": lambda df: df.select("k", "v", F.col("time").alias("when")),
    "twice renamed": lambda df: df.withColumnsRenamed({"time": "a"}).where("v > 0").withColumnRenamed("a", "b"),
    "as it was": lambda df: df.withColumn("time", F.col("time")).withColumn("old", F.lit(None).cast("timestamp")),
}


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=name, marks=() if name == "twice renamed" else pytest.mark.slow)
        for name, step in STEPS.items()
    ],
)
def test_the_watermark_goes_with_its_column_through_steps(beside: Beside, step: Any) -> None:
    def build(df: Any) -> Any:
        kept = step(df.withWatermark("time", "10 seconds"))
        return kept.groupBy("k").transformWithState(Told(), "what string", "Append", "EventTime")

    # The third batch still goes by what was late in the second.
    beside.give([("too late", 9, at(3))])
    ours = beside.on_ferryman(_unwatched(build))
    assert "too late" not in str(ours)
    same(ours, beside.on_spark(_unwatched(build), "append"))
    stream = Ferry(beside.spark, beside.place / "ferried").stream(beside.stream()).withWatermark("time", "10 seconds")
    assert step(stream).schema == step(beside.stream().withWatermark("time", "10 seconds")).schema


def test_a_watermark_that_was_lost_on_the_way_is_refused(beside: Beside) -> None:
    stream = Ferry(beside.spark, beside.place / "ferried").stream(beside.stream())
    lost = {
        "computed": lambda df: df.withColumn("time", F.col("time") - F.expr("INTERVAL 1 HOUR")),
        "left out": lambda df: df.select("k", "v"),
        "in a window": lambda df: df.select("k", F.window("time", "1 hour").alias("hour")),
    }
    for step in lost.values():
        for marked in (stream.withWatermark("time", "1 second"), stream.with_watermark("time", "1 second")):
            kept = step(marked).where("k > ''")
            with pytest.raises(InvalidConfiguration, match=r"'Told'.*'time'.*declare the watermark after that step"):
                kept.groupBy("k").transformWithState(Told(), "what string", "Append", "EventTime")
        # Every operator after this one leaves late rows out, and none would be late.
        with pytest.raises(InvalidConfiguration, match="'time'"):
            step(stream.with_watermark("time", "1 second")).key_by("k").aggregate(n=count())
        # After this one, as with Spark, only those that go by event time.
        assert step(stream.withWatermark("time", "1 second")).key_by("k").aggregate(n=count()).columns == ["k", "n"]
    again = lost["computed"](stream.withWatermark("time", "1 second")).withWatermark("time", "1 second")
    assert again.groupBy("k").transformWithState(Told(), "what string", "Append", "EventTime").columns == ["what"]
