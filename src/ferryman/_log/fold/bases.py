"""Read what an epoch is rebuilt from: the newest snapshot before it; of groups whose file is damaged, an older one.

What an older snapshot lacks is in the chain of deltas since, which retention keeps: it never forgets the snapshot
before the newest, nor what came after that. So it takes two faults to lose an epoch. A file that was done without is
noted (`Damage`), once everything was found elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.snapshot import Snapshot
from ferryman._state.store.contract import part_schema

if TYPE_CHECKING:
    from ferryman._log.fold.fold import LoggedTable

Groups = npt.NDArray[np.int64]
Failures = dict[str, MissingDelta | CorruptCheckpoint]

_INSTEAD = "An older snapshot is used instead, and the deltas since."


def files_of(snapshot: Snapshot) -> list[str]:
    """List the names of a snapshot's files."""
    return [file.file for files in snapshot.tables.values() for file in files]


def bases(checkpoint: Checkpoint, epoch: int, failures: Failures | None = None) -> Iterator[Snapshot]:
    """Read the lists of the snapshots at or before an epoch, newest first; those that cannot be read are left out."""
    failures = {} if failures is None else failures
    for number in reversed(checkpoint.snapshots()):
        if number > epoch:
            continue
        try:
            yield checkpoint.sound_snapshot(number)
        except (MissingDelta, CorruptCheckpoint) as error:
            failures[f"snapshots/{number:012d}.json"] = error


def parts_before(
    checkpoint: Checkpoint, table: LoggedTable, epoch: int, groups: Groups, since: int = -1
) -> Iterator[tuple[Groups, pa.Table, int]]:
    """Read key groups as of the newest epoch that a snapshot has them of, run by run of each file, with that epoch.

    Those that no snapshot has come with no rows.

    Parameters
    ----------
    epoch
        The epoch that is wanted; the deltas after what is given, up to that one, are there.
    since
        Only what is newer than this epoch is any use.
    """
    failures: Failures = {}
    listed, left = checkpoint.epochs(), groups
    for base in bases(checkpoint, epoch, failures):
        if base.epoch <= since or not len(left) or not _has_chain(listed, base.epoch, epoch):
            break
        unread = []
        for file in base.tables.get(table.name, ()):
            inside = (left >= file.first) & (left <= file.last)
            if not inside.any():
                continue
            unsure = left[inside]
            try:
                for within, part in table.read_runs(checkpoint, file, unsure):
                    yield within, part, base.epoch
                    unsure = np.setdiff1d(unsure, within)
            except (MissingDelta, CorruptCheckpoint) as error:
                failures[file.file] = error
                unread.append(unsure)
            left = left[~inside]
        if len(left):
            yield left, part_schema(table.key, table.state).empty_table(), base.epoch
        left = np.concatenate(unread) if unread else left[:0]
    if len(left):
        if since >= 0 or not _has_chain(listed, 0, epoch):
            raise next(iter(failures.values()), _gone(checkpoint, listed, epoch))
        yield left, part_schema(table.key, table.state).empty_table(), 0
    note_damage(checkpoint, failures)


def note_damage(checkpoint: Checkpoint, failures: Failures) -> None:
    """Note the files of snapshots that were done without, unless retention has taken the snapshot away meanwhile."""
    if not failures:
        return
    named = {name for snapshot in bases(checkpoint, 1 << 62) for name in files_of(snapshot)}
    for file, error in failures.items():
        if file in named or (file.endswith(".json") and checkpoint.directory.exists(file)):
            checkpoint.damage.note(file, error, _INSTEAD)


def _has_chain(listed: Sequence[int], after: int, epoch: int) -> bool:
    """Tell whether the manifests between two epochs are kept, as far as a listing tells."""
    return after == epoch or (bool(listed) and listed[0] <= after + 1 and listed[-1] >= epoch)


def _gone(checkpoint: Checkpoint, listed: Sequence[int], epoch: int) -> MissingDelta:
    after = max((number for number in checkpoint.snapshots() if number <= epoch), default=0)
    return MissingDelta(
        f"epoch {epoch} of {checkpoint.directory.uri} cannot be rebuilt: it needs the deltas of epochs "
        f"{after + 1} to {epoch}, and the manifests kept are {listed[:1] or 'none'} to {listed[-1:] or 'none'}."
        " Ask for an epoch inside the retention."
    )
