"""The lmdb store: the contract, carried out in LMDB transactions.

One writer at a time, any number of readers on a snapshot each. What replaces or forgets whole mains does so in short
transactions, so that tasks which advance others need not wait; locks keep two of these apart. Calls the ledger and the
long keys of this folder, and the records that ordered databases share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import lmdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._state.compiled import Ints
from ferryman._state.keys import Keys, KeySchema
from ferryman._state.store import contract, record_keys, record_values, store_identity
from ferryman._state.store.contract import Found, Ranges, Rows
from ferryman._state.store.lmdb import ledger, long_keys
from ferryman._state.store.lmdb.environment import Environment
from ferryman._state.store.locks import Locks

# A transaction that replaces or forgets mains has about so many bytes, or records.
_TURN_BYTES = 1 << 20
_TURN_RECORDS = 500


class LmdbStore:
    """Hold mains of state of any type; see `contract.Store` for what each method does."""

    def __init__(self, directory: Path, key: KeySchema, state: pa.Schema, groups: int) -> None:
        self._key = key
        self._state = pa.schema([field.with_nullable(True) for field in state])
        self._groups = groups
        who = store_identity.identity("lmdb", key, state, groups)
        place = store_identity.claim(directory, who, lambda fresh: None).resolve()
        self._at = Environment.acquire(place)
        self._locks = Locks(place / "groups.lock")

    def epochs(self) -> Ints:
        with self._at.database.begin() as transaction:
            return ledger.read(transaction, self._at.ledger, self._groups)

    def lookup(self, keys: Keys) -> Found:
        records, whole = long_keys.records_of(keys, keys.groups(self._groups).astype(np.int64))
        with self._at.database.begin(db=self._at.rows) as transaction:
            values = [transaction.get(record) for record in records]
        present = np.fromiter((value is not None for value in values), np.bool_, len(values))
        rows = record_values.unpack(values, self._state)
        # The digest of a cut key says which record to read; only the whole key says whose it is.
        cut = [i for i, key in enumerate(whole) if key is not None and values[i] is not None]
        if any(rows.long_keys[i] != whole[i] for i in cut):
            for i in cut:
                present[i] = rows.long_keys[i] == whole[i]
            rows = record_values.unpack(
                [v if here else None for v, here in zip(values, present, strict=True)], self._state
            )
        return Found(present, pa.Table.from_arrays(rows.columns, schema=self._state))

    def apply(self, delta: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        wanted = np.asarray(groups, np.int64)
        with self._at.database.begin(write=True) as transaction:
            epochs = ledger.read(transaction, self._at.ledger, self._groups)
            advancing = contract.to_advance(epochs, wanted, epoch)
            if not len(advancing):
                return
            rows = Rows.of(delta, self._key, self._state, contract.mark(advancing, self._groups))
            self._write(transaction, rows)
            epochs[advancing] = epoch
            ledger.write(transaction, self._at.ledger, epochs)

    def ingest(self, part: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        wanted = np.asarray(groups, np.int64)
        with self._locks.held(np.sort(wanted)):
            # Without a main until all of it is there; in one transaction with the look, as `apply` takes no lock.
            with self._at.database.begin(write=True) as transaction:
                at = ledger.read(transaction, self._at.ledger, self._groups)
                anew = contract.to_replace(at, wanted, epoch)
                self._set_epochs(transaction, anew, -1)
            self._clear(anew)
            rows = Rows.of(part, self._key, self._state, contract.mark(anew, self._groups))
            for some in _turns(self._records_of(rows)):
                with self._at.database.begin(write=True) as transaction, transaction.cursor(db=self._at.rows) as cursor:
                    cursor.putmulti(some)
            with self._at.database.begin(write=True) as transaction:
                self._set_epochs(transaction, anew, epoch)

    def scan(self, group: int, as_of: int) -> pa.Table:
        with self._at.database.begin() as transaction:
            at = int(ledger.read(transaction, self._at.ledger, self._groups)[group])
            if at != as_of:
                raise contract.not_at(group, at, as_of)
            return self._part(list(self._records(transaction, group)))

    def _raw(self, record: bytes, value: bytes) -> bytes:
        whole = record_values.unpack([bytes(value)], self._state).long_keys[0]
        return record[record_keys.PREFIX :] if whole is None else whole

    def _part(self, found: list[tuple[bytes, bytes]]) -> pa.Table:
        rows = record_values.unpack([value for _, value in found], self._state)
        hashes = np.array(rows.hashes, np.int64)
        raw = [
            record[record_keys.PREFIX :] if key is None else key
            for (record, _), key in zip(found, rows.long_keys, strict=True)
        ]
        keys = Keys.of_raw(self._key, hashes, raw)
        columns = [pa.array(hashes), *keys.columns(), *rows.columns]
        return pa.Table.from_arrays(columns, schema=contract.part_schema(self._key, self._state))

    def ranges(self, groups: Sequence[int], low: Sequence[bytes], high: Sequence[bytes], limit: int) -> Ranges:
        index: list[int] = []
        found: list[tuple[bytes, bytes]] = []
        with self._at.database.begin() as transaction, transaction.cursor(db=self._at.rows) as cursor:
            for number, (group, first, end) in enumerate(zip(groups, low, high, strict=True)):
                head = record_keys.prefix(group)
                # A long key is cut in its record, so a long bound only says where to begin looking.
                stop = head + long_keys.cut(end)
                exact = len(first) <= long_keys.KEPT and len(end) <= long_keys.KEPT
                mine: list[tuple[bytes, bytes]] = []
                cut = False
                more = cursor.set_range(head + long_keys.cut(first))
                while more and (len(mine) < limit or cut):
                    record = bytes(cursor.key())
                    if record >= stop and (exact or record[: len(stop)] != stop):
                        break
                    # Records of keys that were cut are not in the order of the keys.
                    cut = cut or len(record) == long_keys.LONGEST
                    if exact or first <= self._raw(record, cursor.value()) < end:
                        mine.append((record, bytes(cursor.value())))
                    more = cursor.next()
                if cut:
                    mine.sort(key=lambda pair: self._raw(*pair))
                index += [number] * len(mine[:limit])
                found += mine[:limit]
        return Ranges(np.array(index, np.int64), self._part(found))

    def before(self, groups: npt.NDArray[np.integer], bound: pa.Scalar) -> pa.Table:
        end = contract.low_end(bound, nulls=self._key.nulls)
        listed = np.asarray(groups).tolist()
        return self.ranges(listed, [b""] * len(listed), [end] * len(listed), 1 << 62).part

    def drop(self, groups: npt.NDArray[np.integer]) -> None:
        wanted = np.asarray(groups, np.int64)
        with self._locks.held(np.sort(wanted)):
            with self._at.database.begin(write=True) as transaction:
                self._set_epochs(transaction, wanted, -1)
            self._clear(wanted)

    def mapped_bytes(self) -> int:
        return 0

    def release(self) -> None:
        return None

    def close(self) -> None:
        self._locks.close()
        self._at.free()

    def _write(self, transaction: lmdb.Transaction, rows: Rows) -> None:
        with transaction.cursor(db=self._at.rows) as cursor:
            cursor.putmulti(self._records_of(rows))
        gone = np.flatnonzero(rows.deleted)
        for record in long_keys.records_of(rows.keys.take(gone), rows.groups[gone])[0]:
            transaction.delete(record, db=self._at.rows)

    def _records_of(self, rows: Rows) -> list[tuple[bytes, bytes]]:
        """Pack the rows that are not deleted, in key order: neighbours share pages."""
        kept = np.flatnonzero(~rows.deleted)
        whole_delta = len(kept) == len(rows.keys)
        keys = rows.keys if whole_delta else rows.keys.take(kept)
        state = rows.state if whole_delta else [column.take(pa.array(kept)) for column in rows.state]
        records, whole = long_keys.records_of(keys, rows.groups[kept])
        return sorted(zip(records, record_values.pack(keys.hash.tolist(), whole, state), strict=True))

    def _clear(self, groups: Ints) -> None:
        """Take the rows of groups out that have no main any more."""
        left = [record_keys.prefix(group) for group in groups.tolist()]
        while left:
            with self._at.database.begin(write=True) as transaction, transaction.cursor(db=self._at.rows) as cursor:
                for _ in range(_TURN_RECORDS):
                    if cursor.set_range(left[-1]) and cursor.key()[: record_keys.PREFIX] == left[-1]:
                        cursor.delete()
                    else:
                        left.pop()
                        if not left:
                            break

    def _set_epochs(self, transaction: lmdb.Transaction, groups: Ints, epoch: int) -> None:
        epochs = ledger.read(transaction, self._at.ledger, self._groups)
        epochs[groups] = epoch
        ledger.write(transaction, self._at.ledger, epochs)

    def _records(self, transaction: lmdb.Transaction, group: int) -> Iterator[tuple[bytes, bytes]]:
        start = record_keys.prefix(group)
        with transaction.cursor(db=self._at.rows) as cursor:
            if not cursor.set_range(start):
                return
            for record, value in cursor:
                if record[: record_keys.PREFIX] != start:
                    return
                yield bytes(record), bytes(value)


def _turns(records: list[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Cut records into what is written in one transaction."""
    some: list[tuple[bytes, bytes]] = []
    size = 0
    for record in records:
        some.append(record)
        size += len(record[1])
        if size >= _TURN_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
