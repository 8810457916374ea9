"""How much state a job has in each key group, without reading it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.sound import parquet_of
from ferryman._model.records import Manifest, Snapshot
from ferryman._state.store.contract import DELETED, HASH
from ferryman._state.words import Mask

Floats = npt.NDArray[np.float64]

# Of how many epochs it is remembered how much they added: of fewer, the more key groups there are.
_REMEMBERED = 1 << 21


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
        by_group = np.bincount(np.mod(delta.column(HASH).to_numpy(), groups), changes, groups)
        total += by_group * (delta.nbytes / delta.num_rows)
    return {int(group): round(total[group]) for group in np.flatnonzero(total)}


class StateWeight:
    """Weigh the state of a job: what the newest snapshot says of each key group, and what epochs since have added."""

    def __init__(self, checkpoint: Checkpoint, groups: int) -> None:
        self._checkpoint = checkpoint
        self._groups = groups
        self._added: dict[int, Floats | None] = {}
        self._base: tuple[int, Floats] = (0, np.zeros(groups))

    def note(self, receipts: Sequence[Mapping[str, Any]]) -> None:
        """Remember what the tasks of an epoch have added."""
        added = None
        for receipt in receipts:
            for group, bytes in receipt["grown"].items():
                added = np.zeros(self._groups) if added is None else added
                added[int(group)] += bytes
        if receipts:
            self._added[receipts[0]["epoch"]] = added
        if len(self._added) > max(16, _REMEMBERED // self._groups):
            self._added.pop(min(list(self._added)), None)

    def by_group(self, epoch: int) -> Floats:
        """Give about how many bytes of state each key group has after an epoch, uncompressed."""
        snapshots = self._checkpoint.snapshots()
        if snapshots and snapshots[-1] != self._base[0]:
            self._base = snapshots[-1], self._weigh(self._checkpoint.snapshot(snapshots[-1]))
        since, weight = self._base[0], self._base[1].copy()
        # Of a list, as epochs add to it meanwhile.
        for one in [one for one in list(self._added) if one <= since]:
            self._added.pop(one, None)
        for one in range(since + 1, epoch + 1):
            if one not in self._added:
                # Of an earlier run.
                self._added[one] = self._spread(self._checkpoint.own_manifest(one, self._groups))
            added = self._added.get(one)
            if added is not None:
                weight += added
        found: Floats = np.maximum(weight, 0.0)
        return found

    def bytes(self, epoch: int) -> int:
        """Give how much there is after an epoch in all."""
        return int(self.by_group(epoch).sum())

    def _weigh(self, snapshot: Snapshot) -> Floats:
        """Read from the ends of a snapshot's files how large each key group's part is."""
        weight = np.zeros(self._groups)
        for files in snapshot.tables.values():
            for one in files:
                try:
                    file = self._checkpoint.directory.open(one.file)
                except FileNotFoundError:
                    raise self._checkpoint.missing(one.file) from None
                with file, self._checkpoint.sound(one.file):
                    parts, held = parquet_of(file, one.bytes, self._groups)
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
