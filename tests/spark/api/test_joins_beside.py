"""Joins of two streams beside Spark's own stream-stream joins: the same rows and columns, on the same data."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from appearing import appear
from pyspark.sql import functions as F

from ferryman import Ferry, TwoInputOperator, Value, sinks

ONCE = {"availableNow": True}
SCHEMAS = {"left": "k int, at timestamp, l string", "right": "k int, seen timestamp, r long"}
HOWS = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer", "semi": "left_semi"}
EPOCHS = 8


def at(second: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(second, datetime.timezone.utc)


def put(place: Path, side: str, number: int, rows: list[tuple[Any, ...]]) -> None:
    names = [column.split()[0] for column in SCHEMAS[side].split(", ")]
    types = [pa.int32(), pa.timestamp("us", "UTC"), pa.string() if side == "left" else pa.int64()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)]
    table = pa.Table.from_arrays(columns, names=names)
    appear(place / side / f"{number:02d}.parquet", 1_700_000_000 + number, partial(pq.write_table, table))


def give(place: Path, epochs: range) -> None:
    """Give rows that are out of order but not late, with nulls among the keys; then two that move time on for good."""
    for number in epochs:
        chance = random.Random(number)
        now = 1000 + 6 * number
        for side in SCHEMAS:
            rows: list[tuple[Any, ...]] = []
            for n in range(40):
                key = chance.choice([None, *range(12)])
                rows.append((key, at(now - chance.uniform(0, 2.9)), f"l{n}" if side == "left" else n))
            if number >= EPOCHS - 2:
                rows = [(99, at(10_000 * number), "end" if side == "left" else 0)]
            put(place, side, number, rows)


def read(spark: Any, place: Path, side: str) -> Any:
    return spark.readStream.schema(SCHEMAS[side]).option("maxFilesPerTrigger", 1).parquet(str(place / side))


def listed(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in rows if row[0] != 99)


def on_spark(spark: Any, place: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """Run Spark's own joins, side by side."""
    made: dict[str, list[Any]] = {how: [] for how in HOWS}
    queries = []
    for how, theirs in HOWS.items():
        left = read(spark, place, "left").withWatermark("at", "3 seconds")
        right = read(spark, place, "right").withWatermark("seen", "3 seconds").withColumnRenamed("k", "other")
        bound = F.expr("k = other and seen >= at - interval 2 seconds and seen <= at + interval 5 seconds")
        rows = left.join(right, bound, theirs)
        if how != "semi":
            rows = rows.select(F.coalesce("k", "other").alias("k"), "at", "l", "seen", "r")
        writer = rows.writeStream.foreachBatch(
            partial(lambda taken, frame, _: taken.extend(frame.collect()), made[how])
        )
        writer = writer.option("checkpointLocation", str(place / f"spark-{how}")).trigger(**ONCE)
        queries.append(writer.start())
    for query in queries:
        query.awaitTermination()
    return {how: listed(rows) for how, rows in made.items()}


@pytest.mark.slow
def test_a_join_gives_the_rows_of_sparks_own_also_when_it_is_started_again(spark: Any, tmp_path: Path) -> None:
    made: dict[str, list[Any]] = {how: [] for how in (*HOWS, "anti")}

    def run(instances: int, *, express: bool) -> None:
        ferry = Ferry(spark, tmp_path / "checkpoint", express=express)
        left = ferry.stream(read(spark, tmp_path, "left")).with_watermark("at", "3 seconds").key_by("k")
        right = ferry.stream(read(spark, tmp_path, "right")).with_watermark("seen", "3 seconds").key_by("k")
        outputs = []
        for how, taken in made.items():
            joined = left.join(right, lower="-2 seconds", upper="5 seconds", how=how, name=f"join_{how}")
            batch = [spark.createDataFrame([], schema) for schema in SCHEMAS.values()]
            assert joined.columns == batch[0].join(batch[1], "k", f"left_{how}" if how == "anti" else how).columns
            sink = sinks.foreach(partial(lambda rows, frame, _: rows.extend(frame.collect()), taken), how)
            outputs.append(joined.write(sink))
        ferry.start("job", *outputs, instances=instances, trigger=ONCE).wait()

    give(tmp_path, range(EPOCHS // 2))
    run(2, express=True)
    give(tmp_path, range(EPOCHS // 2, EPOCHS))
    run(3, express=False)
    ours, theirs = {how: listed(rows) for how, rows in made.items()}, on_spark(spark, tmp_path)
    for how in HOWS:
        assert sum(ours[how].values()) > 50
        # Of a full join Spark 4.3 leaves out the rows without a key; ours puts them out, as those of any outer join.
        keyed = [
            Counter({row: n for row, n in rows.items() if row[0] is not None}) for rows in (ours[how], theirs[how])
        ]
        assert keyed[0] == keyed[1]
        assert how == "full" or ours[how] == theirs[how]
    alone = [row for how in ("left", "right") for row in ours[how] if row[0] is None]
    assert {row for row in ours["full"] if row[0] is None} == set(alone)
    given = listed(spark.read.parquet(str(tmp_path / "left")).collect())
    assert ours["anti"] == given - ours["semi"]


@pytest.mark.slow
def test_a_join_within_windows_gives_the_rows_of_sparks_own(spark: Any, tmp_path: Path) -> None:
    give(tmp_path, range(EPOCHS))

    def windowed(side: str, time: str) -> Any:
        return read(spark, tmp_path, side).withColumn("w", F.window(time, "4 seconds").start)

    made: list[Any] = []
    ferry = Ferry(spark, tmp_path / "checkpoint")
    left = ferry.stream(windowed("left", "at")).with_watermark("at", "3 seconds").key_by("k", "w")
    right = ferry.stream(windowed("right", "seen")).with_watermark("seen", "3 seconds").key_by("k", "w")
    sink = sinks.foreach(lambda frame, _: made.extend(frame.collect()))
    left.join(right, within="4 seconds").write(sink).start("job", instances=2, trigger=ONCE).wait()
    batch = [
        spark.read.parquet(str(tmp_path / side)).withColumn("w", F.window(time, "4 seconds").start)
        for side, time in (("left", "at"), ("right", "seen"))
    ]
    theirs = listed(batch[0].join(batch[1], ["k", "w"]).collect())
    assert sum(theirs.values()) > 50
    assert listed(made) == theirs


class Priced(TwoInputOperator):
    price = Value(int, 0)
    output = "k int, l string, price long"

    def process_left(self, key: Any, row: Any) -> Any:
        yield key, row.l, self.price

    def process_right(self, key: Any, row: Any) -> None:
        self.price = row.r


@pytest.mark.parametrize("express", [True, False])
def test_two_streams_share_state_also_where_one_comes_of_an_operator(spark: Any, tmp_path: Path, express: bool) -> None:
    class Doubled(TwoInputOperator):
        output = "k int, r long"

        def process_left(self, key: Any, row: Any) -> Any:
            yield key, 2 * row.r

        def process_right(self, key: Any, row: Any) -> Any:
            yield key, -1

    put(tmp_path, "left", 0, [(key, at(0), f"a{key}") for key in range(6)])
    put(tmp_path, "right", 0, [(key, at(0), key) for key in range(3)])
    rows: list[Any] = []
    ferry = Ferry(spark, tmp_path / "checkpoint", express=express)

    def run() -> None:
        left = ferry.stream(read(spark, tmp_path, "left"), "left")
        right = ferry.stream(read(spark, tmp_path, "right"), "right").select("k", "r")
        doubled = right.key_by("k").connect(left.where("k > 100").key_by("k")).process(Doubled)
        priced = left.key_by("k").connect(doubled.key_by("k")).process(Priced)
        sink = sinks.foreach(lambda frame, _: rows.extend(tuple(row) for row in frame.collect()), "rows")
        ferry.start("job", priced.write(sink), instances=2, trigger=ONCE).wait()

    run()
    assert sorted(rows) in (
        # The rows of one epoch come stream by stream: which is first, is the same whenever it is done again.
        [(key, f"a{key}", 0) for key in range(6)],
        [(key, f"a{key}", 2 * key if key < 3 else 0) for key in range(6)],
    )
    rows.clear()
    put(tmp_path, "left", 1, [(key, at(1), f"b{key}") for key in range(6)])
    run()
    assert sorted(rows) == [(key, f"b{key}", 2 * key if key < 3 else 0) for key in range(6)]
