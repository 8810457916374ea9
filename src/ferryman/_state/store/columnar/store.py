"""The columnar store: the contract, carried out on mapped pages.

Calls the ledger, the mains, the codec and the kernels of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._model.errors import UnknownOption
from ferryman._state import flat
from ferryman._state.compiled import Ints
from ferryman._state.keys import Keys, KeySchema
from ferryman._state.store import contract, home
from ferryman._state.store.columnar import kernels
from ferryman._state.store.columnar.codec import from_cells, to_cells, validity_words
from ferryman._state.store.columnar.layout import (
    HASH_COLUMN,
    KEY_COLUMN,
    LENGTH_COLUMN,
    key_columns,
    row_limit,
)
from ferryman._state.store.columnar.ledger import Ledger
from ferryman._state.store.columnar.mains import Mains
from ferryman._state.store.contract import Found, Ranges, Rows
from ferryman._state.store.locks import Locks
from ferryman._state.words import fits_word


class ColumnarStore:
    """Hold mains of narrow typed state; see `contract.Store` for what each method does."""

    def __init__(self, directory: Path, key: KeySchema, state: pa.Schema, groups: int) -> None:
        narrow = flat.schema(state)
        wrong = [f"{each.name} ({each.type})" for each in narrow if not fits_word(each.type)]
        if wrong:
            raise UnknownOption(
                f"The columnar backend cannot hold {', '.join(wrong)}: it keeps values of at most 8 bytes. "
                "Use the lmdb backend for this state."
            )
        self._key = key
        self._declared = state
        self._state = narrow
        self._groups = groups
        self._wide = key.kind == "bytes"
        self._skip = key_columns(self._wide)
        self._columns = self._skip + validity_words(narrow) + len(narrow)
        who = home.identity("columnar", key, state, groups)
        files = home.claim(directory, who, lambda fresh: Ledger.create(fresh / "ledger", groups))
        self._ledger = Ledger(files / "ledger", groups)
        self._locks = Locks(files / "groups.lock")
        self._mains = Mains(files, self._ledger, self._columns, self._wide)

    def epochs(self) -> Ints:
        return self._ledger.epochs()

    def lookup(self, keys: Keys) -> Found:
        groups = keys.groups(self._groups).astype(np.int64)
        self._mains.refresh(self._touched(groups))
        rows = self._find(keys, groups)
        cells = kernels.gather(rows, groups, self._mains.base, self._mains.slots, self._columns, self._skip)
        present = rows >= 0
        columns = from_cells(cells, self._state, None if present.all() else present)
        return Found(
            present, pa.Table.from_arrays(flat.rise(columns, self._declared), schema=_nullable(self._declared))
        )

    def apply(self, delta: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        wanted = np.asarray(groups, np.int64)
        with self._locks.held(wanted):
            at = self._ledger.epochs()
            advancing = contract.to_advance(at, wanted, epoch)
            rows = Rows.of(delta, self._key, self._declared, contract.mark(advancing, self._groups))
            missing = advancing[at[advancing] < 0]
            touched = contract.mark(self._touched(rows.groups), self._groups)
            touched[missing] = True
            marked = np.flatnonzero(touched)
            self._ledger.torn[marked] = 1
            if len(missing):
                self._mains.empty(missing)
            self._write(rows)
            self._ledger.epoch[advancing] = epoch
            self._ledger.torn[marked] = 0

    def ingest(self, part: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        wanted = np.asarray(groups, np.int64)
        rows = Rows.of(part, self._key, self._declared, contract.mark(wanted, self._groups))
        with self._locks.held(wanted):
            self._ledger.torn[wanted] = 1
            self._mains.empty(wanted)
            self._write(rows)
            self._ledger.epoch[wanted] = epoch
            self._ledger.torn[wanted] = 0

    def scan(self, group: int, as_of: int) -> pa.Table:
        at = int(self._ledger.epochs()[group])
        if at != as_of:
            raise contract.not_at(group, at, as_of)
        part = self._read(group)
        at = int(self._ledger.epochs()[group])
        if at != as_of:
            raise contract.not_at(group, at, as_of)
        return part

    def ranges(self, groups: Sequence[int], low: Sequence[bytes], high: Sequence[bytes], limit: int) -> Ranges:
        raise NotImplementedError("the columnar backend has no order of keys")

    def drop(self, groups: npt.NDArray[np.integer]) -> None:
        wanted = np.asarray(groups, np.int64)
        with self._locks.held(wanted):
            self._ledger.torn[wanted] = 1
            self._mains.empty(wanted)
            self._ledger.epoch[wanted] = -1
            self._ledger.torn[wanted] = 0

    def mapped_bytes(self) -> int:
        return self._mains.mapped_bytes()

    def release(self) -> None:
        self._mains.release()

    def close(self) -> None:
        self._mains.release()
        self._ledger.close()
        self._locks.close()

    def _touched(self, groups: Ints) -> Ints:
        return np.flatnonzero(np.bincount(groups, minlength=self._groups))

    def _find(self, keys: Keys, groups: Ints) -> Ints:
        mains = self._mains
        return kernels.find(
            keys.hash, keys.words, keys.offsets, keys.data, groups,
            mains.base, mains.slots, mains.heaps, self._columns,
        )  # fmt: skip

    def _write(self, rows: Rows) -> None:
        """Write rows into the mains of their groups, which are locked and marked torn."""
        if not len(rows.keys):
            return
        keys, mains = rows.keys, self._mains
        mains.refresh(self._touched(rows.groups))
        new = np.flatnonzero((self._find(keys, rows.groups) < 0) & ~rows.deleted)
        inserts = np.bincount(rows.groups[new], minlength=self._groups)
        text = np.zeros(self._groups, np.int64)
        if self._wide:
            np.add.at(text, rows.groups[new], np.diff(keys.offsets)[new])
        mains.reserve(inserts, text)
        kernels.write(
            keys.hash, keys.words, keys.offsets, keys.data, rows.groups, rows.deleted,
            to_cells(flat.fall(rows.state), len(keys)), mains.base, mains.slots, mains.heaps,
            self._columns, self._ledger.rows, self._ledger.heap,
        )  # fmt: skip

    def _read(self, group: int) -> pa.Table:
        mains = self._mains
        mains.refresh(np.array([group]))
        base, slots = int(mains.base[group]), int(mains.slots[group])
        # Both may belong to a writer's next file, until the caller finds that the epoch has moved.
        count = min(int(self._ledger.rows[group]), row_limit(slots))
        numbers = np.arange(count)
        cells = kernels.gather(numbers, np.full(count, group), mains.base, mains.slots, self._columns, 0)
        if self._wide:
            offsets, data = kernels.key_text(
                base, slots, self._columns, int(mains.heaps[group]), cells[KEY_COLUMN], cells[LENGTH_COLUMN]
            )
            keys = Keys(self._key, cells[HASH_COLUMN], offsets=offsets, data=data)
        else:
            keys = Keys(self._key, cells[HASH_COLUMN], words=cells[KEY_COLUMN])
        state = flat.rise(from_cells(cells[self._skip :], self._state), self._declared)
        columns = [pa.array(keys.hash), *keys.columns(), *state]
        schema = contract.part_schema(self._key, _nullable(self._declared))
        return pa.Table.from_arrays(columns, schema=schema)


def _nullable(state: pa.Schema) -> pa.Schema:
    """Let every column be null: a key without state has nothing else to show."""
    return pa.schema([each.with_nullable(True) for each in state])
