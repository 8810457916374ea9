"""A job that goes through a trace, and who changes its number of instances meanwhile."""

from __future__ import annotations

import math
import time
from pathlib import Path

from pyspark.sql import SparkSession

from bench.elastic_load import Arrived, Outcome, Trace, working
from bench.elastic_rivals import Rule, Seen
from bench.report import Result
from ferryman import Autoscale, Ferry
from ferryman._engine.autoscaling import metrics_of
from ferryman._scale.epoch_metrics import EpochMetrics
from ferryman._scale.metrics_history import MetricsHistory
from ferryman._spark.api.job import Job

# The most instances that any contender may have.
MOST = 16
_LOOK_S = 0.5
_START_S = 6.0


class RunningJob:
    """A job that goes through the trace, and who changes its number of instances."""

    def __init__(
        self,
        spark: SparkSession,
        trace: Trace,
        options: Autoscale | None,
        place: Path,
        instances: int = 1,
        start_s: float = _START_S,
    ) -> None:
        self._spark, self._trace, self._options, self._place = spark, trace, options, place
        self._sink = Arrived()
        self._epochs: list[EpochMetrics] = []
        # When the first row is due: a query takes some time to start. In a whole second, as Spark's triggers are.
        self.start = float(math.ceil(time.time() + start_s))
        self.decisions: list[Result] = []
        self.job = self._begun(instances)
        self.started_s: float | None = None

    def _begun(self, instances: int | None) -> Job:
        ferry = Ferry(self._spark, checkpoint=str(self._place), autoscale=self._options, idle=None)
        rows = self._trace.frame(self._spark, self.start)
        stream = ferry.stream(rows).with_watermark("event_time", "1 hour").key_by("key")
        interval_ms = self._trace.interval_ms
        trigger = {"processingTime": f"{interval_ms} milliseconds"} if interval_ms else None
        return (
            stream.process(working(self._trace.row_s))
            .write(self._sink)
            .start(self._place.name, instances=instances, trigger=trigger)
        )

    @property
    def now_s(self) -> float:
        """Give the time since the begin of the trace."""
        return time.time() - self.start

    def follow(self, rule: Rule | None, *, restarts: bool, look_s: float = _LOOK_S) -> None:
        """Do what a rule wants until the trace is over."""
        while self.now_s < self._trace.seconds:
            time.sleep(look_s)
            if not self.job.active:
                self.job.wait()
                raise RuntimeError("the job has ended before the trace")
            if rule is None or not self.job.progress():
                continue
            before = self.job.instances
            wanted = rule(self._seen(before))
            if wanted is None or wanted == before:
                continue
            asked_s = self.now_s
            if restarts:
                self._restart(wanted)
                took_s = self.now_s - asked_s
            else:
                took_s = self._rescaled(wanted)
            took_s = round(took_s, 3)
            self.decisions.append({"at_s": round(asked_s, 2), "before": before, "after": wanted, "took_s": took_s})

    def _rescaled(self, instances: int) -> float:
        change = self.job.rescale(instances)
        if not change.wait() or change.took is None:
            raise RuntimeError(f"the change to {instances} instances did not come about: {change.reason}")
        return change.took.seconds

    def _restart(self, instances: int) -> None:
        self.job.stop()
        self._epochs += self._told()
        self.job = self._begun(instances)
        self.job.wait_for(lambda: bool(self.job.progress()), timeout=120)
        self.started_s = self.now_s

    def _told(self) -> list[EpochMetrics]:
        # The first epochs of a run are cold.
        return [
            metrics_of(epoch, epoch.committed_ms / 1000 - self.start, slots=MOST, disturbed=number < 2)
            for number, epoch in enumerate(self.job.progress())
        ]

    def _seen(self, instances: int) -> Seen:
        lag = self._trace.due(self.now_s) - self._sink.rows
        return Seen(
            at_s=self.now_s,
            instances=instances,
            lag=lag,
            history=lambda: MetricsHistory.of(self._told()[-1000:]),
            started_s=self.started_s,
        )

    def epochs(self) -> list[EpochMetrics]:
        """Give what all epochs told, in seconds from the begin of the trace."""
        return self._epochs + self._told()

    def outcome(self) -> Outcome:
        """Say what came of it, and end the job."""
        self.job.stop()
        end = time.time()
        epochs = self.epochs()
        steps = [(epoch.began_s, epoch.instances) for epoch in epochs]
        if self._options is not None:
            self.decisions = [
                {
                    "at_s": round(decision.time_ms / 1000 - self.start, 1),
                    "kind": decision.kind,
                    "before": decision.before,
                    "after": decision.after,
                    "why": decision.why,
                }
                for decision in self.job.decisions()
            ]
        return Outcome.of(self._trace, self._sink, self.start, end, steps, self.decisions)
