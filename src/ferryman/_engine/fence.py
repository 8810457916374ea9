"""The steps that only the newest run of a job may take, all but the first after a look whether it still is.

A look is no lock: a driver may fall asleep between it and what comes next. So what comes next should be harmless by
itself if it comes too late: a manifest is created once, what a sink writes is told apart by attempt and term, and an
intent is in a file of its term. Not so the card and what is noted of sinks that were told, which are one for all runs.
A late note is not believed. A late card nobody in the newest run goes by: its tasks, its snapshots and its state hosts
have the run's own, and that is put back with the first epoch and with every snapshot. Until then readers see the late
one; the look keeps the time short in which it can come. Calls `Outputs` and `Checkpoint`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from ferryman._engine.executor import Frame, SideBySide
from ferryman._engine.outputs import Outputs
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.term import Term, check_term
from ferryman._model.card import JobCard
from ferryman._model.errors import CheckpointInUse, FerrymanError, MissingDelta, Superseded
from ferryman._model.manifest import Manifest
from ferryman._os.faults import reach


class Fenced:
    """What one run writes, as long as it is the newest.

    Parameters
    ----------
    card
        What the run declares; written with its first epoch where the checkpoint has another.
    outputs
        The run's own.
    term
        The run's own.
    """

    def __init__(self, checkpoint: Checkpoint, card: JobCard, outputs: Outputs, term: Term) -> None:
        self._checkpoint = checkpoint
        self._card = card
        self._card_kept = False
        self._outputs = outputs
        self._term = term

    def begin(self) -> None:
        """Tell the sinks that the run begins, and where the job stands; without a look, as its term was just taken."""
        self._outputs.begin()

    def look(self, before: str) -> None:
        """Raise `Superseded` if another run has taken over; `before` names what comes next."""
        check_term(self._checkpoint, self._term)

    def reason(self, error: BaseException) -> BaseException:
        """Give why a run has failed: whatever happens to one that was taken over comes of that.

        Who took over has written where the run writes, and forgotten what it reads.
        """
        try:
            self.look("reason")
        except Superseded as taken:
            taken.__cause__ = error
            return taken
        except (FerrymanError, OSError):
            # The checkpoint cannot be read: then that is what it failed with, or comes next.
            return error
        return error

    def intend(self, epoch: int, time_ms: int, **about: Any) -> None:
        """Write an epoch down before it runs, as far as no batch tells of it."""
        self.look("intent")
        self._checkpoint.intend(epoch, time_ms, term=self._term.number, **about)

    def write(self, frames: Sequence[Frame], epoch: int, *, silent: bool, side_by_side: SideBySide) -> dict[str, Any]:
        """Have the sinks write an epoch; as its tasks may take long, look again before users' code is called."""

        def then_look(calls: Sequence[Callable[[], object]]) -> None:
            side_by_side(calls)
            if calls:
                self.look("sink")

        reach("before-sink")
        self.look("sink")
        written = self._outputs.write(frames, epoch, silent=silent, side_by_side=then_look)
        reach("after-sink")
        return written

    def commit(self, manifest: Manifest) -> None:
        """Commit an epoch."""
        reach("before-manifest")
        self.look("manifest")
        if not self._card_kept:
            # Not before there is an epoch: from now on files are what only it describes.
            self._checkpoint.keep_card(self._card)
            self._card_kept = True
        try:
            self._checkpoint.commit(manifest)
        except CheckpointInUse:
            # It fell asleep after the look, and who took over has committed the epoch: say so.
            self.look("manifest")
            raise

    def tell(self, manifest: Manifest) -> None:
        """Tell the sinks that an epoch is committed."""
        reach("after-manifest")
        # Whoever has taken over has told them, or will: the checkpoint may have been restored before that.
        try:
            self.look("telling")
        except Superseded:
            self._withdraw(manifest)
            raise
        self._outputs.tell(manifest)

    def _withdraw(self, manifest: Manifest) -> None:
        """Take a manifest back that came when its epoch was forgotten, or the job was taken back to before it.

        Who falls asleep between its look and its commit may wake up when retention, or a rewind, has deleted the epoch
        and its deltas. So the name is free, and the manifest in its place would be taken for a damaged epoch, or for
        the next of an epoch that it knows nothing of. Only its own: where a backup was restored since, the name may be
        that of the epoch done again.
        """
        files = [ref.file for refs in manifest.tables.values() for ref in refs]
        with contextlib.suppress(FerrymanError, OSError):
            own = self._checkpoint.manifest(manifest.epoch).term == self._term.number
            kept = self._checkpoint.epochs()
            # Retention leaves no gap. An epoch without data has no deltas by which one could tell.
            alone = manifest.epoch < max(kept, default=0) and manifest.epoch + 1 not in kept
            whole = not alone and all(map(self._checkpoint.directory.exists, files))
            if own and not (whole and self._follows(manifest)):
                self._checkpoint.directory.delete([f"manifests/{manifest.epoch:012d}.json"])

    def _follows(self, manifest: Manifest) -> bool:
        """Tell whether the epoch before is there, and not of a newer run; or retention has deleted that since."""
        if manifest.epoch == 1 or max(self._checkpoint.snapshots(), default=0) >= manifest.epoch:
            return True
        try:
            return self._checkpoint.manifest(manifest.epoch - 1).term <= manifest.term
        except MissingDelta:
            return False

    def close(self) -> None:
        """Write down that the sinks know all, if they do: then the next start may leave some of them out."""
        self._outputs.close()
        if (told := self._outputs.told) is not None:
            with contextlib.suppress(FerrymanError, OSError):
                # What comes too late is not believed; but it would be in the place of what a newer run has said.
                self.look("told")
                self._checkpoint.tell(told.epoch, told.term)
