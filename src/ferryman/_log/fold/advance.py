"""Bring main copies to the epoch that is needed: normal processing, recovery and scale-out alike.

`advance` takes what is nearest: the one delta of the epoch before, the chain of deltas since the epoch
the main copy is at, or, where there is no usable main copy, the checkpoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.bases import Groups, parts_before
from ferryman._log.fold.fold import LoggedTable, despite_retention
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import CorruptCheckpoint, MissingDelta, StaleTask
from ferryman._state.earlier_columns import Evolution
from ferryman._state.keys import KeySchema
from ferryman._state.store import Store

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
    logged = LoggedTable(name=table, key=key, state=state, total=total, evolution=evolution)
    for epoch in np.unique(at[behind]).tolist():
        late = groups[at == epoch]
        refs = newest if epoch == to - 1 else None
        if epoch < 0 or not _catch_up(store, checkpoint, logged, late, epoch, to, refs):
            _rebuild(store, checkpoint, logged, late, to)
            rebuilt += len(late)
    return rebuilt


def _catch_up(
    store: Store,
    checkpoint: Checkpoint,
    table: LoggedTable,
    groups: Groups,
    after: int,
    to: int,
    newest: Sequence[DeltaRef] | None,
) -> bool:
    """Apply the deltas between two epochs; False where only a snapshot in between can help."""
    try:
        if newest is None:
            _apply_chain(store, checkpoint, table, groups, after, to)
        else:
            store.apply(table.folded([table.read_delta(checkpoint, ref) for ref in newest]), groups, to)
    except (MissingDelta, CorruptCheckpoint):
        # Retention forgets old deltas, perhaps just now; where a later snapshot covers them they are not needed.
        if not any(after < number <= to for number in checkpoint.snapshots()):
            raise
        return False
    return True


def _rebuild(store: Store, checkpoint: Checkpoint, table: LoggedTable, groups: Groups, to: int) -> None:
    """Make mains anew: from the snapshot before the epoch, file by file, and the deltas since."""
    at = int(store.epochs()[groups].max(initial=-1))

    def make() -> None:
        reached = np.full(table.total, to)
        for within, part, after in parts_before(checkpoint, table, to, groups, since=at):
            store.ingest(part, within, after)
            reached[within] = after
        # Those that are furthest behind first come up with the next, so that no delta is read twice.
        steps = [*np.unique(reached[groups]).tolist(), to]
        for after, upto in itertools.pairwise(steps):
            _apply_chain(store, checkpoint, table, groups[reached[groups] <= after], after, upto)

    despite_retention(checkpoint, make)


def _apply_chain(store: Store, checkpoint: Checkpoint, table: LoggedTable, groups: Groups, after: int, to: int) -> None:
    """Apply deltas in runs of some size, so that neither the number of epochs nor the memory grows with the chain."""
    run: list[pa.Table] = []
    last = after
    for epoch, delta in table.read_chain(checkpoint, after, to, groups):
        if epoch > last and sum(earlier.nbytes for earlier in run) >= APPLY_BYTES:
            store.apply(table.folded(run), groups, last)
            run = []
        run.append(delta)
        last = epoch
    store.apply(table.folded(run), groups, to)
