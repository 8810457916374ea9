"""Bring main copies to the epoch that is needed: normal processing, recovery and scale-out alike.

`advance` takes what is nearest: the one delta of the epoch before, the chain of deltas since the epoch
the main copy is at, or, where there is no usable main copy, the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.fold import Groups, base_of, fold_deltas, of_groups, read_snapshot_file
from ferryman._log.sound import fitted
from ferryman._model.errors import CorruptCheckpoint, MissingDelta, StaleTask
from ferryman._model.records import DeltaRef
from ferryman._state.evolve import Evolution
from ferryman._state.keys import KeySchema
from ferryman._state.store import Store
from ferryman._state.store.contract import delta_schema, part_schema

# Deltas of a chain are applied when so many bytes have come together.
APPLY_BYTES = 32 << 20


def advance(
    store: Store,
    checkpoint: Checkpoint,
    table: str,
    groups: Groups,
    to: int,
    *,
    key: KeySchema,
    state: pa.Schema,
    total: int,
    newest: Sequence[DeltaRef] | None = None,
    evolution: Evolution = Evolution(),  # noqa: B008  it is frozen
) -> int:
    """Bring the main copies of some key groups to a committed epoch; count those that had to be made anew.

    Parameters
    ----------
    newest
        The deltas of epoch `to` that can hold these groups, if the caller knows them: the common case
        then reads one file, or one of each instance that owns keys of these groups, and no manifest.
    """
    at = store.epochs()[groups]
    behind = at != to
    rebuilt = 0
    if not behind.any():
        return rebuilt
    if (at > to).any():
        raise StaleTask(
            f"table {table!r}: this home is at epoch {at.max()} already, and a task asked for epoch {to}. The "
            "task's epoch is over and its result is not wanted any more; nothing to do."
        )
    table_of = Columns(table, key, state, total, evolution)
    for epoch in np.unique(at[behind]).tolist():
        some = groups[at == epoch]
        if epoch == to - 1 and newest is not None:
            store.apply(_folded([table_of.read(checkpoint, ref) for ref in newest], table_of), some, to)
        elif not (0 <= epoch < to and _catch_up(store, checkpoint, table_of, some, epoch, to)):
            _rebuild(store, checkpoint, table_of, some, to)
            rebuilt += len(some)
    return rebuilt


@dataclass(frozen=True)
class Columns:
    """The table that is being advanced."""

    name: str
    key: KeySchema
    state: pa.Schema
    groups: int
    evolution: Evolution

    def read(self, checkpoint: Checkpoint, ref: DeltaRef) -> pa.Table:
        """Read a delta, as the table is declared now."""
        rows = checkpoint.read_delta(ref)
        with checkpoint.sound(ref.file):
            return fitted(rows, delta_schema(self.key, self.state), self.key, self.evolution)


def _folded(deltas: list[pa.Table], table: Columns) -> pa.Table:
    return fold_deltas(deltas, table.key) if deltas else delta_schema(table.key, table.state).empty_table()


def _catch_up(store: Store, checkpoint: Checkpoint, table: Columns, groups: Groups, after: int, to: int) -> bool:
    """Apply the deltas between two epochs; False where only a snapshot in between can help."""
    try:
        _apply_chain(store, checkpoint, table, groups, after, to)
    except (MissingDelta, CorruptCheckpoint):
        # Retention forgets old deltas, perhaps just now; where a later snapshot covers them they are not needed.
        base = checkpoint.snapshot_before(to)
        if base is None or base.epoch <= after:
            raise
        return False
    return True


def _rebuild(store: Store, checkpoint: Checkpoint, table: Columns, groups: Groups, to: int) -> None:
    """Make mains anew: from the snapshot before the epoch, file by file, and the deltas since."""
    while True:
        snapshots = checkpoint.snapshots()
        try:
            base, after = base_of(checkpoint, to)
            left = groups
            for one in base.tables.get(table.name, ()) if base else ():
                held = (left >= one.first) & (left <= one.last)
                if held.any():
                    part = read_snapshot_file(checkpoint, one, left[held], table.groups)
                    with checkpoint.sound(one.file):
                        part = fitted(part, part_schema(table.key, table.state), table.key, table.evolution)
                    store.ingest(part, left[held], after)
                    left = left[~held]
            store.ingest(part_schema(table.key, table.state).empty_table(), left, after)
            _apply_chain(store, checkpoint, table, groups, after, to)
            return
        except MissingDelta:
            # The retention may have replaced what we were reading; then there is a newer snapshot to begin with.
            if checkpoint.snapshots() == snapshots:
                raise


def _apply_chain(store: Store, checkpoint: Checkpoint, table: Columns, groups: Groups, after: int, to: int) -> None:
    """Apply deltas in runs of some size, so that neither the number of epochs nor the memory grows with the chain."""
    held: list[pa.Table] = []
    for epoch in range(after + 1, to + 1):
        manifest = checkpoint.own_manifest(epoch, table.groups)
        owners = set(np.asarray(manifest.routing.owner)[groups].tolist())
        owners.update(*(some for group, some in manifest.routing.workers().items() if group in groups))
        for ref in manifest.tables.get(table.name, ()):
            if ref.instance in owners:
                held.append(of_groups(table.read(checkpoint, ref), groups, table.groups))
        if epoch == to or sum(one.nbytes for one in held) >= APPLY_BYTES:
            store.apply(_folded(held, table), groups, epoch)
            held = []
