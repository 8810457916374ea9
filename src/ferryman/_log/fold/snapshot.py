"""Write snapshots: long delta chains folded into Parquet, in the background. When one is due says `snapshot_due`.

A snapshot's files hold runs of key groups, and no Parquet row group spans two of them, so that a reader
can take the groups it wants and DuckDB, Polars or Spark can read the whole with no Ferryman installed.
The fold goes file by file over the snapshot before, so memory follows the delta chain and one file.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ferryman._log.files.checkpoint import Checkpoint, checksum
from ferryman._log.files.untrusted import GROUPS_KEY, may_become
from ferryman._log.fold.bases import Failures, bases, files_of, note_damage
from ferryman._log.fold.fold import LoggedTable, fold, of_groups, rebuilt
from ferryman._model.card import JobCard
from ferryman._model.errors import CorruptCheckpoint, FerrymanError, MissingDelta, Superseded
from ferryman._model.key_groups import group_of
from ferryman._model.snapshot import Snapshot, SnapshotFile
from ferryman._os.faults import reach
from ferryman._state.store.contract import HASH

FILE_BYTES = 64 << 20
# What a writer of Parquet puts into one row group by itself at the most; more must be cut here, where it is counted.
ROW_GROUP_ROWS = 1 << 20


def _write_file(
    checkpoint: Checkpoint, epoch: int, table: str, rows: pa.Table, total: int, like: SnapshotFile | None = None
) -> SnapshotFile:
    """Write rows to a file of a snapshot; in the place of another, if it comes out as that was."""
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
    name = like.file if like and like.checksum == digest else _name(epoch, table, int(held[0]), digest)
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


def _name(epoch: int, table: str, first: int, digest: str) -> str:
    return f"snapshots/{epoch:012d}-{table}-{first:05d}-{digest}.parquet"


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
    checkpoint: Checkpoint, card: JobCard, table: str, base: Snapshot | None, before: Snapshot | None, epoch: int
) -> tuple[SnapshotFile, ...]:
    """Fold one table over the snapshot before, of which another is older."""
    logged = LoggedTable.of(table, card.tables[table], card.groups)
    after = base.epoch if base else 0
    deltas = [delta for _, delta in logged.read_chain(checkpoint, after, epoch, None)]
    files = base.tables.get(table, ()) if base else ()
    if not deltas:
        return _second_copies(checkpoint, logged, files, before.tables.get(table, ()) if before else (), after, epoch)
    delta = logged.folded(deltas)
    # The run of groups each earlier file answers for; together they cover all groups without overlap.
    edges = [0, *(file.first for file in files[1:]), card.groups]
    written = []
    for first, end in itertools.pairwise(edges):
        groups = np.arange(first, end)
        part = rebuilt(checkpoint, logged, after, groups) if files else None
        folded = fold(part, of_groups(delta, groups, card.groups), logged.key, logged.state)
        for rows in _runs(folded, first, end - 1, card.groups):
            reach("snapshot")
            written.append(_write_file(checkpoint, epoch, table, rows, card.groups))
    return tuple(written)


def _second_copies(
    checkpoint: Checkpoint,
    table: LoggedTable,
    files: tuple[SnapshotFile, ...],
    older: tuple[SnapshotFile, ...],
    after: int,
    epoch: int,
) -> tuple[SnapshotFile, ...]:
    """Give the files of a table that did nothing: never those of the snapshot before, so that one may be damaged.

    There are two copies of each, which take turns; nothing is written once both are there.
    """
    if files != older and [replace(file, file="") for file in files] == [replace(file, file="") for file in older]:
        return older
    return tuple(copy for file in files for copy in _copied(checkpoint, table, file, after, epoch))


def _copied(
    checkpoint: Checkpoint, table: LoggedTable, file: SnapshotFile, at: int, epoch: int
) -> tuple[SnapshotFile, ...]:
    try:
        data = checkpoint.verified(file.file, file.checksum, file.bytes)
    except (MissingDelta, CorruptCheckpoint):
        return rewritten(checkpoint, table, file, at, epoch)
    reach("snapshot")
    name = _name(epoch, table.name, file.first, file.checksum)
    checkpoint.directory.write(name, data)
    return (replace(file, file=name),)


def rewritten(
    checkpoint: Checkpoint, table: LoggedTable, file: SnapshotFile, at: int, epoch: int
) -> tuple[SnapshotFile, ...]:
    """Write anew what a damaged file of the snapshot of one epoch should hold, for that of the same epoch or another.

    Where it comes out as it was, it is mended in its place. Nothing where there are no such rows.
    """
    rows = rebuilt(checkpoint, table, at, np.arange(file.first, file.last + 1))
    reach("snapshot")
    return (_write_file(checkpoint, epoch, table.name, rows, table.total, file),) if rows.num_rows else ()


def files_of_rows(
    checkpoint: Checkpoint, table: LoggedTable, epoch: int, groups: Iterable[tuple[int, pa.Table]]
) -> tuple[SnapshotFile, ...]:
    """Write the rows of key groups, in their order, to files of some size."""
    written: list[SnapshotFile] = []
    run: list[pa.Table] = []
    for _, rows in groups:
        if run and sum(part.nbytes for part in run) + rows.nbytes > FILE_BYTES:
            written.append(_write_file(checkpoint, epoch, table.name, pa.concat_tables(run), table.total))
            run = []
        run += [rows] if rows.num_rows else []
    if run:
        written.append(_write_file(checkpoint, epoch, table.name, pa.concat_tables(run), table.total))
    return tuple(written)


def write_snapshot(checkpoint: Checkpoint, epoch: int, card: JobCard | None = None) -> Snapshot:
    """Fold everything up to a committed epoch into a new snapshot and publish it; by the checkpoint's card, or another.

    A run gives its own: what a card does not list is left out, and the checkpoint may have one that came too late.
    """
    card = card or checkpoint.card()
    assert card is not None, "a snapshot is only asked of a checkpoint that has epochs"
    return write_snapshot_with(checkpoint, epoch, card, {})


def write_snapshot_with(
    checkpoint: Checkpoint, epoch: int, card: JobCard, given: Mapping[str, tuple[SnapshotFile, ...]]
) -> Snapshot:
    """Publish a snapshot in which the files of some tables are given, and the rest is folded."""
    failures: Failures = {}
    base, before, *_ = [*itertools.islice(bases(checkpoint, epoch, failures), 2), None, None]
    if base is not None and base.epoch == epoch:
        return base
    files = {
        name: given[name] if name in given else _table(checkpoint, card, name, base, before, epoch)
        for name, table in card.tables.items()
        if not table.dropped
    }
    note_damage(checkpoint, failures)
    snapshot = Snapshot(epoch, files)
    checkpoint.publish_snapshot(snapshot)
    return snapshot


def write_fenced_snapshot(
    checkpoint: Checkpoint,
    card: JobCard,
    epoch: int,
    look: Callable[[str], None],
    write: Callable[[Checkpoint, int, JobCard], Snapshot] = write_snapshot,
) -> Snapshot:
    """Write a snapshot, as long as this run is the newest: `look` raises `Superseded` if it is not.

    If a driver that slept has put its card in the place of the run's own, that is put right.
    """
    look("snapshot")
    checkpoint.keep_card(card)
    with listed_in_time(checkpoint, epoch, look) as listed:
        snapshot = write(checkpoint, epoch, card)
        listed(snapshot)
    return snapshot


@contextlib.contextmanager
def listed_in_time(
    checkpoint: Checkpoint, epoch: int, look: Callable[[str], None]
) -> Iterator[Callable[[Snapshot], None]]:
    """Have a snapshot of an epoch listed meanwhile: taken back again, if this run was superseded before that was done.

    What is given is told of it.
    """
    before = _term_of(checkpoint, epoch)
    listed: list[Snapshot] = []
    yield listed.append
    try:
        look("retention")
    except Superseded:
        for snapshot in listed:
            _withdraw(checkpoint, snapshot, before)
        raise


def _withdraw(checkpoint: Checkpoint, snapshot: Snapshot, term: int | None) -> None:
    """Take a snapshot back that was listed too late: whoever took over may have tidied up, or gone back.

    After a rewind its files may be there, and its epoch come again, by a newer run and with other rows.
    """
    with contextlib.suppress(FerrymanError, OSError):
        if checkpoint.snapshot(snapshot.epoch) != snapshot:
            return
        now = _term_of(checkpoint, snapshot.epoch)
        again = term is not None and now is not None and now > term
        needed = [f"manifests/{snapshot.epoch:012d}.json", *files_of(snapshot)]
        if again or not all(map(checkpoint.directory.exists, needed)):
            checkpoint.directory.delete([f"snapshots/{snapshot.epoch:012d}.json"])


def _term_of(checkpoint: Checkpoint, epoch: int) -> int | None:
    """Tell which run has committed an epoch; None where nothing tells."""
    try:
        return checkpoint.manifest(epoch).term
    except (MissingDelta, CorruptCheckpoint):
        return None
