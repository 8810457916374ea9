"""Look which executors there are, which are warm, and which are about to go. Calls `compat`."""

from __future__ import annotations

import contextlib
import threading

from pyspark.sql import SparkSession

from ferryman._engine.task import loaded
from ferryman._spark.compat.executor_pool import going
from ferryman._spark.compat.pinned_tasks import PinnedTasks
from ferryman._spark.compat.session import executor_ids, executors


class ExecutorsThere:
    """The executors of an application, as all layouts of a job see them.

    Parameters
    ----------
    spark
        The session.

    Attributes
    ----------
    leaving
        The hosts of executors that are about to go, with no other executor; as it was looked last.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._driver: frozenset[str] = frozenset()
        # Those that have run Python, and those that are about to.
        self._warm: set[str] = set()
        self._warming: set[str] = set()
        self.leaving: frozenset[str] = frozenset()

    def look(self) -> frozenset[str]:
        """Name the executors that there are now and that Spark gives tasks to, as `host:port`."""
        if not self._driver:
            # Until Spark has told of it.
            self._driver = frozenset(name for name, id in executor_ids(self._spark).items() if id == "driver")
        there = executors(self._spark) - self._driver
        gone = going(self._spark)
        if gone:
            ids = executor_ids(self._spark)
            # Where all are about to go, there is nowhere else to be.
            stay = frozenset(name for name in there if ids.get(name) not in gone) or there
            self.leaving = frozenset(map(host_of, there - stay)) - frozenset(map(host_of, stay))
            return stay
        self.leaving = frozenset()
        return there

    def cold(self, there: frozenset[str]) -> frozenset[str]:
        """Name the hosts that have come and are not warm yet, and warm them."""
        warm = self.warm(there)
        return frozenset(map(host_of, there - warm)) - set(map(host_of, warm))

    def warm(self, there: frozenset[str]) -> frozenset[str]:
        """Name the executors that are warm, and warm the others; at the beginning nobody waits for that."""
        if not self._warm:
            self._warm = set(there)
        new = there - self._warm - self._warming
        if new:
            self._warming |= new
            threading.Thread(target=self._make_warm, args=(new,), name="ferryman-warm", daemon=True).start()
        return there & self._warm

    def _make_warm(self, new: frozenset[str]) -> None:
        # One that cannot be made warm is used cold.
        with contextlib.suppress(Exception):
            ids = executor_ids(self._spark)
            # One that Spark has not told of yet is known by its host.
            places = [f"executor_{host_of(name)}_{ids[name]}" if name in ids else host_of(name) for name in sorted(new)]
            PinnedTasks(self._spark, places).run(loaded, [b""] * len(places))
        # One by one: whoever settles looks at it without waiting for us.
        for executor in new:
            self._warm.add(executor)


def host_of(executor: str) -> str:
    """Give the host of an executor that is named as `host:port`."""
    return executor.rpartition(":")[0]
