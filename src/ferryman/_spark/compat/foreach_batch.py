"""Have a streaming query call a function for each micro-batch. Calls nobody of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import ForeachBatchFunction

Function = Callable[[DataFrame, int], None]


def foreach_batch(writer: DataStreamWriter, spark: SparkSession, function: Function) -> DataStreamWriter:
    """Set the function of a query, as `DataStreamWriter.foreachBatch` does. Tried on 4.3.

    All micro-batches of a query are in one session, but PySpark makes a new object for it each time, in a dozen calls
    of the JVM: more than a millisecond of every epoch. Here it is made once.
    """
    writer.foreachBatch(function)
    context: Any = spark.sparkContext
    # The same call again, with another function: the last one counts.
    writes: Any = writer
    helper = context._gateway.jvm.org.apache.spark.sql.execution.streaming.sources.PythonForeachBatchHelper
    helper.callForeachBatch(writes._jwrite, _InOneSession(spark, function))
    return writer


class _InOneSession(ForeachBatchFunction):
    """What Spark calls for each micro-batch of a query."""

    def __init__(self, session: SparkSession, func: Function) -> None:
        super().__init__(session, func)
        self._of_batches: SparkSession | None = None

    def call(self, jdf: Any, batch_id: int) -> None:
        try:
            if self._of_batches is None:
                self._of_batches = SparkSession(self.session.sparkContext, jdf.sparkSession())
            self.func(DataFrame(jdf, self._of_batches), batch_id)
        except Exception as error:
            self.error = error
            raise
