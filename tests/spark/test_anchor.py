"""The rows that tie instances to hosts: Spark runs their partitions where we say, and that can change at any moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from ferryman import Ferry, Operator, Value, sources
from ferryman._engine.control import Control
from ferryman._engine.routing_columns import TOKEN
from ferryman._model.routing import RoutingTable
from ferryman._routing.tokens import tokens
from ferryman._spark.compat.placed_rows import PlacedRows
from ferryman._spark.plan.planner import Bytes, Planner


class Count(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n


def wanted(frame: Any) -> list[list[str]]:
    """Give the hosts that Spark would run each partition of a DataFrame on."""
    context = frame.sparkSession.sparkContext._jsc.sc()
    rows = frame._jdf.queryExecution().toRdd()
    found = (context.getPreferredLocs(rows, number) for number in range(rows.getNumPartitions()))
    return [[locations.apply(number).host() for number in range(locations.size())] for locations in found]


@pytest.mark.parametrize("instances", [3, 1])
def test_what_is_united_with_placed_rows_is_worked_on_where_they_are_placed_now(spark: Any, instances: int) -> None:
    numbers = tokens(instances)
    placed = PlacedRows(spark, TOKEN, numbers)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        number = (F.col("id") % instances + 1).cast("int")
        routed = spark.range(30).select(F.element_at(F.lit(list(numbers)), number).alias(TOKEN))
        tied = routed.repartition(instances, TOKEN).union(placed.frame)
        found = tied.select(F.spark_partition_id().alias("at"), TOKEN).collect()

        assert sorted(row[TOKEN] for row in found) == sorted([*numbers] * (30 // instances + 1))
        assert {(row["at"], row[TOKEN]) for row in found} == set(enumerate(numbers))
        for places in (["a", "b", "a"], ["b", "b", "a"]):
            placed.place(places[:instances])
            assert wanted(tied) == [[place] for place in places[:instances]]
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_layouts_with_as_many_instances_have_the_same_berths(spark: Any, tmp_path: Path) -> None:
    source = sources.generator(spark, rows=10, keys=3)
    rows = spark.createDataFrame([], source.schema)
    stream = Ferry(spark, tmp_path / "c").stream(source).key_by("key").process(Count)
    table = RoutingTable.even(1, 8, 2)
    receipts = spark.sparkContext.accumulator([], Bytes())
    planner = Planner(spark=spark, routing=table, pinned=True, shared=set(), receipts=receipts)
    planner.add(stream)
    planner.settle()
    other = planner.rerouted(replace(table, version=2))
    other.settle()

    assert other.spread is planner.spread
    control = Control(
        epoch=1,
        run_id="run",
        checkpoint=str(tmp_path / "c"),
        fsync=False,
        home=None,
        owner=table.owner,
        tokens=other.tokens,
        newest=None,
        newest_same_routing=False,
        time_ms=0,
    )
    built = other.build(stream, rows, {"Count": control}, {}, {})
    assert "Scan ExistingRDD" in built._jdf.queryExecution().executedPlan().toString()
