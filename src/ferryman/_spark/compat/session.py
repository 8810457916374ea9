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
QUERY_LOGGER = "org.apache.spark.sql.execution.streaming"
# What logs that an executor is not there to be told something.
NETWORK_LOGGER = "org.apache.spark.network.client.TransportClient"


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
def log_off(spark: SparkSession, logger: str) -> Iterator[None]:
    """Keep Spark from logging as an error what we do on purpose. Tried on 4.3."""
    jvm: Any = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    before = log4j.LogManager.getLogger(logger).getLevel()
    log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(logger, before)


def is_interrupted(spark: SparkSession) -> bool:
    """Tell whether Spark has interrupted this thread, as it does to stop a query. Tried on 4.3."""
    jvm: Any = spark.sparkContext._jvm
    return bool(jvm.java.lang.Thread.currentThread().isInterrupted())


def executors(spark: SparkSession) -> frozenset[str]:
    """Name the executors there are now as `host:port`, the driver among them. Tried on 4.3."""
    context: Any = spark.sparkContext._jsc
    return frozenset(context.sc().getExecutorMemoryStatus().keySet().mkString(",").split(","))


def executor_ids(spark: SparkSession) -> dict[str, str]:
    """Give the ids of executors by `host:port`, the driver's too; of those that Spark has told of. Tried on 4.3.

    It tells a little later than it has them.
    """
    context: Any = spark.sparkContext._jsc
    listed: Any = context.sc().statusStore().executorList(True)
    told = (listed.apply(number) for number in range(listed.size()))
    return {executor.hostPort(): executor.id() for executor in told}


def plan_tree(frame: DataFrame) -> str:
    """Write the analyzed plan of a DataFrame as a tree, a step to a line; `explain` only prints it. Tried on 4.3."""
    return str(frame._jdf.queryExecution().analyzed().toString())


def plan_json(frame: DataFrame) -> str:
    """Write the analyzed plan of a DataFrame with the class of every step; not every plan can be. Tried on 4.3."""
    return str(frame._jdf.queryExecution().analyzed().toJSON())


def streaming_sources(frame: DataFrame) -> list[Any]:
    """List what a streaming DataFrame reads, as its plan has it; Spark has an offset for each. Tried on 4.3."""
    leaves: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    listed = (leaves.apply(number) for number in range(leaves.size()))
    return [leaf for leaf in listed if leaf.isStreaming()]


# Steps that take and give row by row, in the order and in the partition that they find.
_ROW_BY_ROW = frozenset({"Project", "Filter", "SubqueryAlias"})


def passed_on(made: DataFrame, given: DataFrame) -> frozenset[str]:
    """Name the columns that a DataFrame has from another as they are, if all steps go row by row. Tried on 4.3."""
    step: Any = made._jdf.queryExecution().analyzed()
    first: Any = given._jdf.queryExecution().analyzed()
    columns = _identities(step) & _identities(first)
    while not step.fastEquals(first):
        # A condition that asks another query may become a join.
        if step.nodeName() not in _ROW_BY_ROW or step.subqueries().nonEmpty():
            return frozenset()
        step = step.children().head()
    return frozenset(column.rpartition("#")[0] for column in columns)


def _identities(plan: Any) -> set[str]:
    """Give the columns of a plan, each with the number that Spark knows it by from step to step: `name#number`."""
    return set(plan.output().mkString("\0").split("\0"))


def opaque(frame: DataFrame) -> DataFrame:
    """Give the rows of a DataFrame as one that Spark knows nothing of: neither how many, nor what they are made of.

    It is what foreachBatch is given. Tried on 4.3.
    """
    session: Any = frame.sparkSession._jsparkSession
    rows: Any = frame._jdf
    return DataFrame(
        session.internalCreateDataFrame(rows.queryExecution().toRdd(), rows.schema(), False), frame.sparkSession
    )


def computed(frame: DataFrame) -> None:
    """Compute all rows of a DataFrame, and drop them. Tried on 4.3.

    `frame.write.format("noop")` does the same, and plans a write for it, some milliseconds of every epoch.
    """
    rows: Any = frame._jdf
    rows.queryExecution().toRdd().count()


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
