"""Rows that wait: put aside while the state of their key group is on its way, and worked on before what came since."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pyarrow as pa

from ferryman._model.delta import DeltaRef
from ferryman._model.errors import StateSchemaChanged
from ferryman._model.held_rows import HeldRows
from ferryman._model.key_groups import group_of
from ferryman._routing.share import Share
from ferryman._state.store.contract import HASH


def hold(
    rows: pa.Table, groups: Collection[int], total: int, epoch: int, write: Callable[[pa.Table], DeltaRef]
) -> tuple[pa.Table, HeldRows | None]:
    """Put the rows of groups that wait into a file; give the others."""
    mine = group_of(rows.column(HASH).to_numpy(), total)
    wait = np.isin(mine, list(groups))
    if not wait.any():
        return rows, None
    ref = write(rows.filter(pa.array(wait)))
    waiting, counts = np.unique(mine[wait], return_counts=True)
    held = HeldRows(ref, epoch, tuple(waiting.tolist()), tuple(counts.tolist()))
    return rows.filter(pa.array(~wait)), held


def resume(
    rows: pa.Table, waiting: Sequence[HeldRows], share: Share, total: int, read: Callable[[DeltaRef], pa.Table]
) -> pa.Table:
    """Put the rows that waited for the groups of a share before the rows that came now."""
    earlier = []
    for held in sorted(waiting, key=lambda held: (held.epoch, held.file.instance)):
        now = np.intersect1d(share.kept, held.groups)
        if len(now):
            waited = read(held.file)
            hashes = waited.column(HASH).to_numpy()
            here = np.isin(group_of(hashes, total), now) & share.owns(hashes)
            earlier.append(as_now(waited.filter(pa.array(here)), rows.schema, held.epoch))
    return pa.concat_tables([*earlier, rows]) if earlier else rows


def as_now(waited: pa.Table, schema: pa.Schema, epoch: int) -> pa.Table:
    """Give rows that waited the columns of those that come now: a column that is new has no values in them.

    Examples
    --------
    >>> waited = pa.table({"id": pa.array([1, 2], pa.int32()), "gone": [0, 0]})
    >>> as_now(waited, pa.schema([("id", pa.int64()), ("new", pa.string())]), 7).to_pydict()
    {'id': [1, 2], 'new': [None, None]}
    """
    try:
        columns = [
            waited.column(field.name).cast(field.type)
            if field.name in waited.column_names
            else pa.nulls(waited.num_rows, field.type)
            for field in schema
        ]
    except pa.ArrowException as error:
        raise StateSchemaChanged(
            f"{waited.num_rows} rows have waited since epoch {epoch}, when a plan was under way, and their columns do "
            f"not fit those of now: {error}. Start the job once as it was declared then, until no rows wait, and "
            "change it after that."
        ) from error
    return pa.Table.from_arrays(columns, schema=schema)
