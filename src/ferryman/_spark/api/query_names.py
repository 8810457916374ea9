"""What a job has of Spark's `StreamingQuery`, by Spark's names: code around a query goes on around a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

if TYPE_CHECKING:
    from ferryman._engine.epoch import EpochRunner
    from ferryman._migrate.coordinator import Coordinator
    from ferryman._spark.plan.planner import Planner


class QueryNames:
    """Answer to the names of `StreamingQuery`.

    Spark's query knows of micro-batches alone. What `status`, `lastProgress` and `recentProgress` tell is Spark's own
    word on these; `progress()` tells of epochs, silent ones too.
    """

    _query: StreamingQuery
    _runner: EpochRunner[Coordinator[Planner]]

    @property
    def active(self) -> bool:
        """Tell whether the job runs."""
        raise NotImplementedError

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job ends."""
        raise NotImplementedError

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until a condition holds."""
        raise NotImplementedError

    @property
    def id(self) -> str:
        """Give the query's id, the same after every restart."""
        return self._query.id

    @property
    def runId(self) -> str:
        """Give the id of this run of the query."""
        return self._query.runId

    @property
    def isActive(self) -> bool:
        """Tell whether the job runs."""
        return self.active

    @property
    def status(self) -> dict[str, Any]:
        """Give what Spark's query is doing."""
        return self._query.status

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        """List how the last micro-batches went."""
        return self._query.recentProgress

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        """Tell how the last micro-batch went."""
        return self._query.lastProgress

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the job ends, and raise its error if it failed; with a timeout, tell whether it has ended."""
        ended = self.wait(timeout)
        return None if timeout is None else ended

    def processAllAvailable(self) -> None:
        """Wait until all rows that the source has now are committed, and what the watermark has come to then.

        Raises the job's error if it fails meanwhile.
        """
        try:
            self._query.processAllAvailable()
        except PySparkException:
            # The query is ending, or has ended.
            self.wait()
            return
        # What is due by the watermark, and rows that wait for their state, come in epochs that Spark does not know of.
        self.wait_for(self._caught_up)

    def _caught_up(self) -> bool:
        latest = self._runner.latest
        return not self._runner.due.by_watermark() and not (latest is not None and latest.held)
