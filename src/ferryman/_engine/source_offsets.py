"""What of the source an epoch covers: its offsets, its files, and Spark's own log of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from ferryman._engine.newest_epoch import Newest
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.spark_log.file_order import files_by_age, hashes
from ferryman._log.spark_log.log_files import SparkLogKeeper, values_of
from ferryman._model.spark_log import SparkLog


class Covered:
    """What one epoch covers.

    Parameters
    ----------
    log
        Gives what Spark has written of the epoch's batch, or waits for it; None for an epoch without data, which ends
        where the one before it does.
    """

    def __init__(self, checkpoint: Checkpoint, newest: Newest, batch: int, log: Callable[[], SparkLog] | None) -> None:
        self._checkpoint = checkpoint
        self._before = newest.covered
        self._batch = batch
        self._log = log

    def read(self) -> tuple[tuple[Any, ...], SparkLog]:
        """Give the offsets that the epoch ends with, and what Spark wrote of them."""
        if self._log is None:
            return self._before
        log = self._log()
        return values_of(log.offsets.get(self._batch, "")), log

    def files(self) -> tuple[int, ...]:
        """Name the files of the epoch, oldest first, if there are several: their rows have to be put in order."""
        if self._log is None:
            return ()
        paths = files_by_age(self._checkpoint, self._before[0], self.read()[0])
        return hashes(paths) if len(paths) > 1 else ()


class Coverage(Protocol):
    """Who knows what an epoch covers."""

    def covered(self, batch: int, newest: Newest, *, silent: bool) -> Covered:
        """Begin to find out what an epoch covers."""

    def close(self) -> None:
        """Let go of what was held."""


class SparkCoverage:
    """Read Spark's log beside the epoch; with `sync`, see that what it says stays."""

    def __init__(self, checkpoint: Checkpoint, *, sync: bool) -> None:
        self._checkpoint = checkpoint
        self._keeper = SparkLogKeeper(checkpoint, sync=sync)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="ferryman-offsets")

    def covered(self, batch: int, newest: Newest, *, silent: bool) -> Covered:
        """Begin to read what Spark has written of a batch."""
        taken: Future[SparkLog] | None = None
        if not silent:
            taken = self._reader.submit(self._keeper.take, batch, newest.manifest)
        return Covered(self._checkpoint, newest, batch, None if taken is None else taken.result)

    def close(self) -> None:
        """End the reader."""
        self._reader.shutdown(wait=False)
