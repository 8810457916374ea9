"""Mend snapshots: write anew what of them is damaged or missing, from an older snapshot and the deltas since.

A file comes first and the list that names it after, as with a new snapshot; so a kill in between leaves what was there.
The rows are those that the file had, so nobody who reads meanwhile finds anything else. Calls `rewritten`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.mend_notes import note_mended
from ferryman._log.fold.fold import LoggedTable
from ferryman._log.fold.snapshot import listed_in_time, rewritten, write_snapshot
from ferryman._model.card import JobCard
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.snapshot import Snapshot, SnapshotFile

log = logging.getLogger("ferryman")


def mend_snapshots(
    checkpoint: Checkpoint, card: JobCard, damaged: Collection[str], look: Callable[[str], None] = lambda before: None
) -> list[str]:
    """Write anew those of some damaged files that snapshots need, and lists that cannot be read; say so, and name them.

    What cannot be had from elsewhere stays as it is. The oldest come first, as the others rest on them. That takes
    long: `look` raises `Superseded` if another run has taken over meanwhile, and then no list stays that came too late.
    """
    done: list[str] = []
    for epoch in checkpoint.snapshots():
        try:
            done += _mended(checkpoint, card, epoch, damaged, look)
        except (MissingDelta, CorruptCheckpoint) as error:
            log.warning("the snapshot of epoch %d cannot be mended now: %s", epoch, error.message)
    if done:
        note_mended(checkpoint, done)
        log.warning(
            "%s in %s: damaged or missing, and written anew from an older snapshot and the deltas since.",
            ", ".join(done),
            checkpoint.directory.uri,
        )
    return done


def _mended(
    checkpoint: Checkpoint, card: JobCard, epoch: int, damaged: Collection[str], look: Callable[[str], None]
) -> list[str]:
    try:
        snapshot = checkpoint.sound_snapshot(epoch)
    except (MissingDelta, CorruptCheckpoint):
        # Retention may just have taken it away.
        name = f"snapshots/{epoch:012d}.json"
        if not checkpoint.directory.exists(name):
            return []
        with listed_in_time(checkpoint, epoch, look) as listed:
            listed(write_snapshot(checkpoint, epoch, card))
        return [name]
    done = [file.file for files in snapshot.tables.values() for file in files if file.file in damaged]
    if done:
        with listed_in_time(checkpoint, epoch, look) as listed:
            new = Snapshot(epoch, {name: _files(checkpoint, card, snapshot, name, damaged) for name in snapshot.tables})
            if new != snapshot:
                checkpoint.publish_snapshot(new)
                listed(new)
    return done


def _files(
    checkpoint: Checkpoint, card: JobCard, snapshot: Snapshot, name: str, damaged: Collection[str]
) -> tuple[SnapshotFile, ...]:
    files = snapshot.tables[name]
    if name not in card.tables or not any(file.file in damaged for file in files):
        return files
    table = LoggedTable.of(name, card.tables[name], card.groups)
    return tuple(
        new
        for file in files
        for new in (
            rewritten(checkpoint, table, file, snapshot.epoch, snapshot.epoch) if file.file in damaged else (file,)
        )
    )
