"""A running job: Spark's query, the epochs, silent epochs, stopping, and a view on progress and state."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ferryman._engine.epoch import EpochRunner
from ferryman._engine.failures import as_ferryman, as_spark
from ferryman._engine.home import home, move_out, settle
from ferryman._engine.job_endpoint import JobEndpoint
from ferryman._engine.job_options import JobOptions
from ferryman._engine.job_shown import Watched
from ferryman._engine.latency import Latency, latency
from ferryman._engine.maintenance import Background
from ferryman._engine.progress import EpochProgress
from ferryman._engine.silent_epochs import LOOK_S, SHORTEST_S, wait_s
from ferryman._engine.starting import Started, Starting
from ferryman._log.check.way_back import with_way_back
from ferryman._log.files.lock import CheckpointLock
from ferryman._log.spark_log.spark_log_copy import SparkLogCopy
from ferryman._migrate.coordinator import Coordinator
from ferryman._model.errors import CheckpointUnwritable, FerrymanError, InvalidConfiguration
from ferryman._model.receipt import Receipt, decode
from ferryman._spark.api.autoscaled import Autoscaled
from ferryman._spark.api.job_sources import JobSources
from ferryman._spark.api.kafka_told import KafkaTold
from ferryman._spark.api.pooled import Pooled
from ferryman._spark.api.query_names import QueryNames
from ferryman._spark.api.reconfiguring import Changing
from ferryman._spark.api.state_view import StateView
from ferryman._spark.compat.foreach_batch import foreach_batch
from ferryman._spark.compat.session import QUERY_LOGGER, log_off
from ferryman._spark.plan.planner import Planner
from ferryman._spark.plan.side_by_side import asking_thread
from ferryman._spark.sources.read_as_begun import ReadAsBegun

# How Spark tells that its own log could not be written: in the first line of what the query ended with.
_UNWRITABLE = re.compile(r".*(No space left on device|Read-only file system|Permission denied|Disk quota exceeded)")


# A timer may set another one that is due at once, but not for ever.
_MOST_LAST_EPOCHS = 100


class _Stopping(Exception):
    """Ends Spark's query from inside: raised instead of an epoch when the job is to stop."""


class Job(Changing, KafkaTold, Autoscaled, Pooled, Watched, QueryNames):
    """One Structured Streaming query under Ferryman; `Ferry.start` makes it."""

    def __init__(
        self,
        name: str,
        spark: SparkSession,
        sources: JobSources,
        runner: EpochRunner[Coordinator[Planner]],
        background: Background,
        lock: CheckpointLock,
        *,
        options: JobOptions,
        starting: Starting,
        nudge: threading.Event,
        trigger: dict[str, Any],
    ) -> None:
        self.name = name
        self._spark = spark
        self._sources = sources
        self._runner = runner
        self._background = background
        self._lock = lock
        self._starting = starting
        self._starting.count = self._restored
        self._home = home(runner.checkpoint.directory.address, runner.run_id, options.home)
        self._log_copy = self._copied_log()
        self._once = bool(trigger.get("availableNow") or trigger.get("once"))
        self._idle_s = options.idle_s
        self._progress: deque[EpochProgress] = deque(maxlen=10_000)
        self._turn = threading.Lock()
        self._closing = threading.Lock()
        self._epoch_thread: int | None = None
        self._changed = threading.Condition()
        self._stopping = False
        self._closed = False
        self._released = False
        self._failure: BaseException | None = None
        self._last_epoch_at = time.monotonic()
        self._silent_session = spark.newSession()
        # Not the condition: whoever wakes the clock may hold a lock that comes after that.
        self._nudge = nudge
        self._reading = ReadAsBegun(spark, runner.term.redo, runner.term.reading)
        try:
            self._query = self._begin(trigger)
        except BaseException:
            self._reading.end()
            raise
        self._clock = threading.Thread(target=self._silence, name="ferryman-idle", daemon=True)
        if not self._once:
            self._clock.start()
        self._begin_reports(sources.kafka_places())
        self._endpoint = JobEndpoint(self, runner.checkpoint.directory.uri)
        if options.pool is not None:
            self._begin_pool(options.pool, shared_home=options.home is not None)
        if options.autoscale is not None and not self._once:
            self.autoscale(options.autoscale)
        self._watch = threading.Thread(target=self._close_at_end, name="ferryman-watch", daemon=True)
        self._watch.start()

    def _copied_log(self) -> SparkLogCopy | None:
        """Have Spark's log here, where the checkpoint is not on a disk."""
        runner = self._runner
        if not runner.checkpoint.directory.remote:
            return None
        return SparkLogCopy(runner.checkpoint, self._home / "spark-log", lambda: runner.fenced.look("offsets"))

    # -- starting --------------------------------------------------------------------------------

    def _begin(self, trigger: dict[str, Any]) -> StreamingQuery:
        takeover = self._runner.takeover
        self._runner.fenced.begin()
        self._starting.step("first epoch")
        if takeover.silent_first is not None:
            self._silent_epoch(takeover.silent_first.time_ms)
            self._reading.end()
        spark_side = f"{self._runner.checkpoint.directory.spark_uri}/spark"
        if self._log_copy is not None:
            # So that nobody takes it for left behind.
            settle(self._home)
            self._log_copy.fetch()
            spark_side = self._log_copy.uri
        self._pending = takeover.pending
        rows = self._sources.frame(self._spark)
        writer = foreach_batch(rows.writeStream, self._spark, self._batch).queryName(self.name)
        if trigger:
            try:
                writer = writer.trigger(**trigger)
            except PySparkException as error:
                raise InvalidConfiguration(
                    f"trigger={trigger!r}: Spark does not take it ({error}). Write it as for DataStreamWriter.trigger, "
                    'for example {"processingTime": "1 second"} or {"availableNow": True}.'
                ) from error
        return writer.option("checkpointLocation", spark_side).start()

    # -- epochs ----------------------------------------------------------------------------------

    def _batch(self, frame: DataFrame, batch: int) -> None:
        with self._turn:
            if self._stopping or self._failure is not None:
                raise _Stopping
            self._pending = False
            try:
                if batch > self._runner.newest.batch:
                    if self._log_copy is not None:
                        # Before anything of the batch is done.
                        self._log_copy.keep()
                    clock, log = self._runner.clock, self._runner.checkpoint
                    self._epoch(
                        lambda: self._runner.run(frame, batch, silent=False, time_ms=clock.of_batch(log, batch))
                    )
                self._reading.done(self.epoch, frame)
            except Exception as error:
                # Spark learns of it in its own words; the job has the error itself.
                raise as_spark(error, self.name) from None

    def _silent_epoch(self, time_ms: int) -> None:
        empty = self._sources.empty(self._silent_session)
        self._epoch(lambda: self._runner.run(empty, self._runner.newest.batch, silent=True, time_ms=time_ms))

    def _epoch(self, run: Callable[[], EpochProgress]) -> None:
        self._epoch_thread = threading.get_ident()
        try:
            progress = run()
        except Exception as error:
            self._failure = as_ferryman(error, self.name)
            if isinstance(self._failure, FerrymanError):
                with_way_back(self._runner.checkpoint, self._failure)
            raise
        finally:
            self._epoch_thread = None
        if not self._starting.over.is_set():
            self._starting.committed(sum(operator["rebuilt"] for operator in progress.operators.values()))
        self._background.committed(progress.epoch, progress.delta_bytes, progress.damaged)
        with self._changed:
            self._progress.append(progress)
            self._last_epoch_at = time.monotonic()
            self._changed.notify_all()
        self._nudge.set()
        if (reports := self._reports) is not None and self._runner.latest is not None:
            reports.committed(self._runner.latest)
        if (autoscaling := self._autoscaling) is not None:
            autoscaling.committed(progress)

    def _silence(self) -> None:
        """Let an epoch come when no data does, or when something is due."""
        while True:
            # Every epoch wakes it, as an epoch may change when the next one has to come.
            self._nudge.wait(self._silence_s())
            self._nudge.clear()
            if self._stopping or self._closed:
                return
            if self._silence_s() > SHORTEST_S or self._pending or not self._query.isActive:
                continue
            if self._query.status["isTriggerActive"] or not self._turn.acquire(blocking=False):
                continue
            try:
                self._silent_epoch(self._runner.clock.read())
            except Exception as error:
                self._failure = self._failure or as_ferryman(error, self.name)
            finally:
                self._turn.release()
            if self._failure is not None:
                # Only now: a micro-batch may be waiting for its turn, and Spark waits for the micro-batch.
                with log_off(self._spark, QUERY_LOGGER):
                    self._query.stop()
                return

    def _silence_s(self) -> float:
        """Give how long to wait for data before an epoch comes without."""
        runner = self._runner
        due = runner.due.by_clock()
        try:
            due_in_s = None if due is None else (due - runner.clock.after(runner.latest)) / 1000
        except Exception:
            # The epoch that is to come now reads the clock too, and says what is wrong with it.
            due_in_s = 0.0
        return wait_s(
            quiet_s=time.monotonic() - self._last_epoch_at,
            idle_s=self._idle_s,
            due_in_s=due_in_s,
            by_watermark=runner.due.by_watermark(),
            wanted_in_s=runner.coordinator.epoch_wanted_s,
            own_clock=runner.clock.own,
        )

    def _last_epochs(self) -> None:
        """After all data of a source that ends: what the watermark has come to, and rows that wait, are done first."""
        for _ in range(_MOST_LAST_EPOCHS):
            due = self._runner.due.by_watermark() or self._runner.coordinator.epoch_wanted_s is not None
            if self._failure is not None or self._stopping or not due:
                return
            try:
                self._silent_epoch(self._runner.clock.read())
            except Exception as error:
                self._failure = self._failure or as_ferryman(error, self.name)
                return

    # -- for the user ----------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Tell whether the job runs; once it does not, its checkpoint is free and it can be started again."""
        return not self._released

    @property
    def epoch(self) -> int:
        """Give the newest committed epoch; 0 before the first."""
        return self._runner.newest.epoch

    @property
    def started(self) -> Started:
        """Tell how far the start of this run is, or how it went: what it took, step by step, and what was restored."""
        return self._starting.look()

    def _restored(self) -> int:
        """Count the key groups whose instances have ended, while the first epoch runs."""
        layout = self._runner.coordinator.layout
        done = [receipt for data in list(layout.receipts.value) if isinstance(receipt := decode(data), Receipt)]
        sizes = np.bincount(layout.routing.owner, minlength=layout.routing.instances)
        return int(sum(sizes[receipt.instance] for receipt in done))

    def progress(self) -> list[EpochProgress]:
        """List the epochs this run has committed, oldest first."""
        with self._changed:
            return list(self._progress)

    def latency(self, epochs: int = 100) -> Latency | None:
        """Tell how long rows took from the time of their event to the commit of their epoch, in the newest epochs.

        The time of an event is what `with_watermark` names; None where nothing does, or no such row came yet. Of each
        task up to 512 rows are looked at.

        Parameters
        ----------
        epochs
            How many of the newest epochs to look at.
        """
        newest = self.progress()[-epochs:]
        return latency((epoch.committed_ms, epoch.times) for epoch in newest)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until a condition holds, looking after every epoch; tell whether it does.

        Raises the job's error if it fails meanwhile.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            active, seen = self.active, self._last_epoch_at
            # Without the lock: it may take long, and an epoch needs that to end.
            if condition():
                return True
            if not active:
                self._close()
                self._raise_failure()
                return condition()
            left_s = LOOK_S if deadline is None else min(LOOK_S, deadline - time.monotonic())
            if left_s <= 0:
                return False
            self._await_epoch_after(seen, left_s)

    def _await_epoch_after(self, seen: float, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._last_epoch_at != seen or not self.active, timeout_s)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job ends; tell whether it has. Raises the job's error if it failed."""
        with contextlib.suppress(PySparkException):
            self._query.awaitTermination(timeout)  # type: ignore[arg-type]
        if self._query.isActive:
            return False
        self._close()
        self._raise_failure()
        return True

    def state(self, operator: str) -> StateView:
        """Look into an operator's state as of the newest committed epoch."""
        return StateView(self._spark, self._runner.checkpoint, operator, self.epoch)

    # -- stopping ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """End after the epoch under way, quietly.

        Called from inside an epoch, by a sink, it returns at once and the job ends after the epoch. A job
        that has failed is stopped as well: `wait` and `exception` tell of its error.
        """
        if not self._query.isActive:
            # Of a query that is stopped nobody would ask what it had ended with.
            self.exception()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._nudge.set()
        # An epoch that a plan keeps from beginning would be waited for until everything is copied.
        self._runner.coordinator.abort(f"job {self.name!r} is stopping")
        if self._epoch_thread == asking_thread():
            threading.Thread(target=self._end, name="ferryman-stop", daemon=True).start()
            return
        self._end()
        self._close()

    def _end(self) -> None:
        with log_off(self._spark, QUERY_LOGGER):
            while self._query.isActive:
                # The next epoch, if one is coming, ends the query from inside; else nothing is under way.
                with self._turn:
                    pass
                if not self._query.status["isTriggerActive"]:
                    self._query.stop()
                with contextlib.suppress(PySparkException):
                    self._query.awaitTermination(1)

    def _close_at_end(self) -> None:
        """Give everything back when the query ends by itself, whether or not anybody waits for it."""
        with contextlib.suppress(PySparkException, Py4JError):
            self._query.awaitTermination()
        self._close()

    def _close(self) -> None:
        with self._closing:
            if self._released:
                return
            try:
                self._give_back()
            finally:
                # Whatever went wrong: nobody runs on the checkpoint any more.
                self._lock.release()
                with self._changed:
                    self._released = True
                    self._changed.notify_all()

    def _give_back(self) -> None:
        with contextlib.ExitStack() as rest:
            # What is last here comes first; and whatever fails, the rest is given back all the same.
            # The home of a run is of no use to the next one.
            rest.callback(shutil.rmtree, self._home, ignore_errors=True)
            if self._log_copy is not None:
                rest.callback(move_out, self._home)
                rest.callback(self._log_copy.keep_commits)
            rest.callback(self._runner.close)
            rest.callback(self._background.close)
            rest.callback(self._endpoint.close)
            rest.callback(self._reading.end)
            rest.callback(self._starting.end)
            if (reports := self._reports) is not None:
                rest.callback(reports.close)
            if (autoscaling := self._autoscaling) is not None:
                rest.callback(autoscaling.close)
            rest.callback(self._end_pool)
            why = f"job {self.name!r} has ended"
            # An epoch that came without data says itself how it ended; a plan must not keep it from beginning.
            self._runner.coordinator.abort(why)
            self._end_clock()
            # Before the last epochs, so that these have no row wait for anything.
            self._runner.coordinator.close(why)
            if self._once and self._query_failure() is None:
                self._last_epochs()

    def _end_clock(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._nudge.set()
        if self._clock.is_alive() and self._clock is not threading.current_thread():
            self._clock.join()

    def _query_failure(self) -> BaseException | None:
        with contextlib.suppress(Py4JError):
            return self._query.exception()
        return None

    def exception(self) -> BaseException | None:
        """Give the error that the job has failed with, as Spark's `StreamingQuery.exception` does; None if it has not.

        Nothing is raised; `wait` raises it.
        """
        if self._failure is None and not self._stopping:
            error = self._query_failure()
            if error is not None:
                # Spark may notice first that a newer run has taken over, as two write one log.
                reason = self._runner.fenced.reason(error)
                self._failure = self._unwritable(reason) or as_ferryman(reason, self.name)
        return self._failure

    def _raise_failure(self) -> None:
        error = self.exception()
        if error is not None:
            raise error

    def _unwritable(self, error: BaseException) -> CheckpointUnwritable | None:
        """Tell whether a query that ended between two epochs, where Spark writes its log, could not write it."""
        found = _UNWRITABLE.match(str(error))
        if found is None:
            return None
        refused = CheckpointUnwritable(
            f"Spark cannot write its log in {self._runner.checkpoint.directory.uri}/spark: {found[1]}. Everything "
            "committed is intact. Make the directory writable or free space, then start the job again."
        )
        refused.__cause__ = error
        return refused
