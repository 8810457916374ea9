"""Put the parts of a job together, once its run has begun: the planner, the epoch runner, the background thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from ferryman._engine.epoch import EpochRunner
from ferryman._engine.fence import Fenced
from ferryman._engine.home import home
from ferryman._engine.home_mains import HomeMains
from ferryman._engine.job_options import JobOptions
from ferryman._engine.maintenance import Background
from ferryman._engine.outputs import Outputs
from ferryman._engine.recovery import Takeover
from ferryman._engine.source_offsets import SparkCoverage
from ferryman._engine.starting import Starting
from ferryman._log.files.cards import evolution_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.lock import CheckpointLock
from ferryman._migrate.coordinator import Coordinator
from ferryman._migrate.layout import Launch
from ferryman._model.card import JobCard
from ferryman._spark.api.job import Job
from ferryman._spark.api.pipeline import Pipeline, shared, united
from ferryman._spark.plan.planner import Bytes, Planner
from ferryman._spark.plan.spark_executor import SparkExecutor


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """What a job is made of.

    Attributes
    ----------
    pipeline
        What it computes.
    card
        The job as this run declares it.
    takeover
        What the run has taken over from the one before.
    starting
        How far the start is.
    """

    spark: SparkSession
    pipeline: Pipeline
    options: JobOptions
    checkpoint: Checkpoint
    card: JobCard
    takeover: Takeover
    starting: Starting

    def job(self, lock: CheckpointLock, trigger: dict[str, Any]) -> Job:
        """Start the job; if that fails, whatever it had started before is ended."""
        nudge = threading.Event()
        with contextlib.ExitStack() as undo:
            runner = self._runner(nudge.set)
            undo.callback(runner.close)
            background = Background(
                self.checkpoint, self.card, self.options, look=runner.fenced.look, mains=self._mains(runner)
            )
            undo.callback(background.close)
            job = Job(
                self.card.job,
                self.spark,
                self.pipeline.sources,
                runner,
                background,
                lock,
                options=self.options,
                starting=self.starting,
                nudge=nudge,
                trigger=trigger,
            )
            # From now on all of it is the job's.
            undo.pop_all()
            return job

    def _mains(self, runner: EpochRunner[Coordinator[Planner]]) -> HomeMains | None:
        """Give the main copies on this machine, if all of them are here."""
        if _several_hosts(self.spark):
            return None
        place = home(self.checkpoint.directory.address, self.takeover.term.run, self.options.home)
        return HomeMains(place, self.pipeline.specs, self.card.groups, runner.whole)

    def _planner(self) -> Planner:
        """Plan the epochs, in the layout that the first one has."""
        planner = Planner(
            spark=self.spark,
            routing=self.takeover.routing,
            pinned=_several_hosts(self.spark),
            shared=shared(self.pipeline.streams, self.pipeline.ends),
            receipts=self.spark.sparkContext.accumulator([], Bytes()),
            sources=self.pipeline.sources,
            united=united(self.pipeline.streams),
        )
        for stream in self.pipeline.operators.values():
            stream.evolve({name: evolution_of(table) for name, table in self.card.tables.items()})
            if self.options.store is not None:
                stream.keep_in(self.options.store)
            planner.add(stream)
        return planner

    def _runner(self, wake: Callable[[], None]) -> EpochRunner[Coordinator[Planner]]:
        """Put together what runs the epochs on Spark."""
        options, term, latest = self.options, self.takeover.term, self.takeover.latest
        planner = self._planner()
        outputs = Outputs(
            self.pipeline.sinks,
            self.checkpoint,
            latest,
            term=term,
            fsync=options.fsync,
            dropped=self.takeover.dropped,
        )
        launch = Launch.of(self.checkpoint.directory.address, term.run, self.card, options)
        coordinator = Coordinator(planner, self.checkpoint, latest, launch, options, wake=wake)
        planner.standbys = lambda: coordinator.standbys.count
        return EpochRunner(
            self.checkpoint,
            self.card,
            SparkExecutor(planner, self.pipeline.ends),
            coordinator,
            Fenced(self.checkpoint, self.card, outputs, term),
            SparkCoverage(self.checkpoint, sync=options.fsync),
            self.takeover,
            options,
        )


def _several_hosts(spark: SparkSession) -> bool:
    master = spark.sparkContext.master or "local"
    return not (master == "local" or master.startswith("local["))
