"""Bring main copies to the epoch that is needed: normal processing, recovery and scale-out alike.

`advance` takes what is nearest: the one delta of the epoch before, the chain of deltas since the epoch
the main copy is at, or, where there is no usable main copy, the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.fold import Groups, fold_deltas, read_chain, rebuild
from ferryman._model.errors import CorruptCheckpoint, MissingDelta, StaleTask
from ferryman._model.records import DeltaRef
from ferryman._state.keys import KeySchema
from ferryman._state.store import Store
from ferryman._state.store.contract import delta_schema, part_schema


def advance(
    store: Store,
    checkpoint: Checkpoint,
    operator: str,
    groups: Groups,
    to: int,
    *,
    key: KeySchema,
    state: pa.Schema,
    total: int,
    newest: Sequence[DeltaRef] | None = None,
) -> int:
    """Bring the main copies of some key groups to a committed epoch; count the groups that had to move.

    Parameters
    ----------
    newest
        The deltas of epoch `to` that can hold these groups, if the caller knows them: the common case
        then reads one file and no manifest.
    """
    at = store.epochs()[groups]
    behind = at != to
    if not behind.any():
        return 0
    if (at > to).any():
        raise StaleTask(
            f"operator {operator!r}: this home is at epoch {at.max()} already, and a task asked for epoch {to}. The "
            "task's epoch is over and its result is not wanted any more; nothing to do."
        )
    for epoch in np.unique(at[behind]).tolist():
        some = groups[at == epoch]
        if epoch == to - 1 and newest is not None:
            delta = _folded([checkpoint.read_delta(ref) for ref in newest], key, state)
        else:
            delta = _chain(checkpoint, operator, epoch, to, some, key, state, total)
        if delta is not None:
            store.apply(delta, some, to)
        else:
            part = rebuild(checkpoint, operator, to, some) if to else part_schema(key, state).empty_table()
            store.ingest(part, some, to)
    return int(behind.sum())


def _folded(deltas: list[pa.Table], key: KeySchema, state: pa.Schema) -> pa.Table:
    return fold_deltas(deltas, key) if deltas else delta_schema(key, state).empty_table()


def _chain(
    checkpoint: Checkpoint,
    operator: str,
    after: int,
    upto: int,
    groups: Groups,
    key: KeySchema,
    state: pa.Schema,
    total: int,
) -> pa.Table | None:
    """Fold the deltas between two epochs; None where the checkpoint does not hold them all."""
    if not 0 <= after < upto:
        return None
    try:
        delta = read_chain(checkpoint, operator, after, upto, groups, key, total)
    except (MissingDelta, CorruptCheckpoint):
        # Retention forgets old deltas, perhaps just now; where a snapshot covers them they are not needed.
        # Where none does, rebuilding meets the same file and says so.
        return None
    return delta if delta is not None else delta_schema(key, state).empty_table()
