"""What a user sees of a job that chooses its number of instances by itself: the part of `Job` that is about that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ferryman._engine.autoscaling import Autoscaling, JobControls
from ferryman._engine.kafka_lag import rows_behind
from ferryman._engine.pooling import Pooling
from ferryman._log.files.decision_log import DecisionLog, read_decisions
from ferryman._model.errors import InvalidConfiguration
from ferryman._scale.decision import Decision
from ferryman._scale.options import Autoscale
from ferryman._scale.pool import Room

if TYPE_CHECKING:
    from ferryman._engine.epoch import EpochRunner
    from ferryman._migrate.coordinator import Coordinator
    from ferryman._migrate.reconfiguration import Preview, Reconfiguration
    from ferryman._spark.plan.planner import Planner


class Autoscaled:
    """Let a running job choose its number of instances by itself, and tell why it did."""

    name: str
    _spark: SparkSession
    _query: StreamingQuery
    _runner: EpochRunner[Coordinator[Planner]]
    _epoch_thread: int | None
    _autoscaling: Autoscaling | None = None
    _kept: DecisionLog | None = None
    _pooling: Pooling | None = None

    @property
    def active(self) -> bool:
        """Tell whether the job runs."""
        raise NotImplementedError

    def plan(self, instances: int | None = None) -> Preview:
        """Say what a change would take."""
        raise NotImplementedError

    def rescale(self, instances: int, *, by: str = "rows", strategy: str = "live") -> Reconfiguration:
        """Change the number of instances."""
        raise NotImplementedError

    def _told_in_words(self) -> str:
        """Say how many rows wait in Kafka."""
        raise NotImplementedError

    def autoscale(self, options: Autoscale | None) -> None:
        """Have the job choose its number of instances by itself from now on, by these options; None for not any more.

        Examples
        --------
        >>> job.autoscale(ferryman.Autoscale(max=8, dry_run=True))  # doctest: +SKIP
        """
        if options is not None and not isinstance(options, Autoscale):
            raise InvalidConfiguration(f"{options!r} are no options of the autoscaler. Give ferryman.Autoscale(...).")
        if options is not None and not self.active:
            raise InvalidConfiguration(f"job {self.name!r} has ended, so it cannot be scaled. Start it again first.")
        if options is not None and self._autoscaling is not None:
            self._autoscaling.choose(options)
            return
        before, self._autoscaling = self._autoscaling, None
        if before is not None:
            before.close()
            if self._pooling is not None:
                self._pooling.forget()
        if options is not None:
            # One for the run: what was decided before it was turned off stays.
            self._kept = self._kept or DecisionLog(self._runner.checkpoint, self._runner.term.number)
            self._autoscaling = Autoscaling(options, self._controls(), self._kept)

    def decisions(self) -> list[Decision]:
        """List what the autoscaler has decided, in this run and in earlier ones, with the figures that led to it."""
        return read_decisions(self._runner.checkpoint, Decision.parse)

    def explain(self, extended: bool = False) -> None:
        """Print the plan of the query, how many rows wait in Kafka, and what the autoscaler has decided and why.

        What operators do is inside of the query's sink.
        """
        self._query.explain(extended)
        if told := self._told_in_words():
            print(told)
        if self._autoscaling is not None or self._pooling is not None:
            print(self.scaling())

    def scaling(self) -> str:
        """Tell in a sentence what the autoscaler has decided last, and in another what holds the job back.

        With a pool, a third one tells which executors there are.
        """
        decided = "autoscaling is off." if self._autoscaling is None else str(self._autoscaling)
        return decided if self._pooling is None else f"{decided} Pool: {self._pooling}."

    def _controls(self) -> JobControls:
        coordinator, pool = self._runner.coordinator, self._pooling
        return JobControls(
            rescale=self.rescale,
            preview=lambda instances: self.plan(instances),
            idle=lambda: self._epoch_thread is None,
            backlog=self._backlog,
            disturbed=lambda: coordinator.changing,
            slots=self._slots,
            groups=len(coordinator.table.owner),
            room_for=Room if pool is None else pool.room_for,
            most=lambda: None if pool is None else pool.most_instances,
        )

    def _slots(self) -> int | None:
        slots = self._spark.sparkContext.defaultParallelism
        return slots if slots > 0 else None

    def _backlog(self) -> int | None:
        try:
            progress = self._query.lastProgress
        except (PySparkException, Py4JError):
            return None
        return None if progress is None else rows_behind(json.loads(progress.json))
