"""Make a DataFrame of one row per partition, each of which is worked on where we say, and that can be changed.

PySpark ties a task to a host only by rows that are cached there, and Spark chooses where these are. Its own RDDs may
say where they want to be worked on, and a plan can rest on an RDD. Calls nobody of ours. Tried on 4.3; 4.1 and 4.2 go
by the same ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType


class PlacedRows:
    """One row with an int in each partition.

    Parameters
    ----------
    spark
        The session.
    name
        What the column is called.
    values
        The ints: Spark's hash of each, modulo their number, must be the number of its partition.

    Attributes
    ----------
    frame
        The DataFrame. It says of itself that it is partitioned by its column, so it need not be shuffled for a union.
    """

    def __init__(self, spark: SparkSession, name: str, values: Sequence[int]) -> None:
        context: Any = spark.sparkContext
        jvm, gateway = context._jvm, context._gateway
        to_seq, wrapped = jvm.PythonUtils.toSeq, jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray
        rows = jvm.java.util.ArrayList()
        # An RDD never changes, and neither would a list of places that Spark has made. This one rests on an array of
        # ours. A stage that Spark runs again while an epoch is under way so finds the places of now.
        self._places = [gateway.new_array(jvm.java.lang.String, 1) for _ in values]
        for value, place in zip(values, self._places, strict=True):
            place[0] = ""
            row = jvm.org.apache.spark.sql.catalyst.InternalRow.fromSeq(to_seq([value]))
            rows.add(jvm.scala.Tuple2(row, wrapped(place)))
        kind = jvm.scala.reflect.ClassTag.apply(
            jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
        )
        rdd = context._jsc.sc().makeRDD(to_seq(rows), kind)
        schema = StructType([StructField(name, IntegerType(), False)])
        empty: Any = spark.createDataFrame([], schema)._jdf
        output = empty.queryExecution().analyzed().output()
        sql = jvm.org.apache.spark.sql
        physical = sql.catalyst.plans.physical
        # To Spark, what is in one partition is not parted by anything; a union goes by that.
        single = getattr(getattr(physical, "SinglePartition$"), "MODULE$")
        partitioning = physical.HashPartitioning(output, len(values)) if len(values) > 1 else single
        none = getattr(getattr(jvm, "scala.None$"), "MODULE$")
        session: Any = spark._jsparkSession
        # The last one is new in 4.3.
        whole = (output, rdd, partitioning, to_seq([]), False, none, session, none, none, False)
        (made,) = jvm.java.lang.Class.forName("org.apache.spark.sql.execution.LogicalRDD").getConstructors()
        plan = sql.execution.LogicalRDD(*whole[: made.getParameterCount()])
        self.frame = DataFrame(sql.classic.Dataset.ofRows(session, plan), spark)

    def place(self, hosts: Sequence[str]) -> None:
        """Have each row worked on at a host, as Spark names hosts; anywhere, if its name is empty."""
        for place, host in zip(self._places, hosts, strict=True):
            place[0] = host
