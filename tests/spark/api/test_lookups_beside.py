"""Lookups on Spark: the rows of Spark's own join with a table, and the same version when an epoch is done again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processor.beside import Beside
from pyspark.sql import functions as F

from ferryman import Ferry, Operator, Value, sinks
from ferryman import aggregates as a
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman.errors import InvalidConfiguration, JobFailed

INPUT = "shop string, day date, amount double"
ONCE = {"availableNow": True}
TABLE = "shop string, day date, city string, since timestamp, tags array<string>"


class Through(Operator):
    """Pass all columns on, and count the rows of the key."""

    n = Value(int, 0)
    output = "shop string, city string, n int"

    def process(self, key: Any, row: Any) -> Any:
        self.n += 1
        yield key, row.city, self.n


def some_rows(epochs: int) -> list[list[tuple[Any, ...]]]:
    import datetime

    days = [datetime.date(2024, 5, 1), datetime.date(2024, 5, 2), None]
    shops = ["a", "b", "c", "", None]
    return [
        [(shops[n % 5], days[(n + epoch) % 3], float(n)) for n in range(20)] for epoch in range(epochs)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("express", [True, False])
def test_a_lookup_gives_the_rows_of_sparks_own_join(spark: Any, tmp_path: Path, express: bool) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give(*some_rows(3))
    day = some_rows(1)[0][0][1]
    rows = [("a", day, "Aalen", None, ["x"]), ("a", day, "Aachen", None, []), ("b", day, None, None, None)]
    table = spark.createDataFrame([*rows, (None, day, "Null", None, None), ("", None, "Empty", None, None)], TABLE)
    ferry = Ferry(spark, tmp_path / "checkpoint", express=express)
    stream, taken, outputs = ferry.stream(beside.stream()), {}, []
    for on, how in (("shop", "inner"), (["shop", "day"], "left"), (["day", "shop"], "inner")):
        other = table if len(on) == 2 else table.drop("day")
        name = f"{how}_{on[0]}"
        batch = spark.createDataFrame([], INPUT)
        looked = stream.lookup(other, on=on, how=how, name=name)
        assert looked.columns == batch.join(other, on, how).columns
        # Behind an operator too.
        for where in ("before", "after"):
            if where == "before":
                made = (
                    looked.where("shop IS NOT NULL").key_by("shop").aggregate(f"op_{name}", rows=a.collect_list("city"))
                )
            else:
                counted = stream.where("shop IS NOT NULL").key_by("shop", "amount").aggregate(f"n_{name}", n=a.count())
                made = counted.lookup(table.drop("day"), on="shop", how=how, name=f"{name}_after")
            found = taken[name, where] = []
            sink = sinks.foreach(
                lambda frame, _, found=found: found.extend(map(tuple, frame.collect())), f"{name}{where}"
            )
            outputs.append(made.write(sink))
    ferry.start("job", *outputs, instances=2, trigger=ONCE).wait()
    whole = spark.read.parquet(str(tmp_path / "input"))
    for on, how in (("shop", "inner"), (["shop", "day"], "left"), (["day", "shop"], "inner")):
        other = table if len(on) == 2 else table.drop("day")
        name = f"{how}_{on[0]}"
        theirs = whole.join(other, on, how).where("shop IS NOT NULL")
        cities = {
            row.shop: Counter(row.cities)
            for row in theirs.groupBy("shop").agg(F.collect_list("city").alias("cities")).collect()
        }
        # An aggregate puts out a key in each epoch that it has rows in: the last has all.
        ours = {shop: Counter(listed) for shop, listed in taken[name, "before"]}
        assert ours == cities
        counted = whole.where("shop IS NOT NULL").groupBy("shop", "amount").count().join(table.drop("day"), "shop", how)
        after = {repr(row) for row in taken[name, "after"] if row[2] == 3}
        assert after == {repr(tuple(row)) for row in counted.collect()}


@pytest.mark.slow
def test_all_parts_of_a_union_have_the_same_version(spark: Any, tmp_path: Path) -> None:
    sides = {name: Beside(spark, tmp_path / name, "shop string, amount double") for name in ("left", "right")}
    for beside in sides.values():
        beside.place.mkdir(exist_ok=True)
        beside.give([("a", 1.0)], [("b", 2.0)])
    read: list[int] = []

    def table() -> Any:
        read.append(1)
        return spark.createDataFrame([("a", f"{len(read)}"), ("b", f"{len(read)}")], "shop string, city string")

    ferry = Ferry(spark, tmp_path / "checkpoint")
    left, right = (ferry.stream(beside.stream(), name) for name, beside in sides.items())
    looked = left.union(right).lookup(table, on="shop", refresh=0.000_001)
    memory = sinks.memory()
    looked.key_by("shop").process(Through).write(memory).start("job", instances=2, trigger=ONCE).wait()
    found = {shop: {row["city"] for row in memory.rows() if row["shop"] == shop} for shop in ("a", "b")}
    assert [len(cities) for cities in found.values()] == [1, 1]
    assert found["a"] != found["b"]
    assert len(memory.rows()) == 4


def test_an_epoch_that_is_done_again_looks_up_the_version_it_had_and_a_start_reads_anew(
    spark: Any, tmp_path: Path
) -> None:
    beside = Beside(spark, tmp_path, "shop string, amount double")
    beside.give([("a", 1.0), ("b", 1.0)])
    table = tmp_path / "shops.parquet"
    seen: list[Any] = []
    dies = [True]

    def sink(frame: Any, number: int) -> None:
        rows = sorted(tuple(row) for row in frame.collect())
        seen.append(rows)
        if dies[0]:
            raise RuntimeError("the sink dies")

    def write(city: str) -> None:
        pq.write_table(pa.table({"shop": ["a"], "city": [city]}), table)

    def run() -> Any:
        stream = Ferry(spark, tmp_path / "checkpoint").stream(beside.stream())
        looked = stream.lookup(lambda: spark.read.parquet(str(table)), on="shop", how="left", name="shops")
        return looked.key_by("shop").process(Through).write(sinks.foreach(sink)).start("job", instances=2, trigger=ONCE)

    write("first")
    with pytest.raises(JobFailed):
        run().wait()
    write("second")
    dies[0] = False
    # Epoch 1 is done again as it was begun, and the next one has what the table is now.
    beside.give([("a", 2.0), ("b", 2.0)])
    job = run()
    job.wait()
    assert [epoch.lookups for epoch in job.progress()] == [{"shops": 1}, {"shops": 2}]
    assert seen == [
        [("a", "first", 1), ("b", None, 1)],
        [("a", "first", 1), ("b", None, 1)],
        [("a", "second", 2), ("b", None, 2)],
    ]
    log = Checkpoint(LocalDirectory(tmp_path / "checkpoint"))
    assert [log.manifest(epoch).lookups["shops"].since for epoch in (1, 2)] == [1, 2]


def test_what_cannot_be_is_refused_at_the_call(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([])
    pq.write_table(pa.table({"shop": ["a"], "city": ["Aalen"]}), tmp_path / "shops.parquet")
    files = spark.read.parquet(str(tmp_path / "shops.parquet"))
    stream = Ferry(spark, tmp_path / "checkpoint").stream(beside.stream())
    for table, options, why in (
        (files, {"refresh": "1 minute"}, "lists them once.*lookup\\(lambda: spark.read.parquet"),
        (beside.stream(), {}, "got a streaming DataFrame.*key_by"),
        (files.withColumn("shop", F.lit(1)), {}, 'string in the stream and int in the table.*cast\\("string"\\)'),
        (files.withColumn("SHOP_", F.lit(1)).withColumn("AMOUNT", F.lit(1)), {}, "both .* have a column 'amount'"),
    ):
        with pytest.raises(InvalidConfiguration, match=why):
            stream.lookup(table, on="shop", **options)
    assert stream.lookup(files, on="SHOP").columns == ["shop", "day", "amount", "city"]
