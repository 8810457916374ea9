"""Tell Spark how the rows of a DataFrame are spread over its partitions. Calls nobody of ours."""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql import Column, DataFrame

# The versions on which it was tried.
TRIED = ("4.3.",)


def aggregated_in_partitions(frame: DataFrame, by: list[Column], aggregates: list[Column]) -> DataFrame | None:
    """Group the rows of each partition by themselves, where they stand; the last column is their partition's number.

    Spark would shuffle for that, or for `groupBy` make partials, shuffle them by the key's own hash, and merge them.
    Here it is told that rows of one number are in one partition, as they are, and so finds nothing to shuffle. The
    groups come with that column, `by`, and the aggregates. None for a Spark that this was not tried on. Tried on 4.3.
    """
    if not pyspark.__version__.startswith(TRIED):
        return None
    spark = frame.sparkSession
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    rows: Any = frame._jdf
    planned = rows.queryExecution()
    columns = planned.analyzed().output()
    listed = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    last = columns.last()
    physical = jvm.org.apache.spark.sql.catalyst.plans.physical
    rdd = planned.toRdd()
    spread = physical.HashPartitioning(listed([last]), rdd.getNumPartitions())
    none = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    known = jvm.org.apache.spark.sql.execution.LogicalRDD(
        columns, rdd, spread, listed([]), False, none, session, none, none, False
    )
    told = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, known), spark)
    return told.groupBy(last.name(), *by).agg(*aggregates)
