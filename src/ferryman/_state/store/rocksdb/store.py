"""The rocksdb store: the contract, carried out in batches of RocksDB.

Calls the environment, the ledger and the databases of this folder, and the records that ordered databases share.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rocksdict import WriteBatch

from ferryman._state.compiled import Ints
from ferryman._state.keys import Keys, KeySchema
from ferryman._state.store import contract, record_keys, record_values, store_identity
from ferryman._state.store.contract import Found, Ranges, Rows
from ferryman._state.store.rocksdb import ledger
from ferryman._state.store.rocksdb.database import Database
from ferryman._state.store.rocksdb.environment import Environment
from ferryman._state.store.rocksdb.options import BATCH_BYTES


class RocksdbStore:
    """Hold mains of state of any type and size; see `contract.Store` for what each method does."""

    def __init__(self, directory: Path, key: KeySchema, state: pa.Schema, groups: int) -> None:
        self._key = key
        self._state = pa.schema([field.with_nullable(True) for field in state])
        self._groups = groups
        who = store_identity.identity("rocksdb", key, state, groups)
        files = store_identity.claim(directory, who, lambda fresh: ledger.Ledger.create(fresh / "ledger", groups))
        self._at = Environment.acquire(files.resolve(), groups)

    def epochs(self) -> Ints:
        return self._at.epochs()

    def lookup(self, keys: Keys) -> Found:
        groups = keys.groups(self._groups).astype(np.int64)
        records = record_keys.of(keys, groups)
        values: list[bytes | None] = [None] * len(records)
        with self._at.held(groups) as databases:
            for database, rows in self._by_database(databases, groups):
                # In key order neighbours share blocks, which a random order would search again and again.
                order = sorted(rows.tolist(), key=records.__getitem__)
                for row, value in zip(order, database.get([records[place] for place in order]), strict=True):
                    values[row] = value
        present = np.fromiter((value is not None for value in values), np.bool_, len(values))
        columns = record_values.unpack(values, self._state).columns
        return Found(present, pa.Table.from_arrays(columns, schema=self._state))

    def apply(self, delta: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        wanted = np.asarray(groups, np.int64)
        if epoch == 0:
            self._at.settle(wanted)
        with self._at.held(wanted) as databases:
            at = self._at.ledger.epochs()
            advancing = contract.to_advance(at, wanted, epoch)
            if len(advancing):
                rows = Rows.of(delta, self._key, self._state, contract.mark(advancing, self._groups))
                self._write(databases, rows, advancing, epoch, anew=advancing[at[advancing] < 0])

    def ingest(self, part: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        wanted = np.asarray(groups, np.int64)
        self._at.settle(wanted)
        with self._at.held(wanted) as databases:
            anew = contract.to_replace(self._at.ledger.epochs(), wanted, epoch)
            if len(anew):
                rows = Rows.of(part, self._key, self._state, contract.mark(anew, self._groups))
                self._write(databases, rows, anew, epoch, anew=anew)

    def scan(self, group: int, as_of: int) -> pa.Table:
        with self._at.held(np.array([group])) as databases:
            at = int(self._at.ledger.epochs()[group])
            if at != as_of:
                raise contract.not_at(group, at, as_of)
            return self._part(databases[0].range(*_bounds(group)))

    def ranges(self, groups: Sequence[int], low: Sequence[bytes], high: Sequence[bytes], limit: int) -> Ranges:
        found: list[list[tuple[bytes, bytes]]] = [[] for _ in groups]
        wanted = np.array(groups, np.int64)
        with self._at.held(wanted) as databases:
            for database, numbers in self._by_database(databases, wanted):
                for number in numbers.tolist():
                    head = record_keys.prefix(groups[number])
                    found[number] = database.range(head + low[number], head + high[number], limit)
        index = np.repeat(np.arange(len(found)), [len(records) for records in found])
        return Ranges(index, self._part([record for records in found for record in records]))

    def before(self, groups: npt.NDArray[np.integer], bound: pa.Scalar) -> pa.Table:
        end = contract.low_end(bound, nulls=self._key.nulls)
        listed = np.asarray(groups).tolist()
        return self.ranges(listed, [b""] * len(listed), [end] * len(listed), 1 << 62).part

    def drop(self, groups: npt.NDArray[np.integer]) -> None:
        wanted = np.asarray(groups, np.int64)
        nothing = contract.part_schema(self._key, self._state).empty_table()
        rows = Rows.of(nothing, self._key, self._state, contract.mark(wanted, self._groups))
        some = wanted[self._at.ledger.database[wanted] >= 0]
        with self._at.held(some) as databases:
            self._write(databases, rows, some, -1, anew=some)

    def mapped_bytes(self) -> int:
        return 0

    def release(self) -> None:
        self._at.yield_up()

    def close(self) -> None:
        self._at.free()

    def _by_database(self, databases: list[Database], groups: Ints) -> list[tuple[Database, Ints]]:
        """Give, for each database, the positions of its groups among some."""
        numbers = self._at.ledger.database[groups]
        return [(database, np.flatnonzero(numbers == database.number)) for database in databases]

    def _write(self, databases: list[Database], rows: Rows, groups: Ints, epoch: int, anew: Ints) -> None:
        """Bring groups, whose databases are held, to an epoch; those in `anew` lose what they have."""
        marks = self._at.ledger
        marks.torn[groups] = 1
        mine = dict(self._by_database(databases, rows.groups))
        for database, positions in self._by_database(databases, groups):
            epochs = marks.inside(database.number)
            epochs[groups[positions]] = -1
            ends = _ends(rows, mine[database])
            for start, end in zip([0, *ends[:-1]], ends, strict=True):
                batch = WriteBatch(raw_mode=True)
                if start == 0:
                    _clear(batch, database, np.intersect1d(anew, groups[positions]))
                self._put(batch, rows, mine[database][start:end])
                # A kill before the last of several batches must find no main.
                if end == ends[-1]:
                    epochs[groups[positions]] = epoch
                ledger.write(batch, epochs)
                database.write(batch)
        marks.epoch[groups] = epoch
        marks.torn[groups] = 0

    def _put(self, batch: WriteBatch, rows: Rows, positions: Ints) -> None:
        kept = positions[~rows.deleted[positions]]
        keys = rows.keys.take(kept)
        records = record_keys.of(keys, rows.groups[kept])
        state = [column.take(pa.array(kept)) for column in rows.state]
        values = record_values.pack(keys.hash.tolist(), [None] * len(kept), state)
        # The skip list finds the place of a key next to the last one quickly.
        for record, value in sorted(zip(records, values, strict=True)):
            batch.put(record, value)
        gone = positions[rows.deleted[positions]]
        for record in record_keys.of(rows.keys.take(gone), rows.groups[gone]):
            batch.delete(record)

    def _part(self, found: list[tuple[bytes, bytes]]) -> pa.Table:
        rows = record_values.unpack([value for _, value in found], self._state)
        hashes = np.array(rows.hashes, np.int64)
        keys = Keys.of_raw(self._key, hashes, [record[record_keys.PREFIX :] for record, _ in found])
        columns = [pa.array(hashes), *keys.columns(), *rows.columns]
        return pa.Table.from_arrays(columns, schema=contract.part_schema(self._key, self._state))


def _bounds(group: int) -> tuple[bytes, bytes]:
    head = record_keys.prefix(group)
    return head, contract.end_of(head)


def _clear(batch: WriteBatch, database: Database, groups: Ints) -> None:
    for group in groups.tolist():
        # Every range that is deleted makes lookups slower until it is compacted away.
        if database.range(*_bounds(group), limit=1):
            batch.delete_range(*_bounds(group))


def _ends(rows: Rows, positions: Ints) -> list[int]:
    """Cut rows into batches of a limited size; give where each ends."""
    size = sum(column.nbytes for column in rows.state) + rows.keys.data.nbytes
    count = max(1, len(rows.keys))
    step = max(1, BATCH_BYTES * count // max(1, size))
    return [*range(step, len(positions), step), len(positions)]
