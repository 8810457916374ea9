"""Fold deltas into state: the one way from the log to rows, for recovery, snapshots, queries and checks.

A delta row replaces all earlier rows of its key. So a chain of deltas, or a snapshot and the deltas
after it, folds by keeping the last row of every key and leaving out the deleted ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._log.cards import evolution_of, schemas_of
from ferryman._log.checkpoint import Checkpoint, chain
from ferryman._log.sound import fitted, parquet_of, parts_of
from ferryman._model.errors import MissingDelta, UnknownOption
from ferryman._model.records import JobCard, Snapshot, SnapshotFile, TableCard
from ferryman._state.evolve import Evolution
from ferryman._state.keys import Keys, KeySchema, last
from ferryman._state.store.contract import DELETED, HASH, delta_schema, part_schema

RUN_ROWS = 4 << 20

Groups = npt.NDArray[np.int64]


def keys_of(rows: pa.Table, key: KeySchema) -> Keys:
    """Take the keys out of a part or a delta."""
    hashes = rows.column(HASH).to_numpy()
    return Keys.of(key, hashes, [rows.column(name) for name in key.fields.names])


def of_groups(rows: pa.Table, groups: Groups | None, total: int) -> pa.Table:
    """Keep the rows of some key groups."""
    if groups is None or rows.num_rows == 0:
        return rows
    wanted = np.zeros(total, dtype=bool)
    wanted[groups] = True
    mask = wanted[np.mod(rows.column(HASH).to_numpy(), total)]
    return rows if mask.all() else rows.filter(pa.array(mask))


def runs_of_groups(total: int, rows: int, at_most: int = RUN_ROWS) -> list[Groups | None]:
    """Cut a job's key groups into runs of about so many rows each; one run of all groups is None."""
    runs = min(-(-rows // at_most), total)
    return [None] if runs <= 1 else list(np.array_split(np.arange(total), runs))


def fold_deltas(deltas: Sequence[pa.Table], key: KeySchema) -> pa.Table:
    """Fold a chain of deltas, oldest first, into one delta."""
    if len(deltas) == 1:
        return deltas[0]
    rows = pa.concat_tables(deltas).combine_chunks()
    return rows.take(pa.array(last(keys_of(rows, key))))


def fold(
    part: pa.Table | None,
    delta: pa.Table | None,
    key: KeySchema,
    state: pa.Schema,
    evolution: Evolution = Evolution(),  # noqa: B008  it is frozen
) -> pa.Table:
    """Fold a delta into a part: the state after it."""
    schema = part_schema(key, state)
    # Parquet has no seconds, for one: what was read from a snapshot may be of a neighbouring type.
    part = schema.empty_table() if part is None else evolution.fit(part, schema)
    if delta is None or delta.num_rows == 0:
        return part
    index = 1
    marked = part.add_column(index, delta.schema.field(index), pa.repeat(False, part.num_rows))
    rows = pa.concat_tables([marked.cast(delta.schema), delta]).combine_chunks()
    rows = rows.take(pa.array(last(keys_of(rows, key))))
    return rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])


def read_snapshot_file(checkpoint: Checkpoint, one: SnapshotFile, groups: Groups | None, total: int) -> pa.Table:
    """Read the rows of some key groups from a snapshot's file, checked."""
    data = checkpoint.verified(one.file, one.checksum, one.bytes)
    with checkpoint.sound(one.file):
        file, held = parquet_of(data, one.bytes, total)
        wanted = range(len(held)) if groups is None else np.flatnonzero(np.isin(held, groups)).tolist()
        parts = parts_of(file, wanted, one.bytes, one.decoded)
    rows = pa.concat_tables(parts) if parts else file.schema_arrow.empty_table()
    return rows.replace_schema_metadata(None)


def read_snapshot(
    checkpoint: Checkpoint, snapshot: Snapshot, table: str, groups: Groups | None, card: TableCard, total: int
) -> pa.Table | None:
    """Read the rows of some key groups of a table from a snapshot; None where it has none."""
    key, state = schemas_of(card)
    schema, evolution = part_schema(key, state), evolution_of(card)
    parts = []
    for one in snapshot.tables.get(table, ()):
        if groups is None or bool(((groups >= one.first) & (groups <= one.last)).any()):
            rows = read_snapshot_file(checkpoint, one, groups, total)
            with checkpoint.sound(one.file):
                parts.append(fitted(rows, schema, key, evolution))
    return pa.concat_tables(parts).combine_chunks() if parts else None


def read_chain(
    checkpoint: Checkpoint, table: str, after: int, upto: int, groups: Groups | None, card: JobCard
) -> pa.Table | None:
    """Read and fold the deltas of a table after one epoch and up to another."""
    key, state = schemas_of(card.tables[table])
    evolution, schema = evolution_of(card.tables[table]), delta_schema(key, state)
    deltas = []
    for _, ref in chain(checkpoint, table, after, upto):
        rows = checkpoint.read_delta(ref)
        with checkpoint.sound(ref.file):
            deltas.append(of_groups(fitted(rows, schema, key, evolution), groups, card.groups))
    return fold_deltas(deltas, key) if deltas else None


def base_of(checkpoint: Checkpoint, epoch: int) -> tuple[Snapshot | None, int]:
    """Give the snapshot that an epoch is rebuilt from, if there is one, and the epoch after which deltas are needed."""
    base = checkpoint.snapshot_before(epoch)
    after = base.epoch if base else 0
    if epoch > after:
        kept = checkpoint.epochs()
        if not kept or kept[0] > after + 1 or kept[-1] < epoch:
            raise MissingDelta(
                f"epoch {epoch} of {checkpoint.directory.uri} cannot be rebuilt: it needs the deltas of epochs "
                f"{after + 1} to {epoch}, and the manifests kept are {kept[:1] or 'none'} to {kept[-1:] or 'none'}."
                " Ask for an epoch inside the retention."
            )
    return base, after


def rebuild(
    checkpoint: Checkpoint, table: str, epoch: int, groups: Groups | None = None, *, card: JobCard | None = None
) -> pa.Table:
    """Rebuild a table's state as of a committed epoch, from the checkpoint directory alone.

    With a card, as that declares it: the one of a job that was declared anew is written with its first epoch.
    """
    while True:
        snapshots = checkpoint.snapshots()
        try:
            return _rebuild(checkpoint, table, epoch, groups, card or checkpoint.card())
        except MissingDelta:
            # The retention may have replaced what we were reading; then there is a newer snapshot to begin with.
            if checkpoint.snapshots() == snapshots:
                raise


def _rebuild(checkpoint: Checkpoint, table: str, epoch: int, groups: Groups | None, card: JobCard | None) -> pa.Table:
    if card is None or table not in card.tables:
        known = ", ".join(sorted(card.tables)) if card else "none"
        raise UnknownOption(f"{checkpoint.directory.uri} has no table {table!r}; it has: {known}. Check the name.")
    key, state = schemas_of(card.tables[table])
    base, after = base_of(checkpoint, epoch)
    part = read_snapshot(checkpoint, base, table, groups, card.tables[table], card.groups) if base else None
    delta = read_chain(checkpoint, table, after, epoch, groups, card)
    return fold(part, delta, key, state, evolution_of(card.tables[table]))
