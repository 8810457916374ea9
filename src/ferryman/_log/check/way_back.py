"""Say how to go on where an epoch is lost: the newest that can be had, and the command that goes back to it."""

from __future__ import annotations

import shlex
from typing import TypeVar

from ferryman._log.check.timeline import Timeline
from ferryman._log.check.ways import newest_to_be_had
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.errors import CorruptCheckpoint, FerrymanError, MissingDelta

E = TypeVar("E", bound=FerrymanError)


def back_to(checkpoint: Checkpoint, epoch: int) -> str:
    """Name the newest epoch that can be had, and the command that goes back to it."""
    return (
        f"the newest epoch that can be had is {epoch}, and `ferryman rewind {shlex.quote(checkpoint.directory.uri)} "
        f"--to-epoch {epoch}` goes back to it."
    )


def with_way_back(checkpoint: Checkpoint, error: E) -> E:
    """Add to an error that a file is damaged or missing how to go on without it, if an older epoch can be had.

    An error that has nothing to do with epochs stays as it is, and so does one where everything can be read again.
    """
    if not isinstance(error, (CorruptCheckpoint, MissingDelta)):
        return error
    try:
        card = checkpoint.job_card()
        timeline = Timeline.read(checkpoint, card)
        newest = newest_to_be_had(checkpoint, timeline, card)
    except (FerrymanError, OSError):
        # Nothing can be said, but what is wrong already.
        return error
    if timeline.epochs and newest != timeline.epochs[-1]:
        way = "no epoch that is kept can be had." if newest is None else back_to(checkpoint, newest)
        error.message = f"{error.message} Without it, {way}"
        error.args = (error.message,)
    return error
