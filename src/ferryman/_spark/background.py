"""Snapshots and retention, off the epoch's path: one thread of low priority in the driver."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.retention import prune
from ferryman._log.snapshot import write_snapshot
from ferryman._model.errors import FerrymanError, Superseded
from ferryman._model.records import Snapshot

log = logging.getLogger("ferryman")


class Background:
    """Fold delta chains when they are long enough, then forget what is too old.

    A snapshot is due after `every` epochs if the deltas since the last one weigh at least a quarter of
    it, so that a large state with small changes is not written again and again; after ten times as
    many epochs it is due in any case, as a chain must not grow without bound.
    """

    def __init__(self, checkpoint: Checkpoint, *, every: int, retain: int, look: Callable[[str], None]) -> None:
        self._checkpoint = checkpoint
        self._look = look
        self._every = every
        self._retain = retain
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
        behind = self._epoch - self._last
        return behind >= self._every and (4 * self._chain >= self._weight or behind >= 10 * self._every)

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
                snapshot = fold_all(self._checkpoint, epoch, self._look)
                self._last, self._weight = epoch, snapshot.bytes
                prune(self._checkpoint, epoch - self._retain)
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


def fold_all(checkpoint: Checkpoint, epoch: int, look: Callable[[str], None]) -> Snapshot:
    """Write a snapshot, as long as this run is the newest: `look` raises `Superseded` if it is not."""
    look("snapshot")
    snapshot = write_snapshot(checkpoint, epoch)
    try:
        look("retention")
    except Superseded:
        _withdraw(checkpoint, epoch)
        raise
    return snapshot


def _withdraw(checkpoint: Checkpoint, epoch: int) -> None:
    """Take a snapshot back that was listed after its files were deleted: whoever took over may have tidied up."""
    with contextlib.suppress(FerrymanError, OSError):
        files = [one.file for ones in checkpoint.snapshot(epoch).tables.values() for one in ones]
        if not all(checkpoint.directory.exists(file) for file in files):
            checkpoint.directory.delete([f"snapshots/{epoch:012d}.json"])
