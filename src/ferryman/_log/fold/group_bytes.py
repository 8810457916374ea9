"""How much state a job has in each key group, without reading it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import NotPlain
from ferryman._log.files.untrusted import parquet_of
from ferryman._log.fold.bases import Failures, bases
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.key_groups import group_of
from ferryman._model.manifest import Manifest
from ferryman._model.snapshot import Snapshot
from ferryman._state.store.contract import DELETED, HASH
from ferryman._state.words import Mask

Floats = npt.NDArray[np.float64]


def grown(deltas: Mapping[str, pa.Table], first: str, there: Mask, groups: int) -> dict[int, int]:
    """Tell by how many bytes the state of each key group grows with the deltas of a task.

    Parameters
    ----------
    deltas
        The delta of each table that has rows of keys.
    first
        The table that has one row per key.
    there
        Which of the keys in its delta had a row before. Of entries that is not known: they count as new.
    groups
        How many key groups there are.
    """
    total = np.zeros(groups)
    for name, delta in deltas.items():
        if not delta.num_rows:
            continue
        gone = delta.column(DELETED).to_numpy()
        changes = np.where(gone, -1.0, 1.0)
        if name == first:
            if there.all() and not gone.any():
                # As in most epochs of most jobs: only keys that were there already.
                continue
            changes[there != gone] = 0.0
        by_group = np.bincount(group_of(delta.column(HASH).to_numpy(), groups), changes, groups)
        total += by_group * (delta.nbytes / delta.num_rows)
    return {int(group): round(total[group]) for group in np.flatnonzero(total)}


class StateWeight:
    """Weigh the state of a job: what the newest snapshot says of each key group, and what epochs since have added."""

    def __init__(self, checkpoint: Checkpoint, groups: int) -> None:
        self._checkpoint = checkpoint
        self._groups = groups
        self._newest = 0
        self._base: tuple[int, Floats] = (0, np.zeros(groups))
        # What epochs have added that nobody tells of.
        self._spread_of: dict[int, Floats] = {}

    def by_group(self, epoch: int, grown: Mapping[int, Mapping[int, int]] | None = None) -> Floats:
        """Give about how many bytes of state each key group has after an epoch, uncompressed.

        Parameters
        ----------
        epoch
            The epoch.
        grown
            By how many bytes key groups grew in epochs whose tasks have told; others are looked up, and spread evenly.
        """
        snapshots = self._checkpoint.snapshots()
        if snapshots and snapshots[-1] != self._newest:
            self._newest, self._base = snapshots[-1], self._weigh(snapshots[-1])
        since, weight = self._base[0], self._base[1].copy()
        told, spread_of = grown or {}, {}
        for later in range(since + 1, epoch + 1):
            added = told.get(later)
            if added is None:
                known = self._spread_of.get(later)
                if known is None:
                    known = self._spread(self._checkpoint.own_manifest(later, self._groups))
                spread_of[later] = known
                weight += known
            elif added:
                weight[list(added)] += list(added.values())
        self._spread_of = spread_of
        found: Floats = np.maximum(weight, 0.0)
        return found

    def _weigh(self, newest: int) -> tuple[int, Floats]:
        """Weigh the newest snapshot of which all files can be read, and give its epoch."""
        failures: Failures = {}
        for snapshot in bases(self._checkpoint, newest, failures):
            try:
                return snapshot.epoch, self._weight_of(snapshot)
            except (MissingDelta, CorruptCheckpoint) as error:
                failures[f"snapshots/{snapshot.epoch:012d}.json"] = error
        # So nobody has read any of it; who has to will say what is wrong.
        raise next(iter(failures.values()))

    def _weight_of(self, snapshot: Snapshot) -> Floats:
        """Read from the ends of a snapshot's files how large each key group's part is."""
        weight = np.zeros(self._groups)
        for listed in (file for files in snapshot.tables.values() for file in files):
            try:
                file = self._checkpoint.directory.open(listed.file)
            except FileNotFoundError:
                raise self._checkpoint.missing(listed.file) from None
            except NotPlain as error:
                raise self._checkpoint.unreadable(listed.file, error) from error
            with file, self._checkpoint.sound(listed.file):
                parts, held = parquet_of(file, listed.bytes, self._groups)
                for place, group in enumerate(held):
                    weight[group] += parts.metadata.row_group(place).total_byte_size
        return weight

    def _spread(self, manifest: Manifest) -> Floats:
        """Take what each instance wrote in an epoch to be of all its key groups alike."""
        owner = np.array(manifest.routing.owner)
        written = np.zeros(manifest.routing.instances)
        for refs in manifest.tables.values():
            for ref in refs:
                written[ref.instance] += ref.bytes
        owned = np.bincount(owner, minlength=len(written))
        weight: Floats = (written / np.maximum(owned, 1))[owner]
        return weight
