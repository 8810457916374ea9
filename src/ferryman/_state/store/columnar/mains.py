"""The mapped files of a columnar store, one per key group that has rows.

Knows which files this process has mapped and whether they are still the current ones; a file is never
changed in size, it is replaced by a new one, so a mapping stays valid for as long as it is kept.
Calls `ledger`, `layout`, `mapping` and the kernels.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ferryman._model.errors import StaleTask
from ferryman._state.compiled import Ints
from ferryman._state.store.columnar import kernels
from ferryman._state.store.columnar.layout import file_size, row_limit, slots_for
from ferryman._state.store.columnar.ledger import Ledger
from ferryman._state.store.columnar.mapping import Mapping

_SMALLEST_HEAP = 4096


class Mains:
    """Map the files of a store's mains.

    Attributes
    ----------
    base
        The address of each group's file, 0 for none.
    slots, heaps
        How many slots and heap bytes it has room for.
    """

    def __init__(self, files: Path, ledger: Ledger, columns: int, wide: bool) -> None:
        groups = len(ledger.epoch)
        self._files = files
        self._ledger = ledger
        self._columns = columns
        self._wide = wide
        self._mappings: dict[int, Mapping] = {}
        self._seen = np.full(groups, -1, np.int64)
        self._limits = np.zeros(groups, np.int64)
        self.base = np.zeros(groups, np.int64)
        self.slots = np.zeros(groups, np.int64)
        self.heaps = np.zeros(groups, np.int64)

    def refresh(self, groups: Ints) -> None:
        """Map the current files of these groups, where that is not yet done."""
        for group in groups[self._seen[groups] != self._ledger.generation[groups]].tolist():
            # Read before the file is opened: a file replaced in between is merely mapped once more.
            generation = int(self._ledger.generation[group])
            self._forget(group)
            try:
                file = os.open(self._path(group), os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                file = -1
            if file >= 0:
                try:
                    slots, heap = np.frombuffer(os.pread(file, 16, 0), np.int64).tolist()
                    mapping = Mapping(file, file_size(slots, self._columns, heap))
                finally:
                    os.close(file)
                self._remember(group, mapping, slots, heap)
            self._seen[group] = generation

    def reserve(self, inserts: Ints, text: Ints) -> None:
        """Make room for so many more rows and heap bytes in each group; the caller holds their locks."""
        rows = self._ledger.rows + inserts
        heap = self._ledger.heap + text
        short = (inserts > 0) & ((rows > self._limits) | (heap > self.heaps))
        for group in np.flatnonzero(short).tolist():
            self._grow(group, int(rows[group]), int(text[group]))

    def empty(self, groups: Ints) -> None:
        """Make the mains of these groups empty; the caller holds their locks and has marked them torn."""
        for group in groups.tolist():
            self._forget(group)
            # Not only where rows are counted: a kill may have left a file that no count speaks of.
            self._path(group).unlink(missing_ok=True)
        self._ledger.rows[groups] = 0
        self._ledger.heap[groups] = 0
        self._ledger.generation[groups] += 1
        self._seen[groups] = self._ledger.generation[groups]

    def mapped_bytes(self) -> int:
        """Give the size of everything mapped."""
        return sum(each.size for each in self._mappings.values())

    def release(self) -> None:
        """Unmap everything."""
        for group in list(self._mappings):
            self._forget(group)

    def _path(self, group: int) -> Path:
        return self._files / f"{group}.main"

    def _grow(self, group: int, rows: int, text: int) -> None:
        old, old_slots = int(self.base[group]), int(self.slots[group])
        old_rows = int(self._ledger.rows[group])
        slots = max(old_slots, slots_for(rows))
        heap = 0
        if self._wide:
            # Twice what is alive, not twice what was used: keys that come and go must not add up.
            alive = kernels.live_text(old, old_slots, self._columns, old_rows) if old else 0
            heap = max(_SMALLEST_HEAP, 2 * (alive + text))
        mapping = self._create(group, slots, heap)
        used = 0
        if old:
            used = kernels.rebuild(old, old_slots, old_rows, self._columns, mapping.address, slots, self._wide)
        os.replace(self._path(group).with_suffix(".new"), self._path(group))
        self._forget(group)
        self._remember(group, mapping, slots, heap)
        self._ledger.heap[group] = used
        self._ledger.generation[group] += 1
        self._seen[group] = self._ledger.generation[group]

    def _create(self, group: int, slots: int, heap: int) -> Mapping:
        size = file_size(slots, self._columns, heap)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            file = os.open(self._path(group).with_suffix(".new"), flags, 0o644)
        except FileNotFoundError as error:
            raise StaleTask(
                f"The store's files at {self._files} are gone: it was replaced by one of another schema while"
                " this task ran. Let this task end."
            ) from error
        try:
            # Not ftruncate: on a full disk a store into a hole of the file would kill the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, size)
            else:
                os.ftruncate(file, size)
            os.pwrite(file, np.array([slots, heap], np.int64).tobytes(), 0)
            return Mapping(file, size)
        finally:
            os.close(file)

    def _remember(self, group: int, mapping: Mapping, slots: int, heap: int) -> None:
        self._mappings[group] = mapping
        self.base[group] = mapping.address
        self.slots[group] = slots
        self.heaps[group] = heap
        self._limits[group] = row_limit(slots)

    def _forget(self, group: int) -> None:
        self.base[group] = self.slots[group] = self.heaps[group] = self._limits[group] = 0
        self._seen[group] = -1
        mapping = self._mappings.pop(group, None)
        if mapping is not None:
            mapping.close()
