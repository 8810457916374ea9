"""Snapshots, their mending, and retention, off the epoch's path: one thread of low priority in the driver."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection

from ferryman._engine.job_options import SnapshotOptions
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.bases import Failures, bases
from ferryman._log.fold.mains import Mains, write_snapshot_of_mains
from ferryman._log.fold.mend_snapshots import mend_snapshots
from ferryman._log.fold.retention import oldest_retained, prune
from ferryman._log.fold.snapshot import write_fenced_snapshot
from ferryman._log.fold.snapshot_due import is_snapshot_due
from ferryman._model.card import JobCard
from ferryman._model.errors import CorruptCheckpoint, MissingDelta, Superseded
from ferryman._model.snapshot import Snapshot

log = logging.getLogger("ferryman")


class Background:
    """Fold delta chains when they are long enough, then forget what is too old; mend what is damaged. The log says so.

    Parameters
    ----------
    card
        The job as this run declares it.
    options
        The job's.
    look
        Raises `Superseded` if another run has taken over.
    mains
        Main copies within reach, to make a snapshot of where deltas are damaged; None if there are none.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        card: JobCard,
        options: SnapshotOptions,
        *,
        look: Callable[[str], None],
        mains: Mains | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._card = card
        self._look = look
        self._mains = mains
        self._options = options
        unread: Failures = {}
        newest = next(bases(checkpoint, 1 << 62, unread), None)
        self._last = newest.epoch if newest else 0
        self._weight = newest.bytes if newest else 0
        self._damaged = set(unread)
        # What could not be mended, and is tried again after the next epoch.
        self._put_off: set[str] = set()
        self._chain = 0
        self._epoch = 0
        self._wake = threading.Condition()
        self._closed = False
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="ferryman-snapshots", daemon=True)
        self._thread.start()

    def committed(self, epoch: int, delta_bytes: int, damaged: Collection[str] = ()) -> None:
        """Learn of a committed epoch, and of the files that its tasks had to do without."""
        with self._wake:
            self._epoch = epoch
            self._chain += delta_bytes
            self._damaged.update(damaged, self._put_off)
            self._put_off.clear()
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
                self._wake.wait_for(lambda: self._closed or self._due() or (self._epoch and self._damaged))
                if self._closed:
                    return
                epoch, due = self._epoch, self._due()
                self._chain = 0 if due else self._chain
            try:
                self._mend()
                if due:
                    snapshot = self._snapshot(epoch)
                    self._last, self._weight = snapshot.epoch, snapshot.bytes
                    # Making one reads the one before.
                    self._mend()
                    self._look("forgetting")
                    prune(self._checkpoint, oldest_retained(epoch, self._options.retain))
                self.failure = None
            except Superseded:
                return
            except Exception as error:
                # The stream does not need the snapshot; it only costs a longer chain until the next one.
                self.failure = error
                self._last = epoch if due else self._last
                log.warning("snapshot of epoch %d failed and will be tried again later: %s", epoch, error)

    def _snapshot(self, epoch: int) -> Snapshot:
        """Fold the deltas; where one is damaged that nothing covers yet, take main copies, which have it in them."""
        try:
            return write_fenced_snapshot(self._checkpoint, self._card, epoch, self._look)
        except (MissingDelta, CorruptCheckpoint) as error:
            if (mains := self._mains) is None:
                raise
            log.warning("%s A snapshot is made of main copies, which have what it had.", error.message)

            def of_mains(checkpoint: Checkpoint, epoch: int, card: JobCard) -> Snapshot:
                return write_snapshot_of_mains(checkpoint, card, mains)

            return write_fenced_snapshot(self._checkpoint, self._card, epoch, self._look, of_mains)

    def _mend(self) -> None:
        """Write anew what of the snapshots was found damaged, here or by tasks."""
        with self._wake:
            damaged, self._damaged = {*self._damaged, *self._checkpoint.damage.take()}, set()
        if not damaged:
            return
        try:
            self._look("mending")
            self._checkpoint.keep_card(self._card)
            mend_snapshots(self._checkpoint, self._card, damaged, self._look)
        except Exception:
            with self._wake:
                self._put_off |= damaged
            raise

    def close(self) -> None:
        """End after the work under way."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
