"""The epochs of a checkpoint as its manifests and lists of snapshots tell them: which are kept, what each needs.

Reads only these small files. Which of the files they name are sound is found elsewhere and noted here.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from ferryman._log.files.checkpoint import Checkpoint, is_number
from ferryman._log.files.contradictions import manifest_contradiction, snapshot_contradiction
from ferryman._model.card import JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.held_rows import HeldRows
from ferryman._model.manifest import Manifest
from ferryman._model.snapshot import Snapshot, SnapshotFile

# So many manifests may be missing for each of them to be named as a fault.
MOST_MISSING = 10_000

# What is wrong with a file, and not with the store that it is in.
_DAMAGES = (CorruptCheckpoint, MissingDelta, OSError)


@dataclass(kw_only=True)
class Timeline:
    """What a checkpoint says of itself.

    Attributes
    ----------
    epochs
        The epochs it should hold, with no gap.
    snapshots
        The epochs of which it lists a snapshot, oldest first.
    manifests, lists
        Those manifests and lists of snapshots that could be read and make sense.
    faults
        What is wrong with the others: the file, and the fault.
    unsound
        The deltas and files of snapshots that were found damaged or missing.
    """

    epochs: tuple[int, ...] = ()
    snapshots: list[int] = field(default_factory=list)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    lists: dict[int, Snapshot] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    unsound: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, checkpoint: Checkpoint, card: JobCard | None) -> Timeline:
        """Read the manifests and the lists of snapshots."""
        # Spark commits a batch, and an epoch is intended, after the manifest before is there: looked at in this
        # order, a running job is no fault.
        commits = [int(name) for name in checkpoint.directory.list("spark/commits") if is_number(name)]
        intended = _intended(checkpoint)
        timeline = cls(snapshots=checkpoint.snapshots())
        numbers = checkpoint.epochs()
        timeline._settle(numbers, intended - 1)
        timeline._read_manifests(checkpoint, card, set(numbers))
        timeline._read_lists(checkpoint, card)
        newest = timeline.manifests.get(timeline.epochs[-1]) if timeline.epochs else None
        if commits and max(commits) > (newest.batch if newest else -1) and (newest or not timeline.epochs):
            epoch = (timeline.epochs[-1] if timeline.epochs else 0) + 1
            timeline.epochs += (epoch,)
            timeline._wrong("manifest", epoch, f"is missing: Spark committed micro-batch {max(commits)} with it")
        return timeline

    # -- what needs what -------------------------------------------------------------------------

    def base(self, epoch: int) -> int:
        """Give the snapshot that an epoch is rebuilt from; 0 where it is rebuilt from the first delta on."""
        return max((number for number in self.snapshots if number <= epoch), default=0)

    @property
    def tables(self) -> list[str]:
        """Name the tables that there are files of."""
        named = [manifest.tables.keys() for manifest in self.manifests.values()]
        named += [listed.tables.keys() for listed in self.lists.values()]
        return sorted({name for names in named for name in names})

    def folds(self, epoch: int) -> bool:
        """Tell whether the deltas of an epoch are there and sound."""
        named = self.manifests[epoch].tables.values() if epoch in self.manifests else None
        return named is not None and not any(ref.file in self.unsound for refs in named for ref in refs)

    def is_whole(self, snapshot: int) -> bool:
        """Tell whether a snapshot and all its files are there and sound."""
        named = self.lists[snapshot].tables.values() if snapshot in self.lists else None
        return named is not None and not any(file.file in self.unsound for files in named for file in files)

    def deltas(self) -> Iterator[tuple[Manifest, str, DeltaRef]]:
        """List every delta named, oldest first, with its table."""
        for manifest in self.manifests.values():
            for table, refs in manifest.tables.items():
                for ref in refs:
                    yield manifest, table, ref

    def held(self) -> Iterator[tuple[Manifest, HeldRows]]:
        """List the rows that wait after an epoch, oldest first; epochs may share a file."""
        for manifest in self.manifests.values():
            for rows in self.held_after(manifest.epoch):
                yield manifest, rows

    def held_after(self, epoch: int) -> list[HeldRows]:
        """List the rows that wait after an epoch."""
        return [rows for instances in self.manifests[epoch].held.values() for rows in instances]

    def lookups(self) -> dict[DeltaRef, str]:
        """Give the files of tables that are looked up, each with the lookup."""
        return {
            version.file: name for manifest in self.manifests.values() for name, version in manifest.lookups.items()
        }

    def snapshot_files(self) -> Iterator[tuple[Snapshot, str, SnapshotFile]]:
        """List every file of a snapshot named, oldest first, with its table; snapshots may share files."""
        for snapshot in self.lists.values():
            for table, files in snapshot.tables.items():
                for file in files:
                    yield snapshot, table, file

    # -- reading ---------------------------------------------------------------------------------

    def _settle(self, numbers: list[int], committed: int) -> None:
        """Decide which epochs should be there, of which one is known to have been committed."""
        known = sorted({*numbers, *self.snapshots[-1:]})
        if committed > (known[-1] if known else 0):
            known.append(committed)
        if not known:
            return
        first, last = known[0], known[-1]
        base = self.base(first)
        if base < first - 1:
            later = [number for number in self.snapshots if number > first]
            if later:
                # Retention deletes manifests oldest first. Killed in between, it leaves some that have no
                # base any more; its next run deletes them.
                first = later[0]
            else:
                self._wrong("manifest", base + 1, "is missing, as are all up to the first that is there")
        missing = 0
        for before, after in itertools.pairwise([first, *(epoch for epoch in known if epoch > first)]):
            missing += after - before - 1
            if missing > MOST_MISSING:
                # So many are not lost by accident: somebody wrote a number that is none. Nothing goes through them all.
                self._wrong("manifest", after, f"would be {after - before} epochs after the one before it")
                last = before
                break
        self.epochs = tuple(range(first, last + 1))

    def _read_manifests(self, checkpoint: Checkpoint, card: JobCard | None, listed: set[int]) -> None:
        batch = -1
        for epoch in self.epochs:
            if epoch not in listed:
                self._wrong("manifest", epoch, "is missing")
                continue
            self.files.add(f"manifests/{epoch:012d}.json")
            try:
                manifest = checkpoint.manifest(epoch)
            except _DAMAGES:
                self._wrong("manifest", epoch, "is truncated or altered")
                continue
            contradiction = manifest_contradiction(manifest, epoch, *_of(card))
            if contradiction is None and manifest.batch < batch:
                contradiction = f"covers Spark's micro-batch {manifest.batch}, but an earlier epoch covers {batch}"
            if contradiction is not None:
                self._wrong("manifest", epoch, contradiction)
                continue
            batch = manifest.batch
            self.manifests[epoch] = manifest

    def _read_lists(self, checkpoint: Checkpoint, card: JobCard | None) -> None:
        for epoch in self.snapshots:
            self.files.add(f"snapshots/{epoch:012d}.json")
            try:
                snapshot = checkpoint.snapshot(epoch)
            except _DAMAGES:
                self._wrong("snapshot", epoch, "is truncated or altered")
                continue
            contradiction = snapshot_contradiction(snapshot, epoch, *_of(card))
            if contradiction is not None:
                self._wrong("snapshot", epoch, contradiction)
            else:
                self.lists[epoch] = snapshot

    def _wrong(self, kind: str, epoch: int, what: str) -> None:
        self.faults.append((f"{kind}s/{epoch:012d}.json", what))


def _intended(checkpoint: Checkpoint) -> int:
    """Give the last epoch that was intended; 1 where there was none or the intent cannot be read."""
    try:
        intent = checkpoint.intent()
    except _DAMAGES:
        return 1
    return intent.epoch if intent else 1


def _of(card: JobCard | None) -> tuple[int | None, Collection[str] | None]:
    """Give what the card says of manifests and lists: how many key groups there are, and which tables."""
    return (None, None) if card is None else (card.groups, card.tables)
