"""Write snapshots: long delta chains folded into Parquet, in the background.

A snapshot's files hold runs of key groups, and no Parquet row group spans two of them, so that a reader
can take the groups it wants and DuckDB, Polars or Spark can read the whole with no Ferryman installed.
The fold goes file by file over the snapshot before, so memory follows the delta chain and one file.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ferryman._log.cards import evolution_of, schemas_of
from ferryman._log.checkpoint import Checkpoint, checksum
from ferryman._log.fold import fold, of_groups, read_chain, read_snapshot_file
from ferryman._log.sound import GROUPS_KEY, fitted, may_become
from ferryman._model.records import JobCard, Snapshot, SnapshotFile
from ferryman._state.store.contract import HASH, part_schema
from ferryman._testing.faults import reach

FILE_BYTES = 64 << 20
# What a writer of Parquet puts into one row group by itself at the most; more must be cut here, where it is counted.
ROW_GROUP_ROWS = 1 << 20


def _write_file(checkpoint: Checkpoint, epoch: int, table: str, rows: pa.Table, total: int) -> SnapshotFile:
    groups = np.mod(rows.column(HASH).to_numpy(), total)
    order = np.argsort(groups, kind="stable")
    rows, groups = rows.take(pa.array(order)), groups[order]
    held, starts = np.unique(groups, return_index=True)
    cuts = [
        (int(group), start, min(start + ROW_GROUP_ROWS, end))
        for group, first, end in zip(held, starts.tolist(), [*starts[1:].tolist(), len(groups)], strict=True)
        for start in range(first, end, ROW_GROUP_ROWS)
    ]
    schema = rows.schema.with_metadata({GROUPS_KEY: json.dumps([group for group, _, _ in cuts]).encode()})
    parts = [rows.slice(start, end - start).replace_schema_metadata(schema.metadata) for _, start, end in cuts]
    data = _parquet(parts, schema, compression="zstd", compression_level=1)
    if rows.nbytes > may_become(data.size):
        # One key group so large and so alike that no reader would trust the small file it makes.
        data = _parquet(parts, schema, compression="none", use_dictionary=False)
    digest = checksum(data)
    name = f"snapshots/{epoch:012d}-{table}-{int(held[0]):05d}-{digest}.parquet"
    checkpoint.directory.write(name, data)
    return SnapshotFile(name, int(held[0]), int(held[-1]), rows.num_rows, data.size, digest, rows.nbytes)


def _parquet(parts: list[pa.Table], schema: pa.Schema, **how: Any) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, **how) as writer:
        for part in parts:
            writer.write_table(part)
    return sink.getvalue()


def _runs(rows: pa.Table, first: int, last: int, total: int) -> list[pa.Table]:
    """Cut the rows of a run of key groups where a file would grow too large."""
    if rows.num_rows == 0:
        return []
    if rows.nbytes <= FILE_BYTES or first == last:
        return [rows]
    middle = (first + last) // 2
    low = of_groups(rows, np.arange(first, middle + 1), total)
    high = of_groups(rows, np.arange(middle + 1, last + 1), total)
    return _runs(low, first, middle, total) + _runs(high, middle + 1, last, total)


def _table(
    checkpoint: Checkpoint, card: JobCard, table: str, base: Snapshot | None, epoch: int
) -> tuple[SnapshotFile, ...]:
    key, state = schemas_of(card.tables[table])
    evolution, after = evolution_of(card.tables[table]), base.epoch if base else 0
    delta = read_chain(checkpoint, table, after, epoch, None, card)
    before = base.tables.get(table, ()) if base else ()
    if delta is None:
        return before
    # The run of groups each earlier file answers for; together they cover all groups without overlap.
    edges = [0, *(one.first for one in before[1:]), card.groups]
    written = []
    for position, (first, end) in enumerate(itertools.pairwise(edges)):
        groups = np.arange(first, end)
        part = None
        if before:
            one = before[position]
            part = read_snapshot_file(checkpoint, one, None, card.groups)
            with checkpoint.sound(one.file):
                part = fitted(part, part_schema(key, state), key, evolution)
        folded = fold(part, of_groups(delta, groups, card.groups), key, state)
        for rows in _runs(folded, first, end - 1, card.groups):
            reach("snapshot")
            written.append(_write_file(checkpoint, epoch, table, rows, card.groups))
    return tuple(written)


def write_snapshot(checkpoint: Checkpoint, epoch: int) -> Snapshot:
    """Fold everything up to a committed epoch into a new snapshot and publish it."""
    card = checkpoint.card()
    assert card is not None, "a snapshot is only asked of a checkpoint that has epochs"
    base = checkpoint.snapshot_before(epoch)
    files = {name: _table(checkpoint, card, name, base, epoch) for name, one in card.tables.items() if not one.dropped}
    snapshot = Snapshot(epoch, files)
    checkpoint.publish_snapshot(snapshot)
    return snapshot
