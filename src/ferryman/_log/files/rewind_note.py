"""The note of a rewind that is under way (`rewind.json`): while it is there, no job starts."""

from __future__ import annotations

import contextlib
import shlex

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.errors import RewindUnfinished
from ferryman._model.rewind import Rewind

REWIND = "rewind.json"


def unfinished_rewind(checkpoint: Checkpoint) -> Rewind | None:
    """Give the rewind that was begun and is not done; None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        return checkpoint.record(REWIND, Rewind.parse)
    return None


def how_to_finish(checkpoint: Checkpoint, rewind: Rewind) -> str:
    """Name the command that finishes a rewind."""
    where = shlex.quote(checkpoint.directory.uri)
    return f"Run `ferryman rewind {where} --to-epoch {rewind.to}` again, which finishes it"


def refuse_unfinished_rewind(checkpoint: Checkpoint) -> None:
    """Refuse a start on a checkpoint that is on its way back to an epoch."""
    if (rewind := unfinished_rewind(checkpoint)) is not None:
        raise RewindUnfinished(
            f"{checkpoint.directory.uri} is on its way back to epoch {rewind.to}, and not there yet. "
            f"{how_to_finish(checkpoint, rewind)}; then start the job."
        )
