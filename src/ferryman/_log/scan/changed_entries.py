"""Read what epochs have changed: the rows of their deltas, each with its epoch and what became of the key."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.fold import LoggedTable
from ferryman._log.scan.epochs_kept import while_kept
from ferryman._log.scan.keys_asked import KeysAsked
from ferryman._model.card import JobCard
from ferryman._state.store.contract import DELETED

EPOCH = "_epoch"
CHANGE = "_change"
CHANGE_FIELDS = (pa.field(EPOCH, pa.int64()), pa.field(CHANGE, pa.string()))
UPSERT, DELETE = "upsert", "delete"

# Of what Spark reads at once.
PART_ROWS = 1 << 20


def epochs_of_parts(checkpoint: Checkpoint, table: str, first: int, last: int) -> list[tuple[int, int]]:
    """Cut epochs into runs of about so many changes each, given by their first and last."""
    runs, begin, rows = [], first, 0
    with while_kept(checkpoint, first):
        for epoch in range(first, last + 1):
            rows += sum(ref.rows for ref in checkpoint.manifest(epoch).tables.get(table, ()))
            if rows >= PART_ROWS or epoch == last:
                runs.append((begin, epoch))
                begin, rows = epoch + 1, 0
    return runs


def read_changes(
    checkpoint: Checkpoint, card: JobCard, table: str, first: int, last: int, keys: KeysAsked | None
) -> Iterator[pa.Table]:
    """Read the changes of epochs in their order; a key has one row at most in each epoch."""
    logged = LoggedTable.of(table, card.tables[table], card.groups)
    groups = None if keys is None else keys.groups(card.groups)
    with while_kept(checkpoint, first):
        for epoch, rows in logged.read_chain(checkpoint, first - 1, last, groups):
            mine = rows if keys is None else keys.rows_of(rows)
            change = pc.if_else(mine.column(DELETED), DELETE, UPSERT)
            epochs = pa.array(np.full(mine.num_rows, epoch, np.int64))
            marked = mine.append_column(CHANGE_FIELDS[0], epochs).append_column(CHANGE_FIELDS[1], change)
            yield marked.drop_columns([DELETED])
