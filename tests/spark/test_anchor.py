"""The rows that tie instances to hosts: those that are cached now, whoever has copied a planner meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ferryman import Ferry, Operator, Value, sources
from ferryman._engine.control import Control
from ferryman._model.routing import RoutingTable
from ferryman._spark.plan.planner import Bytes, Planner


class Count(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n


def test_a_planner_that_is_copied_while_instances_are_spread_anew_ties_them_to_where_they_are(
    spark: Any, tmp_path: Path
) -> None:
    source = sources.generator(spark, rows=10, keys=3)
    rows = spark.createDataFrame([], source.schema)
    stream = Ferry(spark, tmp_path / "c").stream(source).key_by("key").process(Count)
    table = RoutingTable.even(1, 8, 2)
    planner = Planner(spark, table, True, set(), spark.sparkContext.accumulator([], Bytes()))
    planner.add(stream)
    planner.settle()
    assert planner.spread is not None
    planner.spread.unpersist()
    # An epoch's thread has spread them anew just now, and has come no further.
    planner.anchor.settle()

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

    assert "InMemoryTableScan" in built._jdf.queryExecution().executedPlan().toString()
    planner.release()
