"""The steps that only the newest run of a job may take, each after a look whether it still is.

A look is no lock: a driver may fall asleep between it and what comes next. So what comes next should be harmless by
itself if it comes too late: a manifest is created once, what a sink writes is told apart by attempt and term, and an
intent by its term. Not so the card and a newer run's intent, which a late one replaces: that takes a driver which slept
right there, and a successor that dies in that very epoch. The look keeps the time short in which that can be.
Calls `Outputs` and `Checkpoint`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.term import Term, check_term
from ferryman._model.errors import CheckpointInUse, FerrymanError, Superseded
from ferryman._model.records import JobCard, Manifest
from ferryman._spark.outputs import Outputs
from ferryman._testing.faults import reach


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
        self._card_written = checkpoint.card() == card
        self._outputs = outputs
        self._term = term

    def look(self, before: str) -> None:
        """Raise `Superseded` if another run has taken over; `before` names what comes next."""
        check_term(self._checkpoint, self._term)

    def intend(self, epoch: int, time_ms: int, **about: Any) -> None:
        """Write an epoch down before it runs, as far as no batch tells of it."""
        self.look("intent")
        self._checkpoint.intend(epoch, time_ms, term=self._term.number, **about)

    def keep_card(self) -> None:
        """Write the job's card, if it was declared anew: from the first epoch on, files are what only it describes."""
        if not self._card_written:
            self.look("card")
            self._checkpoint.create(self._card)
            self._card_written = True

    def write(self, frames: Sequence[DataFrame], epoch: int, *, silent: bool) -> dict[str, Any]:
        """Have the sinks write an epoch."""
        reach("before-sink")
        self.look("sink")
        written = self._outputs.write(frames, epoch, silent=silent)
        reach("after-sink")
        return written

    def commit(self, manifest: Manifest) -> None:
        """Commit an epoch."""
        reach("before-manifest")
        self.look("manifest")
        self.keep_card()
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
        """Take a manifest back that came when its epoch was forgotten: its deltas are gone, and nobody can read it.

        Who falls asleep between its look and its commit may wake up when retention has deleted what another run had
        committed of that epoch. So the name is free, and the manifest in its place would be taken for a damaged epoch.
        """
        files = [ref.file for refs in manifest.tables.values() for ref in refs]
        with contextlib.suppress(FerrymanError, OSError):
            if not all(self._checkpoint.directory.exists(file) for file in files):
                self._checkpoint.directory.delete([f"manifests/{manifest.epoch:012d}.json"])

    def close(self) -> None:
        """Write down that the sinks know all, if they do: then the next start may leave some of them out."""
        if (told := self._outputs.told) is not None:
            with contextlib.suppress(FerrymanError, OSError):
                # What comes too late is not believed; but it would be in the place of what a newer run has said.
                self.look("told")
                self._checkpoint.tell(told.epoch, told.term)
