"""Snapshots and retention, off the epoch's path: one thread of low priority in the driver."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable

from ferryman._engine.job_options import SnapshotOptions
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.retention import oldest_retained, prune
from ferryman._log.fold.snapshot import write_fenced_snapshot
from ferryman._log.fold.snapshot_due import is_snapshot_due
from ferryman._model.card import JobCard
from ferryman._model.errors import Superseded

log = logging.getLogger("ferryman")


class Background:
    """Fold delta chains when they are long enough, then forget what is too old; the log says when that is.

    Parameters
    ----------
    card
        The job as this run declares it.
    options
        The job's.
    look
        Raises `Superseded` if another run has taken over.
    """

    def __init__(
        self, checkpoint: Checkpoint, card: JobCard, options: SnapshotOptions, *, look: Callable[[str], None]
    ) -> None:
        self._checkpoint = checkpoint
        self._card = card
        self._look = look
        self._options = options
        snapshots = checkpoint.snapshots()
        self._last = snapshots[-1] if snapshots else 0
        self._weight = checkpoint.snapshot(self._last).bytes if snapshots else 0
        self._chain = 0
        self._epoch = 0
        self._wake = threading.Condition()
        self._closed = False
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="ferryman-snapshots", daemon=True)
        self._thread.start()

    def committed(self, epoch: int, delta_bytes: int) -> None:
        """Learn of a committed epoch."""
        with self._wake:
            self._epoch = epoch
            self._chain += delta_bytes
            self._wake.notify()

    def _due(self) -> bool:
        return is_snapshot_due(
            epochs=self._epoch - self._last,
            every=self._options.snapshot_every,
            delta_bytes=self._chain,
            snapshot_bytes=self._weight,
        )

    def _work(self) -> None:
        # A thread has a priority of its own on Linux; elsewhere it keeps the process's.
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._due())
                if self._closed:
                    return
                epoch, self._chain = self._epoch, 0
            try:
                snapshot = write_fenced_snapshot(self._checkpoint, self._card, epoch, self._look)
                self._last, self._weight = epoch, snapshot.bytes
                prune(self._checkpoint, oldest_retained(epoch, self._options.retain))
                self.failure = None
            except Superseded:
                return
            except Exception as error:
                # The stream does not need the snapshot; it only costs a longer chain until the next one.
                self.failure = error
                self._last = epoch
                log.warning("snapshot of epoch %d failed and will be tried again later: %s", epoch, error)

    def close(self) -> None:
        """End after the work under way."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
