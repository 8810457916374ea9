"""Run Spark jobs at the same time, each on a thread of its own: what one leaves idle, another uses.

A thread has the properties of the one that started it, as Spark knows them, so its jobs are of the same group. When
Spark stops a query, it ends the group's jobs and interrupts the thread that asked; but a job may begin just after that.
So whoever waits looks whether it was interrupted, and ends the jobs that are left. Calls `compat`.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from ferryman._spark.compat.session import is_interrupted

# How often who waits looks whether it was interrupted.
_LOOK_S = 0.5


class _OutputThread(InheritableThread):
    """A thread for one output, which the one that makes it waits for."""

    def __init__(self, spark: SparkSession, call: Callable[[], object], tag: str) -> None:
        super().__init__(self._make, name="ferryman-output")
        self.waits = threading.get_ident()
        # A thread that is joined when Python interrupts whoever joins it is taken for one that has ended.
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self._context, self._call, self._tag = spark.sparkContext, call, tag

    def _make(self) -> None:
        try:
            self._context.addJobTag(self._tag)
            self._call()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()


def asking_thread() -> int:
    """Identify the thread that waits for this one, if it is that of an output; else this one."""
    thread = threading.current_thread()
    return thread.waits if isinstance(thread, _OutputThread) else threading.get_ident()


def side_by_side(spark: SparkSession, calls: Sequence[Callable[[], object]]) -> None:
    """Make calls at the same time and wait for all; then raise what the first in their order has raised, if any has.

    A single one is made on the thread that asks. Whatever happens to that, none is under way any more when this ends.
    """
    if len(calls) <= 1:
        for call in calls:
            call()
        return
    context, tag = spark.sparkContext, f"ferryman-{uuid.uuid4()}"
    threads: list[_OutputThread] = []
    try:
        for call in calls:
            thread = _OutputThread(spark, call, tag)
            thread.start()
            threads.append(thread)
        while _go_on(threads):
            if is_interrupted(spark):
                context.cancelJobsWithTag(tag)
    except BaseException:
        while not all(thread.ended.is_set() for thread in threads):
            # Without a JVM there are no jobs, and who waits for one learns of it.
            with contextlib.suppress(Exception):
                context.cancelJobsWithTag(tag)
            _go_on(threads)
        raise
    for thread in threads:
        if thread.error is not None:
            raise thread.error


def _go_on(threads: Sequence[_OutputThread]) -> bool:
    """Wait for threads a little; tell whether any is still under way."""
    return not all(thread.ended.wait(_LOOK_S) for thread in threads)
