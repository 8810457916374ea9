"""Run Spark jobs at the same time, each on a thread of its own: what one leaves idle, another uses.

A thread has the properties of the one that started it, as Spark knows them, so its jobs are of the same group. When
Spark stops a query, it ends the group's jobs and interrupts the thread that asked; but a job may begin just after that.
So whoever waits looks whether it was interrupted, and ends the jobs that are left. Calls `compat`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from ferryman._spark.compat.session import end_jobs_if_interrupted

# How often who waits looks whether it was interrupted.
_LOOK_S = 0.5


def side_by_side(spark: SparkSession, calls: Sequence[Callable[[], object]]) -> None:
    """Make calls at the same time and wait for all; then raise what the first in their order has raised, if any has.

    A single one is made on the thread that asks.
    """
    if len(calls) <= 1:
        for call in calls:
            call()
        return
    errors: list[BaseException | None] = [None] * len(calls)

    def make(number: int) -> None:
        try:
            calls[number]()
        except BaseException as error:
            errors[number] = error

    threads = [InheritableThread(make, args=(number,), name="ferryman-output") for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LOOK_S)
        while thread.is_alive():
            end_jobs_if_interrupted(spark)
            thread.join(_LOOK_S)
    for error in errors:
        if error is not None:
            raise error
