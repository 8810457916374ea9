"""Run a Python function in a task per instance, each on the executor of its instance, with what it works on.

PySpark can tie a task to an executor only by rows that are cached there. Spark's own RDDs may say where they want to be
worked on. The bytes of each instance travel with its task, and no further. Calls `task_function`. Tried on 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from ferryman._spark.compat.task_function import TaskFunctions

# Gets the number of its instance and the bytes for it, and gives some bytes.
InstanceFunction = Callable[[int, bytes], list[bytes]]


class PinnedTasks:
    """Tasks that want to be where their instances are.

    Parameters
    ----------
    spark
        The session.
    locations
        Where each instance is, as Spark names executors that have something cached; none, or several with commas.

    A task whose executor is busy waits for `spark.locality.wait`; then, or if its executor is gone, another takes it.
    """

    def __init__(self, spark: SparkSession, locations: Sequence[str]) -> None:
        context: Any = spark.sparkContext
        jvm = context._jvm
        to_seq = jvm.PythonUtils.toSeq
        places = jvm.java.util.ArrayList()
        for location in locations:
            wanted = jvm.java.util.ArrayList()
            wanted.addAll([name for name in location.split(",") if name])
            places.add(jvm.scala.Tuple2(bytearray(b"-"), to_seq(wanted)))
        kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        self._spark_context = context._jsc.sc()
        self._places = self._spark_context.makeRDD(to_seq(places), kind).toJavaRDD()
        self._functions = TaskFunctions(spark)
        self._stream = jvm.java.io.ByteArrayInputStream
        self._read = jvm.PythonRDD.readRDDFromInputStream

    def run(self, function: InstanceFunction, given: Sequence[bytes]) -> list[bytes]:
        """Run a function for each instance on the bytes given for it; give what came of all, instance by instance."""
        # In one piece: a call for each instance would cost more than all the rest.
        framed = b"".join(part for data in given for part in (len(data).to_bytes(4, "big"), data))
        travelling = self._read(self._spark_context, self._stream(bytearray(framed)), len(given))
        return self._functions.collect(self._places.zip(travelling).rdd(), _OfPair(function))


@dataclass(frozen=True)
class _OfPair:
    """A function as PySpark's RDDs have it: called with the place, which says nothing, and the bytes."""

    function: InstanceFunction

    def __call__(self, instance: int, found: Iterable[bytes]) -> list[bytes]:
        _, data = found
        return self.function(instance, data)
