"""Write snapshots: long delta chains folded into Parquet, in the background. When one is due says `snapshot_due`.

A snapshot's files hold runs of key groups, and no Parquet row group spans two of them, so that a reader
can take the groups it wants and DuckDB, Polars or Spark can read the whole with no Ferryman installed.
The fold goes file by file over the snapshot before, so memory follows the delta chain and one file.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ferryman._log.files.checkpoint import Checkpoint, checksum
from ferryman._log.files.untrusted import GROUPS_KEY, may_become
from ferryman._log.fold.fold import LoggedTable, fold, of_groups
from ferryman._model.card import JobCard
from ferryman._model.errors import FerrymanError, Superseded
from ferryman._model.key_groups import group_of
from ferryman._model.snapshot import Snapshot, SnapshotFile
from ferryman._os.faults import reach
from ferryman._state.store.contract import HASH

FILE_BYTES = 64 << 20
# What a writer of Parquet puts into one row group by itself at the most; more must be cut here, where it is counted.
ROW_GROUP_ROWS = 1 << 20


def files_of(snapshot: Snapshot) -> list[str]:
    """List the names of a snapshot's files."""
    return [file.file for files in snapshot.tables.values() for file in files]


def _write_file(checkpoint: Checkpoint, epoch: int, table: str, rows: pa.Table, total: int) -> SnapshotFile:
    groups = group_of(rows.column(HASH).to_numpy(), total)
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
    return SnapshotFile(
        file=name,
        first=int(held[0]),
        last=int(held[-1]),
        rows=rows.num_rows,
        bytes=data.size,
        checksum=digest,
        decoded=rows.nbytes,
    )


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
    logged = LoggedTable.of(table, card.tables[table], card.groups)
    after = base.epoch if base else 0
    deltas = [delta for _, delta in logged.read_chain(checkpoint, after, epoch, None)]
    before = base.tables.get(table, ()) if base else ()
    if not deltas:
        return before
    delta = logged.folded(deltas)
    # The run of groups each earlier file answers for; together they cover all groups without overlap.
    edges = [0, *(file.first for file in before[1:]), card.groups]
    written = []
    for position, (first, end) in enumerate(itertools.pairwise(edges)):
        groups = np.arange(first, end)
        part = logged.read_part(checkpoint, before[position]) if before else None
        folded = fold(part, of_groups(delta, groups, card.groups), logged.key, logged.state)
        for rows in _runs(folded, first, end - 1, card.groups):
            reach("snapshot")
            written.append(_write_file(checkpoint, epoch, table, rows, card.groups))
    return tuple(written)


def write_snapshot(checkpoint: Checkpoint, epoch: int, card: JobCard | None = None) -> Snapshot:
    """Fold everything up to a committed epoch into a new snapshot and publish it; by the checkpoint's card, or another.

    A run gives its own: what a card does not list is left out, and the checkpoint may have one that came too late.
    """
    card = card or checkpoint.card()
    assert card is not None, "a snapshot is only asked of a checkpoint that has epochs"
    base = checkpoint.snapshot_before(epoch)
    files = {
        name: _table(checkpoint, card, name, base, epoch) for name, table in card.tables.items() if not table.dropped
    }
    snapshot = Snapshot(epoch, files)
    checkpoint.publish_snapshot(snapshot)
    return snapshot


def write_fenced_snapshot(checkpoint: Checkpoint, card: JobCard, epoch: int, look: Callable[[str], None]) -> Snapshot:
    """Write a snapshot, as long as this run is the newest: `look` raises `Superseded` if it is not.

    If a driver that slept has put its card in the place of the run's own, that is put right.
    """
    look("snapshot")
    checkpoint.keep_card(card)
    snapshot = write_snapshot(checkpoint, epoch, card)
    try:
        look("retention")
    except Superseded:
        _withdraw(checkpoint, epoch)
        raise
    return snapshot


def _withdraw(checkpoint: Checkpoint, epoch: int) -> None:
    """Take a snapshot back that was listed after its files were deleted: whoever took over may have tidied up."""
    with contextlib.suppress(FerrymanError, OSError):
        if not all(checkpoint.directory.exists(file) for file in files_of(checkpoint.snapshot(epoch))):
            checkpoint.directory.delete([f"snapshots/{epoch:012d}.json"])
