"""Ask Spark for executors, give some back, and tell which of them are about to go. Calls nobody of ours.

What asks and gives back is Spark's own developer API, which standalone, Kubernetes and YARN all have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


def request_total(spark: SparkSession, count: int) -> bool:
    """Ask for so many executors in all; tell whether the cluster has heard it. Tried on 4.3.

    Those that there are stay.
    """
    context, jvm = _context(spark), _jvm(spark)
    return bool(context.requestTotalExecutors(count, 0, jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())))


def give_back(spark: SparkSession, ids: Collection[str]) -> bool:
    """End executors, by their ids; tell whether the cluster has heard it. Tried on 4.3.

    Spark gives them no task from then on.
    """
    return bool(_context(spark).killExecutors(_jvm(spark).PythonUtils.toSeq(list(ids))))


def going(spark: SparkSession) -> frozenset[str]:
    """Give the ids of the executors that get no task any more: decommissioned, or given back. Tried on 4.3."""
    backend: Any = _context(spark).schedulerBackend()
    found: set[str] = set()
    # A local session has no such lists. And one may change while it is read: then it is read the next time.
    with contextlib.suppress(Py4JError):
        for ids in (backend.executorsPendingDecommission(), backend.executorsPendingToRemove()):
            found.update(ids.keySet().mkString(",").split(","))
    return frozenset(found - {""})


def executor_cores(spark: SparkSession) -> int | None:
    """Tell how many tasks an executor runs at the same time; None if not known. Tried on 4.3."""
    listed: Any = _context(spark).statusStore().executorList(True)
    cores = [listed.apply(number).totalCores() for number in range(listed.size())]
    # The driver of a cluster has none.
    return max(cores, default=0) or None


def _context(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext._jsc
    return context.sc()


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm
