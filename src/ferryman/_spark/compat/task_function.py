"""Hand a Python function to Spark with few calls of the JVM. Calls `broadcasts`.

PySpark does the same, and sends the worker's environment anew with every function. And asking for a class of the
JVM, or for a function of it, is a call too: here each is asked for once. Tried on 4.3.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any

import pyspark
from pyspark import cloudpickle
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession

from ferryman._spark.compat.broadcasts import noting_broadcasts

# Gets the number of its partition, and what is in it; gives some bytes.
PartitionFunction = Callable[[int, Iterable[bytes]], list[bytes]]

TRIED = pyspark.__version__.startswith("4.3.")
# Set for workers of queries: who has the same environment shares the workers.
_SHORT_TRACES = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
# What is larger than this is sent by a broadcast variable.
_MOST_BYTES = 1 << 20


class TaskFunctions:
    """Run functions over RDDs of bytes.

    Parameters
    ----------
    spark
        The session whose settings the workers have.
    """

    def __init__(self, spark: SparkSession) -> None:
        context: Any = spark.sparkContext
        jvm = context._jvm
        self._context = context
        self._function = jvm.SimplePythonFunction
        self._rdd = jvm.PythonRDD
        self._collect = jvm.PythonRDD.collectAndServe
        plans = jvm.org.apache.spark.sql.execution
        self._limit, self._coalesce = plans.LocalLimitExec, plans.CoalesceExec
        self._map, self._list = jvm.java.util.HashMap, jvm.java.util.ArrayList
        short = spark.conf.get(_SHORT_TRACES, "true") == "true"
        self._short_traces = {"SPARK_SIMPLIFIED_TRACEBACK": "1"} if short else {}
        self._nothing = self._list()
        self._known: Any = None
        self._sent = ""
        self._environment: Any = None
        self._includes: Any = None

    def collect(self, rdd: Any, function: PartitionFunction) -> list[bytes]:
        """Run a function on every partition of an RDD; give what it gave, in the order of partitions."""
        # As PySpark's RDDs: what to call, no profiler, and how to read and write; here bytes, as they are.
        made = self.of((function, None, NoOpSerializer(), NoOpSerializer()))
        return self.serve(self._rdd(rdd, made, False, False))

    def serve(self, rdd: Any) -> list[bytes]:
        """Bring the bytes of an RDD here, in the order of partitions."""
        from pyspark.util import _load_from_socket

        with _load_from_socket(self._collect(rdd), NoOpSerializer()) as data:
            return list(data)

    def limited(self, plan: Any, rows: int) -> Any:
        """Have a planned query read in one task, and no more than so many rows."""
        return self._limit(rows, self._coalesce(1, plan))

    def of(self, work: tuple[Any, ...]) -> Any:
        """Give the JVM's side of what a worker is to do; what it was given before has been done by then."""
        context = self._context
        # Spark forgets a broadcast variable that nobody has any more, but not the file that it was made of.
        with contextlib.suppress(OSError):
            os.unlink(self._sent)
        self._sent = ""
        with noting_broadcasts() as noted:
            command = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
            if len(command) > _MOST_BYTES:
                large = context.broadcast(command)
                command, self._sent = cloudpickle.dumps(large), large._path  # type: ignore[no-untyped-call]
            variables: list[Any] = [variable._jbroadcast for variable in noted]
        # Files that were shipped meanwhile are added to these.
        known = (dict(context.environment), list(context._python_includes))
        if self._known != known:
            self._known = known
            self._environment, self._includes = self._map(), self._list()
            self._environment.putAll({**known[0], **self._short_traces})
            self._includes.addAll(known[1])
        listed = self._nothing
        if variables:
            listed = self._list()
            listed.addAll(variables)
        return self._function(
            bytearray(command),
            self._environment,
            self._includes,
            context.pythonExec,
            context.pythonVer,
            listed,
            context._javaAccumulator,
        )
