"""The columnar store: the contract, carried out on mapped pages.

Calls the ledger, the files, the codec and the kernels of this folder.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._model.errors import UnknownOption
from ferryman._state import flat_structs
from ferryman._state import kernels as key_kernels
from ferryman._state.compiled import Bytes, Ints
from ferryman._state.keys import Keys, KeySchema
from ferryman._state.store import contract, store_identity
from ferryman._state.store.columnar import kernels
from ferryman._state.store.columnar.codec import from_cells, to_cells, validity_words
from ferryman._state.store.columnar.file_layout import (
    AT,
    DELTA,
    HASH_COLUMN,
    KEY_COLUMN,
    LENGTH_COLUMN,
    MAIN,
    key_columns,
)
from ferryman._state.store.columnar.files import Files
from ferryman._state.store.columnar.ledger import Ledger
from ferryman._state.store.contract import Found, Ranges, Rows
from ferryman._state.store.locks import Locks
from ferryman._state.words import fits_word

T = TypeVar("T")


class ColumnarStore:
    """Hold mains of narrow typed state; see `contract.Store` for what each method does."""

    def __init__(self, directory: Path, key: KeySchema, state: pa.Schema, groups: int) -> None:
        narrow = flat_structs.schema(state)
        wrong = [f"{field.name} ({field.type})" for field in narrow if not fits_word(field.type)]
        if wrong:
            raise UnknownOption(
                f"The columnar backend cannot hold {', '.join(wrong)}: it keeps values of at most 8 bytes. "
                "Use the lmdb backend for this state."
            )
        self._key = key
        self._declared = state
        # All entries of a key have its hash, so the index has to go by another; theirs is kept beside.
        self._state = narrow.append(pa.field(contract.HASH, pa.int64())) if key.entries else narrow
        narrow = self._state
        self._groups = groups
        self._wide = key.kind == "bytes"
        self._skip = key_columns(self._wide)
        self._columns = self._skip + validity_words(narrow) + len(narrow)
        who = store_identity.identity("columnar", key, state, groups)
        files = store_identity.claim(directory, who, lambda fresh: Ledger.create(fresh / "ledger", groups))
        self._ledger = Ledger(files / "ledger", groups)
        self._locks = Locks(files / "groups.lock")
        # One thread of a process at a time: another one may unmap what this one reads.
        self._turn = threading.Lock()
        self._files = Files(files, self._ledger, self._columns, self._wide)

    def epochs(self) -> Ints:
        return self._ledger.epochs()

    def lookup(self, keys: Keys) -> Found:
        groups = keys.groups(self._groups).astype(np.int64)

        def read() -> tuple[Ints, Ints]:
            places = kernels.find(
                self._index_hash(keys), keys.words, keys.offsets, keys.data, groups,
                self._files.shapes, self._files.fresh, self._columns,
            )  # fmt: skip
            return places, kernels.gather(places, groups, self._files.shapes, self._columns, self._skip)

        places, cells = self._steady(self._touched(groups), read)
        present = places >= 0
        columns = from_cells(cells, self._state, None if present.all() else present)[
            : len(self._state) - self._key.entries
        ]
        return Found(
            present, pa.Table.from_arrays(flat_structs.rise(columns, self._declared), schema=_nullable(self._declared))
        )

    def apply(self, delta: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        wanted = np.asarray(groups, np.int64)
        with self._turn, self._locks.held(np.sort(wanted)):
            self._repair(wanted)
            advancing = contract.to_advance(self._ledger.epochs(), wanted, epoch)
            rows = Rows.of(delta, self._key, self._declared, contract.mark(advancing, self._groups))
            touched = self._touched(rows.groups)
            counts, text = self._sizes(rows)
            self._files.reserve(touched, counts[touched], text[touched])
            _, (_, files, fresh, used) = self._ledger.read(advancing)
            counts[advancing], text[advancing] = fresh, used
            cells = self._cells(rows)
            self._ledger.writing[touched] = 1
            kernels.barrier()
            self._append(rows, cells, DELTA, counts, text)
            self._ledger.commit(advancing, epoch, files, counts[advancing], text[advancing])
            self._ledger.writing[touched] = 0

    def ingest(self, part: pa.Table, groups: npt.NDArray[np.integer], epoch: int) -> None:
        wanted = np.asarray(groups, np.int64)
        with self._turn, self._locks.held(np.sort(wanted)):
            anew = contract.to_replace(self._ledger.epochs(), wanted, epoch)
            rows = Rows.of(part, self._key, self._declared, contract.mark(anew, self._groups))
            counts, text = self._sizes(rows)
            numbers = np.zeros(self._groups, np.int64)
            for group in np.flatnonzero(counts).tolist():
                numbers[group] = self._files.blank(group, int(counts[group]), int(text[group]))
            cells = self._cells(rows)
            self._append(rows, cells, MAIN, np.zeros_like(counts), np.zeros_like(text))
            self._switch(anew, epoch, numbers[anew])

    def scan(self, group: int, as_of: int) -> pa.Table:
        at = int(self._ledger.epochs()[group])
        if at != as_of:
            raise contract.not_at(group, at, as_of)
        part = self._part(*self._steady(np.array([group]), lambda: self._read(group)))
        at = int(self._ledger.epochs()[group])
        if at != as_of:
            raise contract.not_at(group, at, as_of)
        return part

    def before(self, groups: npt.NDArray[np.integer], bound: pa.Scalar) -> pa.Table:
        wanted = np.unique(np.asarray(groups, np.int64))
        skip, limit = int(self._key.nulls), int.from_bytes(contract.low_end(bound, nulls=False), "big") - (1 << 63)

        def read() -> tuple[Ints, Ints, Bytes]:
            files = self._files
            places, owners = kernels.early(wanted, files.shapes, files.fresh, self._columns, skip, limit)
            return self._cells_at(places, owners)

        return self._part(*self._steady(wanted, read))

    def ranges(self, groups: Sequence[int], low: Sequence[bytes], high: Sequence[bytes], limit: int) -> Ranges:
        raise NotImplementedError("the columnar backend has no order of keys")

    def drop(self, groups: npt.NDArray[np.integer]) -> None:
        wanted = np.asarray(groups, np.int64)
        with self._turn, self._locks.held(np.sort(wanted)):
            self._switch(wanted, -1, np.zeros_like(wanted))

    def mapped_bytes(self) -> int:
        return self._files.mapped_bytes()

    def release(self) -> None:
        with self._turn:
            self._files.release()

    def close(self) -> None:
        self.release()
        self._ledger.close()
        self._locks.close()

    def _steady(self, groups: Ints, read: Callable[[], T]) -> T:
        """Read files of groups without a lock, and once more with it if a writer was at work meanwhile."""
        with self._turn:
            answer = None
            version = self._files.refresh(groups)
            if not self._ledger.writing[groups].any():
                # What a writer is at may read as anything, also as more than there is memory for.
                with contextlib.suppress(MemoryError):
                    answer = read()
                kernels.barrier()
                if (
                    answer is not None
                    and not self._ledger.writing[groups].any()
                    and (self._ledger.version[groups] == version).all()
                ):
                    return answer
            with self._locks.held(groups):
                self._repair(groups)
                self._files.refresh(groups)
                return read()

    def _repair(self, groups: Ints) -> None:
        """Take back what a process had begun to append when it died; the caller holds the locks."""
        torn = groups[self._ledger.writing[groups] != 0]
        self._files.refresh(torn)
        for group in torn.tolist():
            if self._files.shapes[AT, group]:
                kernels.reindex(group, self._files.shapes, int(self._files.fresh[group]), self._columns, self._wide)
        # Again what it was, as another version: a reader may have begun before the one that died.
        _, (epochs, files, fresh, text) = self._ledger.read(torn)
        self._ledger.commit(torn, epochs, files, fresh, text)
        self._ledger.writing[torn] = 0

    def _switch(self, groups: Ints, epoch: int, files: Ints) -> None:
        """Let new files, or none, be the mains of groups, whose locks the caller holds."""
        self._ledger.commit(groups, epoch, files)
        self._ledger.writing[groups] = 0
        self._files.remove(groups[files == 0].tolist())
        self._files.keep(groups[files != 0], files[files != 0])

    def _touched(self, groups: Ints) -> Ints:
        return np.flatnonzero(np.bincount(groups, minlength=self._groups))

    def _sizes(self, rows: Rows) -> tuple[Ints, Ints]:
        """Give how many rows, and bytes of keys, there are for each group."""
        text = np.zeros(self._groups, np.int64)
        if self._wide:
            np.add.at(text, rows.groups, np.diff(rows.keys.offsets))
        return np.bincount(rows.groups, minlength=self._groups), text

    def _index_hash(self, keys: Keys) -> Ints:
        """Give the hash by which the index finds each key."""
        return key_kernels.mixed(keys.hash, keys.offsets, keys.data) if self._key.entries else keys.hash

    def _cells(self, rows: Rows) -> Ints:
        beside = [pa.array(rows.keys.hash)] if self._key.entries else []
        return to_cells([*flat_structs.fall(rows.state), *beside], len(rows.keys))

    def _append(self, rows: Rows, cells: Ints, half: int, counts: Ints, text: Ints) -> None:
        if len(rows.keys):
            keys = rows.keys
            kernels.append(
                self._index_hash(keys), keys.words, keys.offsets, keys.data, rows.groups, rows.deleted,
                cells, self._files.shapes, half, self._columns, counts, text,
            )  # fmt: skip

    def _read(self, group: int) -> tuple[Ints, Ints, Bytes]:
        """Give the cells of all rows of a group, and the bytes of its keys, as they are."""
        files = self._files
        places = kernels.live(group, files.shapes, int(files.fresh[group]), self._columns, self._wide)
        return self._cells_at(places, np.full(len(places), group))

    def _cells_at(self, places: Ints, groups: Ints) -> tuple[Ints, Ints, Bytes]:
        """Give the cells at places, and the bytes of the keys there."""
        shapes = self._files.shapes
        cells = kernels.gather(places, groups, shapes, self._columns, 0)
        if not self._wide:
            return cells, np.empty(0, np.int64), np.empty(0, np.uint8)
        offsets, data = kernels.key_text(groups, places, cells[KEY_COLUMN], cells[LENGTH_COLUMN], shapes, self._columns)
        return cells, offsets, data

    def _part(self, cells: Ints, offsets: Ints, data: Bytes) -> pa.Table:
        columns, hashes = from_cells(cells[self._skip :], self._state), cells[HASH_COLUMN]
        if self._key.entries:
            hashes = columns.pop().to_numpy()
        if self._wide:
            keys = Keys(self._key, hashes, offsets=offsets, data=data)
        else:
            keys = Keys(self._key, hashes, words=cells[KEY_COLUMN])
        state = flat_structs.rise(columns, self._declared)
        columns = [pa.array(keys.hash), *keys.columns(), *state]
        schema = contract.part_schema(self._key, _nullable(self._declared))
        return pa.Table.from_arrays(columns, schema=schema)


def _nullable(state: pa.Schema) -> pa.Schema:
    """Let every column be null: a key without state has nothing else to show."""
    return pa.schema([field.with_nullable(True) for field in state])
