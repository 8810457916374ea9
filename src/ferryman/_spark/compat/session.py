"""What only the JVM of a running session can tell, or do: its files, executors, plans and log. Calls nobody of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F

# What logs how a streaming query ends.
_QUERY_LOGGER = "org.apache.spark.sql.execution.streaming"


def default_filesystem(spark: SparkSession) -> str:
    """Give the URI of the filesystem that a path without one is on. Tried on 4.3."""
    context: Any = spark.sparkContext._jsc
    return context.hadoopConfiguration().get("fs.defaultFS") or "file:///"


def session_id(spark: SparkSession) -> str:
    """Tell sessions of one application apart: each has its own settings. Tried on 4.3."""
    session: Any = spark._jsparkSession
    return str(session.sessionUUID())


def size_in_bytes(spark: SparkSession, size: str) -> int:
    """Read a size as Spark's settings have it, such as 64m. Tried on 4.3."""
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(size))


@contextlib.contextmanager
def query_log_off(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from logging the end of a query as an error while we end it on purpose. Tried on 4.3."""
    jvm: Any = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    before = log4j.LogManager.getLogger(_QUERY_LOGGER).getLevel()
    log4j.core.config.Configurator.setLevel(_QUERY_LOGGER, log4j.Level.OFF)
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(_QUERY_LOGGER, before)


def end_jobs_if_interrupted(spark: SparkSession) -> None:
    """End the jobs of this thread's group if Spark has interrupted it, as it does to stop a query. Tried on 4.3."""
    jvm: Any = spark.sparkContext._jvm
    group = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
    if group is not None and jvm.java.lang.Thread.currentThread().isInterrupted():
        spark.sparkContext.cancelJobGroup(group)


def executors(spark: SparkSession) -> frozenset[str]:
    """Name the executors there are now as `host:port`, the driver among them. Tried on 4.3."""
    context: Any = spark.sparkContext._jsc
    return frozenset(context.sc().getExecutorMemoryStatus().keySet().mkString(",").split(","))


def cached_executors(frame: DataFrame, partitions: int) -> list[str]:
    """Name the executor that has cached each partition of a DataFrame; empty for one that none has. Tried on 4.3."""
    return [found.mkString(",") for found in _locations(frame, partitions)]


def cached_hosts(frame: DataFrame, partitions: int) -> dict[int, str]:
    """Name the host that has cached each partition of a DataFrame, as Spark names hosts. Tried on 4.3."""
    found = enumerate(_locations(frame, partitions))
    return {number: locations.apply(0).host() for number, locations in found if locations.size()}


def _locations(frame: DataFrame, partitions: int) -> list[Any]:
    context: Any = frame.sparkSession.sparkContext._jsc
    rows: Any = frame._jdf.queryExecution().toRdd()
    return [context.sc().getPreferredLocs(rows, number) for number in range(partitions)]


def plan_tree(frame: DataFrame) -> str:
    """Write the analyzed plan of a DataFrame as a tree, a step to a line; `explain` only prints it. Tried on 4.3."""
    return str(frame._jdf.queryExecution().analyzed().toString())


def plan_json(frame: DataFrame) -> str:
    """Write the analyzed plan of a DataFrame with the class of every step; not every plan can be. Tried on 4.3."""
    return str(frame._jdf.queryExecution().analyzed().toJSON())


# Steps that take and give row by row, in the order and in the partition that they find.
_ROW_BY_ROW = frozenset({"Project", "Filter", "SubqueryAlias"})


def passed_on(made: DataFrame, given: DataFrame) -> frozenset[str]:
    """Name the columns that a DataFrame has from another as they are, if all steps go row by row. Tried on 4.3."""
    step: Any = made._jdf.queryExecution().analyzed()
    columns = _identities(step) & _identities(given._jdf.queryExecution().analyzed())
    while step.children().nonEmpty():
        # A condition that asks another query may become a join.
        if step.nodeName() not in _ROW_BY_ROW or step.subqueries().nonEmpty():
            return frozenset()
        step = step.children().head()
    return frozenset(name for name, _ in columns)


def _identities(plan: Any) -> set[tuple[str, int]]:
    """Give the columns of a plan, each with the number that Spark knows it by from step to step."""
    columns = plan.output()
    listed = (columns.apply(number) for number in range(columns.size()))
    return {(column.name(), column.exprId().id()) for column in listed}


def opaque(frame: DataFrame) -> DataFrame:
    """Give the rows of a DataFrame as one that Spark knows nothing of: neither how many, nor what they are made of.

    It is what foreachBatch is given. Tried on 4.3.
    """
    session: Any = frame.sparkSession._jsparkSession
    rows: Any = frame._jdf
    return DataFrame(
        session.internalCreateDataFrame(rows.queryExecution().toRdd(), rows.schema(), False), frame.sparkSession
    )


def grouping(grouped: GroupedData) -> tuple[DataFrame, list[Column]]:
    """Give the DataFrame that was grouped, and what by as columns of it. Tried on 4.3."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = grouped.session._jvm
    expressions: Any = grouped._jgd.groupingExprs()
    columns = jvm.org.apache.spark.sql.classic.ExpressionUtils
    numbers = range(expressions.size())
    made: list[Column] = [ClassicColumn(columns.column(expressions.apply(number))) for number in numbers]
    return grouped._df, made


def int_literal(spark: SparkSession, values: npt.NDArray[np.int32]) -> Column:
    """Make ints one literal; `F.lit` would call the JVM for each of them, while epochs want it too. Tried on 4.3."""
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.int, len(values))
    gateway.jvm.java.nio.ByteBuffer.wrap(bytearray(values.astype(">i4").tobytes())).asIntBuffer().get(array)
    return F.lit(array)
