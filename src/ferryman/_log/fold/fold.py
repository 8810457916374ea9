"""Fold deltas into state: the one way from the log to rows, for recovery, snapshots, queries and checks.

A delta row replaces all earlier rows of its key. So a chain of deltas, or a snapshot and the deltas
after it, folds by keeping the last row of every key and leaving out the deleted ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._log.files.cards import evolution_of, schemas_of
from ferryman._log.files.checkpoint import Checkpoint, chain
from ferryman._log.files.untrusted import Unsound, fitted, parquet_of, parts_of
from ferryman._log.fold.bases import Groups, parts_before
from ferryman._model.card import JobCard, TableCard
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import MissingDelta, UnknownOption
from ferryman._model.key_groups import group_of
from ferryman._model.routing import RoutingTable
from ferryman._model.snapshot import Snapshot, SnapshotFile
from ferryman._state.earlier_columns import Evolution
from ferryman._state.keys import Keys, KeySchema, last
from ferryman._state.store.contract import DELETED, HASH, delta_schema, part_schema

RUN_ROWS = 4 << 20
# How much of a file of a snapshot is read at once.
RUN_BYTES = 8 << 20

T = TypeVar("T")


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
    mask = wanted[group_of(rows.column(HASH).to_numpy(), total)]
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


def fold(part: pa.Table | None, delta: pa.Table, key: KeySchema, state: pa.Schema) -> pa.Table:
    """Fold a delta into a part: the state after it."""
    part = part_schema(key, state).empty_table() if part is None else part
    if delta.num_rows == 0:
        return part
    index = 1
    marked = part.add_column(index, delta.schema.field(index), pa.repeat(False, part.num_rows))
    rows = pa.concat_tables([marked.cast(delta.schema), delta]).combine_chunks()
    rows = rows.take(pa.array(last(keys_of(rows, key))))
    return rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])


@dataclass(frozen=True, kw_only=True)
class LoggedTable:
    """One table of a log, read as it is declared now, whatever it was when a file of it was written.

    Attributes
    ----------
    total
        How many key groups the job has.
    """

    name: str
    key: KeySchema
    state: pa.Schema
    total: int
    evolution: Evolution = Evolution()  # noqa: RUF009  it is frozen

    @classmethod
    def of(cls, name: str, card: TableCard, total: int) -> LoggedTable:
        """Give the table of a card."""
        key, state = schemas_of(card)
        return cls(name=name, key=key, state=state, total=total, evolution=evolution_of(card))

    def read_delta(self, checkpoint: Checkpoint, ref: DeltaRef, groups: Groups | None = None) -> pa.Table:
        """Read a delta, or what it has of some key groups."""
        rows = checkpoint.read_delta(ref)
        with checkpoint.sound(ref.file):
            rows = fitted(rows, delta_schema(self.key, self.state), self.key, self.evolution)
        return of_groups(rows, groups, self.total)

    def read_runs(
        self, checkpoint: Checkpoint, file: SnapshotFile, groups: Groups | None = None
    ) -> Iterator[tuple[Groups, pa.Table]]:
        """Read a file of a snapshot, or what it has of some key groups, a run of groups at a time.

        Those that it has no rows of come with the last run. A run is small, so that the memory of one does for the
        next: memory that was never used before takes longer to get than all the rest.
        """
        data = checkpoint.verified(file.file, file.checksum, file.bytes)
        with checkpoint.sound(file.file):
            parquet, stored = parquet_of(data, file.bytes, self.total)
            if stored != sorted(stored):
                raise Unsound("does not hold its key groups in their order")
            wanted = range(len(stored)) if groups is None else np.flatnonzero(np.isin(stored, groups)).tolist()
            left = np.unique(stored) if groups is None else groups
            run: list[pa.Table] = []
            for number, part in zip(wanted, parts_of(parquet, wanted, file.bytes, file.decoded), strict=True):
                # A large group has several row groups.
                if sum(earlier.nbytes for earlier in run) >= RUN_BYTES and stored[number] != stored[number - 1]:
                    yield left[left < stored[number]], self._fitted(run)
                    left, run = left[left >= stored[number]], []
                run.append(part)
            yield left, self._fitted(run or [parquet.schema_arrow.empty_table()])

    def _fitted(self, run: list[pa.Table]) -> pa.Table:
        rows = pa.concat_tables(run).replace_schema_metadata(None)
        return fitted(rows, part_schema(self.key, self.state), self.key, self.evolution)

    def read_part(self, checkpoint: Checkpoint, file: SnapshotFile, groups: Groups | None = None) -> pa.Table:
        """Read a file of a snapshot, or what it has of some key groups."""
        return pa.concat_tables([run for _, run in self.read_runs(checkpoint, file, groups)])

    def read_parts(
        self, checkpoint: Checkpoint, snapshot: Snapshot | None, groups: Groups
    ) -> Iterator[tuple[Groups, pa.Table]]:
        """Read some key groups from a snapshot, file by file; those that no file has come last, with no rows."""
        left = groups
        for file in snapshot.tables.get(self.name, ()) if snapshot else ():
            inside = (left >= file.first) & (left <= file.last)
            if inside.any():
                yield left[inside], self.read_part(checkpoint, file, left[inside])
                left = left[~inside]
        yield left, part_schema(self.key, self.state).empty_table()

    def read_snapshot(self, checkpoint: Checkpoint, snapshot: Snapshot | None, groups: Groups | None) -> pa.Table:
        """Read what a snapshot has of some key groups."""
        every = np.arange(self.total) if groups is None else groups
        return pa.concat_tables([part for _, part in self.read_parts(checkpoint, snapshot, every)]).combine_chunks()

    def read_chain(
        self, checkpoint: Checkpoint, after: int, upto: int, groups: Groups | None
    ) -> Iterator[tuple[int, pa.Table]]:
        """Read the deltas of some key groups after one epoch and up to another, oldest first, each with its epoch."""
        owners: dict[int, set[int]] = {}
        for manifest, ref in chain(checkpoint, self.name, after, upto, self.total):
            if groups is not None and manifest.epoch not in owners:
                owners = {manifest.epoch: _owners(manifest.routing, groups)}
            if groups is None or ref.instance in owners[manifest.epoch]:
                yield manifest.epoch, self.read_delta(checkpoint, ref, groups)

    def folded(self, deltas: Sequence[pa.Table]) -> pa.Table:
        """Fold a chain of deltas, oldest first, into one delta; an empty one if there are none."""
        return fold_deltas(deltas, self.key) if deltas else delta_schema(self.key, self.state).empty_table()


def _owners(routing: RoutingTable, groups: Groups) -> set[int]:
    """Give the instances that own keys of some key groups: no other has any in its delta."""
    owners = set(np.asarray(routing.owner)[groups].tolist())
    return owners.union(*(instances for group, instances in routing.workers().items() if group in groups))


def despite_retention(checkpoint: Checkpoint, read: Callable[[], T]) -> T:
    """Read what the retention may be replacing: again, as long as there is a newer snapshot to begin with."""
    while True:
        snapshots = checkpoint.snapshots()
        try:
            return read()
        except MissingDelta:
            if checkpoint.snapshots() == snapshots:
                raise


def rebuild(
    checkpoint: Checkpoint, table: str, epoch: int, groups: Groups | None = None, *, card: JobCard | None = None
) -> pa.Table:
    """Rebuild a table's state as of a committed epoch, from the checkpoint directory alone.

    With a card, as that declares it: the one of a job that was declared anew is written with its first epoch.
    """
    return despite_retention(checkpoint, lambda: _rebuild(checkpoint, table, epoch, groups, card or checkpoint.card()))


def _rebuild(checkpoint: Checkpoint, name: str, epoch: int, groups: Groups | None, card: JobCard | None) -> pa.Table:
    if card is None or name not in card.tables:
        known = ", ".join(sorted(card.tables)) if card else "none"
        raise UnknownOption(f"{checkpoint.directory.uri} has no table {name!r}; it has: {known}. Check the name.")
    return rebuilt(checkpoint, LoggedTable.of(name, card.tables[name], card.groups), epoch, groups)


def rebuilt(checkpoint: Checkpoint, table: LoggedTable, epoch: int, groups: Groups | None = None) -> pa.Table:
    """Fold the state of some key groups as of an epoch; of some the chain may be longer than of others."""
    bases: dict[int, list[tuple[Groups, pa.Table]]] = {}
    every = np.arange(table.total) if groups is None else groups
    for within, part, after in parts_before(checkpoint, table, epoch, every):
        bases.setdefault(after, []).append((within, part))
    found = []
    for after, parts in bases.items():
        whose = groups if len(bases) == 1 else np.concatenate([mine for mine, _ in parts])
        deltas = [delta for _, delta in table.read_chain(checkpoint, after, epoch, whose)]
        part = pa.concat_tables([part for _, part in parts]).combine_chunks()
        found.append(fold(part, table.folded(deltas), table.key, table.state))
    if not found:
        return part_schema(table.key, table.state).empty_table()
    return found[0] if len(found) == 1 else pa.concat_tables(found).combine_chunks()
