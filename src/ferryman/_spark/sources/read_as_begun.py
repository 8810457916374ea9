"""How Spark cuts the data of a micro-batch into partitions: by settings, and by the number of cores.

The order of rows follows the partitions, and so do the partial sums of declared aggregates. A micro-batch that is
done again must give the same rows on any machine, so it is cut as it was when it was begun.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ferryman._log.files.term import Redo
from ferryman._model.errors import PlanUnderWay
from ferryman._spark.compat.session import session_id

PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
SETTINGS = (
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.maxPartitionNum",
    PARALLELISM,
)


# A source of files goes by the settings of its session, and a session has one of each. So in each session there is one
# job at a time that reads by others than the session's own, which are kept here meanwhile.
_PATIENCE_S = 120.0
_own: dict[str, dict[str, str | None]] = {}
_changed = threading.Condition()


def reading_of(spark: SparkSession) -> dict[str, str]:
    """Give the settings by which a session reads; the number of cores stands for what is left to it."""
    found = dict(_own.get(session_id(spark)) or _settings(spark))
    found[PARALLELISM] = found[PARALLELISM] or str(spark.sparkContext.defaultParallelism)
    return {name: value for name, value in found.items() if value is not None}


def _settings(spark: SparkSession) -> dict[str, str | None]:
    return {name: spark.conf.get(name, None) for name in SETTINGS}


def _read_by(conf: Any, reading: Mapping[str, str | None]) -> None:
    for name in SETTINGS:
        value = reading.get(name)
        if value is None:
            conf.unset(name)
        else:
            conf.set(name, value)


class ReadAsBegun:
    """Have a query read by the settings of an earlier run until the epoch which that left is done.

    A source of files goes by the session that it was declared in, others by the query's own, which is a copy of it
    as it is when the query starts. So the user's session has other settings for that while, and then its own again.
    """

    def __init__(self, spark: SparkSession, redo: Redo | None, reading: Mapping[str, str]) -> None:
        self._conf = spark.conf
        self._redo = redo
        self._reading = reading
        if redo is None:
            return
        self._session = session_id(spark)
        with _changed:
            if not _changed.wait_for(lambda: self._session not in _own, _PATIENCE_S):
                raise PlanUnderWay(
                    "another job of this session is still redoing the epoch that an earlier run of it left behind, and "
                    "until then the session reads as that run did. Start this job again when that epoch is committed, "
                    "or in a session of its own (spark.newSession())."
                )
            _own[self._session] = _settings(spark)
        try:
            _read_by(spark.conf, redo.reading)
        except BaseException:
            self.end()
            raise

    def done(self, epoch: int, frame: DataFrame) -> None:
        """Learn which epoch is committed: from the one that was left on, read as this run does."""
        if self._redo is not None and epoch >= self._redo.epoch:
            self.end()
            _read_by(frame.sparkSession.conf, self._reading)

    def end(self) -> None:
        """Give the session its own settings again; it may be said more than once."""
        with _changed:
            if self._redo is None:
                return
            self._redo = None
            own = _own.pop(self._session)
            _changed.notify_all()
            with contextlib.suppress(Py4JError, PySparkException):
                # A session that is gone reads nothing any more.
                _read_by(self._conf, own)
