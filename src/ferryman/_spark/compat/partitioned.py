"""Aggregate the rows of each partition where they stand, by Spark's own compiled code. Calls nobody of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ferryman._spark.compat.task_function import TRIED

# With these, and only in a session of ours, Spark finds groups in a small hash table of its compiled code first. It
# does that by itself only for aggregates that are merged later; and its table is for 65,536 groups.
FAST_TABLE = {"spark.sql.codegen.aggregate.map.twolevel.partialOnly": "false"}
_FAST_TABLE_BITS = "spark.sql.codegen.aggregate.fastHashMap.capacityBit"
_MANY_GROUPS = 50_000


def fast_table(groups: int) -> dict[str, str]:
    """Give the setting for so many groups: a large table takes some milliseconds to make. Tried on 4.3."""
    return {_FAST_TABLE_BITS: "20" if groups > _MANY_GROUPS else "16"}


class AggregatedInPartitions:
    """Group the rows of each partition by themselves. Tried on 4.3.

    Spark would shuffle for that, or for `groupBy` make partials, shuffle them by the key's own hash, and merge them.
    Here it is told that all rows are in one partition, and so finds nothing to shuffle: each of the partitions that
    there really are is aggregated as if it were the only one. Nobody else may read on from that DataFrame but what
    takes its rows one partition at a time.

    Parameters
    ----------
    by
        The names of what to group by.
    aggregates
        What to make of each group.
    """

    def __init__(self, by: Sequence[str], aggregates: Sequence[Column]) -> None:
        self._by = by
        self._aggregates: Sequence[Any] = aggregates
        self._made: dict[str, Any] = {}

    def of(self, frame: DataFrame) -> DataFrame | None:
        """Give the groups: what they are grouped by, and the aggregates. None for a Spark that it was not tried on."""
        if not TRIED:
            return None
        if not self._made:
            self._prepare(frame)
        made = self._made
        session: Any = frame.sparkSession._jsparkSession
        rows: Any = frame._jdf
        planned = rows.queryExecution()
        plan = planned.analyzed()
        # What a micro-batch is given as: rows that are there. Of anything else they have to be made; what is kept of
        # them only a planned query finds.
        as_given = not frame.is_cached and plan.nodeName() == "LogicalRDD"
        there = plan.rdd() if as_given else planned.toRdd()
        rows_of_one = made["rows"](
            plan.output(), there, made["one partition"], made["nothing"], False, made["none"], session, made["none"],
            made["none"], False,
        )  # fmt: skip
        grouped = made["frame"].ofRows(session, rows_of_one).groupBy(made["by"])
        return DataFrame(grouped.agg(made["first"], made["rest"]), frame.sparkSession)

    def _prepare(self, frame: DataFrame) -> None:
        context: Any = frame.sparkSession.sparkContext
        jvm = context._jvm
        listed = jvm.PythonUtils.toSeq
        by: list[Any] = [F.col(f"`{name}`") for name in self._by]
        first, *rest = (column._jc for column in self._aggregates)
        single = getattr(jvm, "org.apache.spark.sql.catalyst.plans.physical.SinglePartition$")
        self._made = {
            "rows": getattr(jvm, "org.apache.spark.sql.execution.LogicalRDD"),
            "frame": getattr(jvm, "org.apache.spark.sql.classic.Dataset"),
            "one partition": getattr(single, "MODULE$"),
            "none": getattr(getattr(jvm, "scala.None$"), "MODULE$"),
            "nothing": listed([]),
            "by": listed([column._jc for column in by]),
            "first": first,
            "rest": listed(rest),
        }
