"""A running job: Spark's query, the epochs, silent epochs, stopping, and a view on progress and state."""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ferryman._log.agreement import pending_batch
from ferryman._log.lock import CheckpointLock
from ferryman._log.term import check_term
from ferryman._model.errors import (
    CheckpointUnwritable,
    InvalidConfiguration,
    Superseded,
)
from ferryman._spark.background import Background
from ferryman._spark.changing import Changing
from ferryman._spark.controlled import Controlled
from ferryman._spark.epoch import EpochRunner
from ferryman._spark.failures import as_ferryman, as_spark
from ferryman._spark.home import home
from ferryman._spark.progress import EpochProgress
from ferryman._spark.query import QueryNames
from ferryman._spark.reading import ReadAsBegun
from ferryman._spark.state import StateView
from ferryman._spark.stream import Source

# How Spark tells that its own log could not be written: in the first line of what the query ended with.
_UNWRITABLE = re.compile(r".*(No space left on device|Read-only file system|Permission denied|Disk quota exceeded)")


# How long the clock sleeps at the least, and at the most.
_SHORTEST_S = 0.05
_LONGEST_S = 60.0
_LOOK_S = 0.2
# A timer may set another one that is due at once, but not for ever.
_MOST_LAST_EPOCHS = 100


class _Stopping(Exception):
    """Ends Spark's query from inside: raised instead of an epoch when the job is to stop."""


class Job(Changing, QueryNames):
    """One Structured Streaming query under Ferryman; `Ferry.start` makes it."""

    def __init__(
        self,
        name: str,
        spark: SparkSession,
        source: Source,
        runner: EpochRunner,
        background: Background,
        lock: CheckpointLock,
        *,
        home_base: str | None,
        idle_s: float | None,
        trigger: dict[str, Any],
    ) -> None:
        self.name = name
        self._spark = spark
        self._source = source
        self._runner = runner
        self._background = background
        self._lock = lock
        self._home = home(runner.checkpoint.directory.address, runner.run_id, home_base)
        self._once = bool(trigger.get("availableNow") or trigger.get("once"))
        self._idle_s = idle_s
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
        # Not the condition: whoever wakes the clock may hold a lock that a user's condition waits for.
        self._nudge = threading.Event()
        runner.changes.wake = self._nudge.set
        self._reading = ReadAsBegun(spark, runner.term.redo, runner.term.reading)
        try:
            self._query = self._begin(trigger)
        except BaseException:
            self._reading.end()
            raise
        self._clock = threading.Thread(target=self._silence, name="ferryman-idle", daemon=True)
        if not self._once:
            self._clock.start()
        self._control = Controlled(self)
        self._watch = threading.Thread(target=self._close_at_end, name="ferryman-watch", daemon=True)
        self._watch.start()

    # -- starting --------------------------------------------------------------------------------

    def _begin(self, trigger: dict[str, Any]) -> StreamingQuery:
        self._runner.outputs.begin()
        begun = self._runner.begun
        if begun is not None and begun.silent:
            # A silent epoch was under way when the driver died: it comes first, just as it was begun.
            self._silent_epoch(begun.time_ms)
            self._reading.end()
        spark_side = f"{self._runner.checkpoint.directory.spark_uri}/spark"
        # No silent epoch may come before a micro-batch that Spark will begin by doing again.
        self._pending = pending_batch(self._runner.checkpoint) is not None
        writer = self._source.frame.writeStream.foreachBatch(self._batch).queryName(self.name)
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
                if batch > self._runner.batch:
                    clock, log = self._runner.clock, self._runner.checkpoint
                    self._epoch(
                        lambda: self._runner.run(frame, batch, silent=False, time_ms=clock.of_batch(log, batch))
                    )
                self._reading.done(self.epoch, frame)
            except Exception as error:
                # Spark learns of it in its own words; the job has the error itself.
                raise as_spark(error, self.name) from None

    def _silent_epoch(self, time_ms: int) -> None:
        empty = self._silent_session.createDataFrame([], self._source.schema)
        self._epoch(lambda: self._runner.run(empty, self._runner.batch, silent=True, time_ms=time_ms))

    def _epoch(self, run: Callable[[], EpochProgress]) -> None:
        self._epoch_thread = threading.get_ident()
        try:
            progress = run()
        except Exception as error:
            self._failure = as_ferryman(error, self.name)
            raise
        finally:
            self._epoch_thread = None
        self._background.committed(progress.epoch, progress.delta_bytes)
        with self._changed:
            self._progress.append(progress)
            self._last_epoch_at = time.monotonic()
            self._changed.notify_all()
        self._nudge.set()

    def _silence(self) -> None:
        """Let an epoch come when no data does, or when something is due."""
        while True:
            # Every epoch wakes it, as an epoch may change when the next one has to come.
            self._nudge.wait(self._silence_s())
            self._nudge.clear()
            if self._stopping or self._closed:
                return
            if self._silence_s() > _SHORTEST_S or self._pending or not self._query.isActive:
                continue
            if self._query.status["isTriggerActive"] or not self._turn.acquire(blocking=False):
                continue
            try:
                now = self._runner.clock.read()
                self._runner.intend(now)
                self._silent_epoch(now)
            except Exception as error:
                self._failure = self._failure or as_ferryman(error, self.name)
            finally:
                self._turn.release()
            if self._failure is not None:
                # Only now: a micro-batch may be waiting for its turn, and Spark waits for the micro-batch.
                with _quiet(self._spark):
                    self._query.stop()
                return

    def _silence_s(self) -> float:
        """Give how long to wait for data before an epoch comes without."""
        quiet = time.monotonic() - self._last_epoch_at
        left = _LONGEST_S if self._idle_s is None else self._idle_s - quiet
        due = self._runner.due_by_clock()
        if due is not None:
            try:
                left = min(left, (due - self._runner.clock.after(self._runner.latest)) / 1000)
            except Exception:
                # The epoch that is to come now reads the clock too, and says what is wrong with it.
                left = 0.0
        wanted = 0.0 if self._runner.due_by_watermark() else self._runner.changes.epoch_wanted_s
        left = left if wanted is None else min(left, wanted)
        # A clock of the user's own may run at any pace, so it has to be looked at.
        return min(max(left, _SHORTEST_S), _LOOK_S if due is not None and self._runner.clock.own else _LONGEST_S)

    def _last_epochs(self) -> None:
        """After all data of a source that ends: what the watermark has come to, and rows that wait, are done first."""
        for _ in range(_MOST_LAST_EPOCHS):
            due = self._runner.due_by_watermark() or self._runner.changes.epoch_wanted_s is not None
            if self._failure is not None or self._stopping or not due:
                return
            try:
                now = self._runner.clock.read()
                self._runner.intend(now)
                self._silent_epoch(now)
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
        return self._runner.next - 1

    def progress(self) -> list[EpochProgress]:
        """List the epochs this run has committed, oldest first."""
        with self._changed:
            return list(self._progress)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until a condition holds, looking after every epoch; tell whether it does.

        Raises the job's error if it fails meanwhile.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                met = self._changed.wait_for(lambda: condition() or not self.active, timeout=0.2)
            if met and condition():
                return True
            if not self.active:
                self._close()
                self._raise_failure()
                return condition()
            if deadline is not None and time.monotonic() > deadline:
                return condition()

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

        Called from inside an epoch, by a sink's function, it returns at once and the job ends after the epoch. A job
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
        self._runner.changes.abort(f"job {self.name!r} is stopping")
        if self._epoch_thread == threading.get_ident():
            threading.Thread(target=self._end, name="ferryman-stop", daemon=True).start()
            return
        self._end()
        self._close()

    def _end(self) -> None:
        with _quiet(self._spark):
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
            rest.callback(self._runner.close)
            rest.callback(self._background.close)
            rest.callback(self._control.close)
            rest.callback(self._reading.end)
            rest.callback(self._end_clock)
            # Before the last epochs, so that these have no row wait for anything.
            self._runner.changes.close(f"job {self.name!r} has ended")
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
                self._failure = self._superseded(error) or self._unwritable(error) or as_ferryman(error, self.name)
        return self._failure

    def _raise_failure(self) -> None:
        error = self.exception()
        if error is not None:
            raise error

    def _superseded(self, error: BaseException) -> Superseded | None:
        """Tell whether a newer run has taken over: Spark may notice it first, as two write one log."""
        try:
            check_term(self._runner.checkpoint, self._runner.term)
        except Superseded as taken:
            taken.__cause__ = error
            return taken
        return None

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


@contextlib.contextmanager
def _quiet(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from logging the end of a query as an error while we end it on purpose."""
    jvm: Any = spark.sparkContext._jvm
    name = "org.apache.spark.sql.execution.streaming"
    log4j = jvm.org.apache.logging.log4j
    before = log4j.LogManager.getLogger(name).getLevel()
    log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(name, before)
