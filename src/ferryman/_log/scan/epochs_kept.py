"""Which epochs a reader can ask for, and what it is told when the one it wants is not kept, or not any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.errors import MissingDelta


def epoch_to_read(checkpoint: Checkpoint, asked: int | None) -> int:
    """Give the epoch that was asked for, if it is kept; the newest where none was, and 0 before the first."""
    kept = checkpoint.epochs()
    if asked is None:
        return kept[-1] if kept else 0
    if asked in kept:
        return asked
    raise MissingDelta(f"epoch {asked} of {checkpoint.directory.uri} is not kept: {_those(kept)}.")


def epochs_to_read(checkpoint: Checkpoint, first: int, last: int | None) -> tuple[int, int]:
    """Give the first and the last epoch of changes that were asked for, if all of them are kept.

    Whoever comes back for what is new may ask for the epoch after the newest: there is nothing in it yet.
    """
    kept = checkpoint.epochs()
    newest = kept[-1] if kept else 0
    last = newest if last is None else last
    if last > newest or first > newest + 1 or (first <= newest and first not in kept):
        raise MissingDelta(
            f"the changes of epochs {first} to {max(first, last)} of {checkpoint.directory.uri} are not all kept: "
            f"{_those(kept)}. Read the state of the oldest first, and go on with the changes after it."
        )
    return first, last


@contextmanager
def while_kept(checkpoint: Checkpoint, oldest: int) -> Iterator[None]:
    """Have a reader whose epoch went in the middle say so: the job that runs has moved on, and nothing is damaged."""
    try:
        yield
    except MissingDelta as error:
        kept = checkpoint.epochs()
        if not kept or oldest >= kept[0]:
            raise
        raise MissingDelta(
            f"epoch {oldest} of {checkpoint.directory.uri} fell out of the retention before it was read: {_those(kept)}"
            ". Load it again, which takes the newest; Ferry(..., retain=) says how many epochs are kept."
        ) from error


def _those(kept: list[int]) -> str:
    return f"the epochs kept are {kept[0]} to {kept[-1]}" if kept else "it has no epoch yet"
