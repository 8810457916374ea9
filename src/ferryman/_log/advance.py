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
from ferryman._model.errors import MissingDelta
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
    for epoch in np.unique(at[behind]).tolist():
        some = groups[at == epoch]
        if epoch == to - 1 and newest is not None:
            deltas = [checkpoint.read_delta(ref) for ref in newest]
            delta = fold_deltas(deltas, key) if deltas else None
        elif 0 <= epoch < to and _kept(checkpoint, epoch + 1):
            delta = read_chain(checkpoint, operator, epoch, to, some, key, total)
        else:
            part = rebuild(checkpoint, operator, to, some) if to else part_schema(key, state).empty_table()
            store.ingest(part, some, to)
            continue
        store.apply(delta if delta is not None else delta_schema(key, state).empty_table(), some, to)
    return int(behind.sum())


def _kept(checkpoint: Checkpoint, epoch: int) -> bool:
    try:
        checkpoint.manifest(epoch)
    except MissingDelta:
        return False
    return True
