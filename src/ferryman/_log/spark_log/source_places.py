"""Make room in Spark's log for sources that a job did not have before, and see what it has of those that are left out.

Spark writes the offsets of a query's sources line by line, in their order, and refuses to go on with more sources than
there are lines. A dash stands for a source of which nothing was read yet. Only a job that holds the checkpoint, and has
taken its term, may write here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.spark_log.log_files import batches, beside, text_of
from ferryman._model.card import SourceCard
from ferryman._model.errors import SourcesChanged

_NOTHING = "-"
# The version, and what Spark says of the batch.
_BEFORE_OFFSETS = 2
# What a source that is left out, and of which nothing was read, says of its offset: Spark wants some from each.
UNREAD = '{"unread": true}'


def same_but_for_new_sources(found: str, known: str) -> bool:
    r"""Tell whether some offsets are those that are known, and dashes after them.

    Examples
    --------
    >>> known = "v1\n{}\n5"
    >>> same_but_for_new_sources("v1\n{}\n5\n-", known), same_but_for_new_sources("v1\n{}\n6", known)
    (True, False)
    """
    # One that was left out before anything was read of it may be back.
    found, known = found.replace(UNREAD, _NOTHING), known.replace(UNREAD, _NOTHING)
    more = found.removeprefix(known)
    return found.startswith(known) and more == f"\n{_NOTHING}" * (len(more) // 2)


def offsets_read(checkpoint: Checkpoint) -> list[str] | None:
    """Give the offsets, as Spark wrote them, of the newest micro-batch that has begun; None if there is none."""
    begun = batches(checkpoint, "offsets")
    return _lines(checkpoint, begun[0])[_BEFORE_OFFSETS:] if begun else None


def make_room(
    checkpoint: Checkpoint, places: Sequence[SourceCard], left_out: Sequence[SourceCard], covered: int
) -> list[list[str]]:
    """Let Spark's log have a line for every source; give the offsets of those that are left out.

    `covered` is the last micro-batch that a manifest covers.

    Raises
    ------
    SourcesChanged
        If an epoch has begun, and is not committed, with rows of a source that is left out: it is to be done again with
        the very same rows.
    """
    begun = batches(checkpoint, "offsets")
    total = sum(source.leaves for source in places)
    texts = {batch: _lines(checkpoint, batch) for batch in begun[:2]}
    if begun and begun[0] > covered:
        before = texts[begun[1]][_BEFORE_OFFSETS:] if len(begun) > 1 else []
        _refuse_half_done(texts[begun[0]][_BEFORE_OFFSETS:], before, places, left_out, checkpoint)
    gone = {source.name for source in left_out}
    there = [number for number, source in _numbered(places) if source.name not in gone]
    for batch, lines in texts.items():
        name, offsets = f"spark/offsets/{batch}", lines[_BEFORE_OFFSETS:]
        offsets += [_NOTHING] * (total - len(offsets))
        for number in there:
            if offsets[number] == UNREAD:
                offsets[number] = _NOTHING
        if [*lines[:_BEFORE_OFFSETS], *offsets] != lines:
            checkpoint.directory.delete([beside(name)])
            checkpoint.directory.write(name, "\n".join([*lines[:_BEFORE_OFFSETS], *offsets]).encode())
    newest = texts[begun[0]][_BEFORE_OFFSETS:] if begun else []
    newest += [_NOTHING] * (total - len(newest))
    return [
        [
            UNREAD if newest[number] == _NOTHING else newest[number]
            for number, other in _numbered(places)
            if other == source
        ]
        for source in left_out
    ]


def _refuse_half_done(
    begun: Sequence[str],
    before: Sequence[str],
    places: Sequence[SourceCard],
    left_out: Sequence[SourceCard],
    checkpoint: Checkpoint,
) -> None:
    gone = {source.name for source in left_out}
    for number, source in _numbered(places):
        was = before[number] if number < len(before) else _NOTHING
        if source.name in gone and number < len(begun) and _value(begun[number]) != _value(was):
            raise SourcesChanged(
                f"source {source.name!r} is left out, and an epoch that was begun in {checkpoint.directory.uri} and "
                "not committed has rows of it: it has to be done again with the very same rows. Start the job once "
                "more with that source, stop it (job.stop()), and then leave the source out."
            )


def _value(offset: str) -> Any:
    """Read an offset, which may be written in several ways."""
    try:
        return None if offset in (_NOTHING, UNREAD) else json.loads(offset)
    except (ValueError, RecursionError):
        return offset


def _numbered(places: Sequence[SourceCard]) -> list[tuple[int, SourceCard]]:
    """Give each of Spark's sources its number, with the source of the job that it belongs to."""
    return list(enumerate(source for source in places for _ in range(source.leaves)))


def _lines(checkpoint: Checkpoint, batch: int) -> list[str]:
    return (text_of(checkpoint, f"spark/offsets/{batch}") or "").split("\n")
