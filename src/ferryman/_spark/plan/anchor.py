"""Tie each instance to a host: by the host that caches its row of a one-row-per-instance DataFrame, the anchor."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from ferryman._engine.routing_columns import SEQUENCE, TOKEN
from ferryman._spark.compat.pinned_tasks import PinnedTasks
from ferryman._spark.compat.session import cached_executors, cached_hosts, executors
from ferryman._spark.plan.epoch_settings import EPOCH_CONF
from ferryman._state.store.contract import HASH

# Whether a shuffle asks for the hosts that its rows are on. Read when the application starts, so never an epoch's own.
SHUFFLE_PULLS = "spark.shuffle.reduceLocality.enabled"
# How often an anchor is made again at the most, over all epochs, to have the instances spread over the executors.
_MOST_TRIES = 10


class Anchor:
    """Spread instances over the executors, and keep them there.

    Parameters
    ----------
    spark
        The session.
    tokens
        The token of each instance.

    An epoch may spread instances anew while a plan's thread looks where they are, or copies the anchor. So the rows and
    the executors they were spread over change in one step, and old rows are let go of after it.
    """

    def __init__(self, spark: SparkSession, tokens: Sequence[int]) -> None:
        self._spread: tuple[DataFrame | None, frozenset[str]] = (None, frozenset())
        self._spark = spark
        self._tokens = tokens
        # Spark runs a partition of a union on the host that most of its parts ask for. Unless this is off, the shuffle
        # asks too, for the host that wrote most of its rows, and then it takes two anchors to outvote it.
        self._shuffle_pulls = spark.sparkContext.getConf().get(SHUFFLE_PULLS, "true") != "false"
        self._tries_left = 0
        # With the rows that it was made of.
        self._tasks: tuple[DataFrame, PinnedTasks] | None = None

    @property
    def frame(self) -> DataFrame | None:
        """Give the cached rows: another frame if instances have been spread anew; None before they are spread."""
        return self._spread[0]

    def same(self, tokens: Sequence[int]) -> Anchor:
        """Give the anchor of another layout with as many instances: they stay where they are."""
        other = Anchor(self._spark, tokens)
        other._spread = self._spread
        return other

    def settle(self, tries: int = 1) -> None:
        """Spread the instances over the executors there are now, if these are not those of before.

        An anchor's rows that were cached by a lost executor are computed again wherever there was room, and would keep
        their instances there, away from an executor that came in its place or later. Where Spark had no room but on
        some executors, or one was not ready yet, the anchor is made again: now, so many times, or in the next epochs.
        """
        # Taken first: an executor that comes while the anchor is made is a change that the next epoch sees.
        current = executors(self._spark)
        frame, before = self._spread
        if frame is None or not frame.is_cached or current != before:
            self._replace(self._made(), current)
            self._tries_left = _MOST_TRIES
        while self._tries_left:
            assert self.frame is not None, "it was made above"
            fullest = self._fullest(self.frame)
            # The driver is listed as an executor.
            if fullest <= -(-len(self._tokens) // max(1, len(current) - 1)):
                self._tries_left = 0
            if not tries or not self._tries_left:
                return
            tries, self._tries_left = tries - 1, self._tries_left - 1
            other = self._made()
            if self._fullest(other) < fullest:
                self._replace(other, current)
            else:
                other.unpersist()

    def tasks(self) -> PinnedTasks:
        """Give what runs a task per instance where its row is cached, or was when the rows were spread.

        Asking Spark where they are is a call for each of them, so it is asked once.
        """
        frame = self.frame
        assert frame is not None, "an epoch begins with `settle`"
        if self._tasks is None or self._tasks[0] is not frame:
            self._tasks = frame, PinnedTasks(self._spark, cached_executors(frame, len(self._tokens)))
        return self._tasks[1]

    def hosts(self) -> dict[int, str]:
        """Tell which host each instance is tied to, by the name that Spark has for it; nothing if they are not tied."""
        frame = self.frame
        return {} if frame is None else cached_hosts(frame, len(self._tokens))

    def executor_hosts(self) -> set[str]:
        """Name the hosts of the executors there are now, as Spark does."""
        return {executor.rpartition(":")[0] for executor in executors(self._spark)}

    def release(self, but_for: Anchor | None = None) -> None:
        """Let go of the rows, unless another anchor has the same."""
        frame = self.frame
        if frame is not None and (but_for is None or frame is not but_for.frame):
            frame.unpersist()

    @staticmethod
    def rows_for(frame: DataFrame, schema: StructType) -> DataFrame:
        """Give rows of an anchor in the columns of what they are united with."""

        def column(wanted: StructField) -> Column:
            if wanted.name == TOKEN:
                return F.col(TOKEN)
            value = F.lit(-1) if wanted.name in (SEQUENCE, HASH) else F.lit(None)
            return value.cast(wanted.dataType).alias(wanted.name)

        return frame.select(*(column(wanted) for wanted in schema))

    def tied(self, routed: DataFrame, rows: DataFrame | None) -> DataFrame:
        """Unite what was shuffled with an anchor's rows, so that it is worked on where these are."""
        if rows is None:
            return routed
        tied = routed.union(rows)
        return tied.union(rows) if self._shuffle_pulls else tied

    def _replace(self, frame: DataFrame, over: frozenset[str]) -> None:
        before, self._spread = self.frame, (frame, over)
        if before is not None:
            before.unpersist()

    def _made(self) -> DataFrame:
        schema = StructType([StructField(TOKEN, IntegerType(), False)])
        session = self._spark.newSession()
        for name, value in EPOCH_CONF.items():
            session.conf.set(name, value)
        rows = session.createDataFrame([(token,) for token in self._tokens], schema)
        frame = rows.repartition(len(self._tokens), TOKEN).cache()
        frame.count()
        return frame

    def _fullest(self, frame: DataFrame) -> int:
        """Count the rows on the executor that has most."""
        where = cached_executors(frame, len(self._tokens))
        return max(where.count(executor) for executor in where)
