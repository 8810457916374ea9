"""The mapped files of a columnar store, one per key group that has rows.

A file has a main, which is never changed, and room for a delta behind it, which is only appended to. When
the room is used up, both are folded into the main of another file, and that one counts from then on. There are two
for each group, which take turns: to use what is allocated and mapped already costs a fraction of a new file. A
reader in another process can be overtaken by that; it then finds the version changed. A file is never cut, only
replaced by another one, so what is mapped stays there. Knows which files this process has mapped and whether
they are those that count. Calls `ledger`, `file_layout`, `mapping` and the kernels.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ferryman._model.errors import StaleTask
from ferryman._state.compiled import Ints
from ferryman._state.store.columnar import kernels
from ferryman._state.store.columnar.file_layout import AT, HALF, HEADER, HEAP, ROWS, half_size, slots_for
from ferryman._state.store.columnar.ledger import Ledger
from ferryman._state.store.columnar.mapping import Mapping

_NO_FILE = 0
_LEAST_ROWS = 256
_LEAST_TEXT = 4096
# A delta has room for so many epochs like the one that asks for it, and for half of the main at the least: then
# folding, which costs what the main has, is paid for by the rows that were written.
_ROOM_EPOCHS = 2
# A file that has this many times the size that is wanted is not worth keeping.
_SLACK = 4


class Files:
    """Map the files of a store.

    Attributes
    ----------
    shapes
        What the kernels need to know of each group's file; see `file_layout`.
    fresh
        How many rows of its delta count.
    """

    def __init__(self, directory: Path, ledger: Ledger, columns: int, wide: bool) -> None:
        groups = len(ledger.version)
        self._directory = directory
        self._ledger = ledger
        self._columns = columns
        self._wide = wide
        self._mappings: dict[tuple[int, int], Mapping] = {}
        self._seen = np.zeros(groups, np.int64)
        self.shapes = np.zeros((2 * HALF, groups), np.int64)
        self.fresh = np.zeros(groups, np.int64)

    def refresh(self, groups: Ints) -> Ints:
        """Map the files of these groups that count now, and give the groups' versions."""
        while True:
            version, (_, files, self.fresh[groups], _) = self._ledger.read(groups)
            changed = np.flatnonzero(files != self._seen[groups])
            failure: Exception | None = None
            try:
                for group, file in zip(groups[changed].tolist(), files[changed].tolist(), strict=True):
                    self._map(group, file)
            except (OSError, ValueError) as error:
                failure = error
            # What was opened may have taken its turn since, and be half of one and half of another.
            if (self._ledger.version[groups] == version).all():
                if failure is not None:
                    raise self._gone() from failure
                return version
            for group in groups[changed].tolist():
                self._forget(group)

    def reserve(self, groups: Ints, rows: Ints, text: Ints) -> None:
        """Make room for so many more rows and key bytes in the deltas of groups, whose locks the caller holds."""
        self.refresh(groups)
        _, (epochs, _, _, used) = self._ledger.read(groups)
        room = self.shapes[HALF + ROWS, groups] - self.fresh[groups]
        short = np.flatnonzero((rows > room) | (text > self.shapes[HALF + HEAP, groups] - used))
        for i in short.tolist():
            self._fold(int(groups[i]), int(epochs[i]), int(rows[i]), int(text[i]))

    def blank(self, group: int, rows: int, text: int) -> int:
        """Map a file whose main has room for exactly so much, and give its number for the ledger to count."""
        return self._prepare(group, rows, text, 0, 0)

    def keep(self, groups: Ints, numbers: Ints) -> None:
        """Learn that blank files, which are mapped and filled by now, are those that count."""
        self._seen[groups] = numbers
        self.fresh[groups] = 0

    def remove(self, groups: Iterable[int]) -> None:
        """Delete the files of groups of which the ledger counts none."""
        for group in groups:
            self._forget(group)
            for number in (0, 1):
                self._discard(group, number)

    def mapped_bytes(self) -> int:
        """Give the size of everything mapped."""
        current = ((group, int(self._seen[group]) & 1) for group in np.flatnonzero(self._seen > _NO_FILE).tolist())
        return sum(self._mappings[path].size for path in current if path in self._mappings)

    def release(self) -> None:
        """Unmap everything."""
        self._seen[:] = -1
        self.shapes[:] = 0
        while self._mappings:
            self._mappings.popitem()[1].close()

    def _fold(self, group: int, epoch: int, rows: int, text: int) -> None:
        """Give a group its other file: its rows in the main, and room for more in the delta."""
        old = self.shapes[:, group : group + 1].copy()
        places = kernels.live(0, old, int(self.fresh[group]), self._columns, self._wide)
        alive = kernels.text_at(0, places, old, self._columns) if self._wide else 0
        number = self._prepare(group, len(places), alive, rows, text)
        at, slots = self.shapes[:2, group].tolist()
        kernels.fold(0, places, old, self._columns, at, slots, self._wide)
        self._ledger.commit(np.array([group]), epoch, number)
        self._seen[group] = number
        self.fresh[group] = 0
        before = self._mappings.get((group, (number + 1) & 1))
        if before is not None and before.size > _SLACK * self._mappings[group, number & 1].size:
            self._discard(group, number + 1)

    def _prepare(self, group: int, rows: int, text: int, more_rows: int, more_text: int) -> int:
        """Map the file of a group that does not count now, made empty, and give a number for it."""
        version, (_, (now,), _, _) = self._ledger.read(np.array([group]))
        # Higher than any before, and not as even or odd as the one that counts.
        number = int(version[0]) + 1
        number += (number - int(now)) % 2 == 0
        room = max(_LEAST_ROWS, rows // 2, _ROOM_EPOCHS * more_rows)
        heap = max(_LEAST_TEXT, text // 2, _ROOM_EPOCHS * more_text) if self._wide else 0
        header = np.array([rows, text, room, heap], np.int64)
        shape, size = self._shape(header)
        self._forget(group)
        spare = self._spare_bytes(group, number)
        if not size <= spare <= _SLACK * size:
            self._discard(group, number)
            self._make(group, number, size, header)
        with self._opened(group, number) as file:
            os.pwrite(file, header.tobytes(), 0)
            self._remember(group, self._mapped(group, number, file), shape, size)
        kernels.clear(group, self.shapes)
        return number

    def _map(self, group: int, number: int) -> None:
        self._forget(group)
        if number != _NO_FILE:
            with self._opened(group, number) as file:
                shape, size = self._shape(np.frombuffer(os.pread(file, 32, 0), np.int64))
                self._remember(group, self._mapped(group, number, file), shape, size)
        else:
            for side in (0, 1):
                self._unmap(group, side)
        self._seen[group] = number

    def _mapped(self, group: int, number: int, file: int) -> Mapping:
        """Give the mapping of a file, the one that is there if it is of this very file."""
        status = os.fstat(file)
        known = self._mappings.get((group, number & 1))
        if known is not None and (known.file, known.size) == (status.st_ino, status.st_size):
            return known
        self._unmap(group, number)
        mapping = self._mappings[group, number & 1] = Mapping(file, status.st_size)
        return mapping

    def _unmap(self, group: int, number: int) -> None:
        mapping = self._mappings.pop((group, number & 1), None)
        if mapping is not None:
            mapping.close()

    @contextlib.contextmanager
    def _opened(self, group: int, number: int) -> Iterator[int]:
        file = os.open(self._path(group, number), os.O_RDWR | os.O_CLOEXEC)
        try:
            yield file
        finally:
            os.close(file)

    def _spare_bytes(self, group: int, number: int) -> int:
        try:
            return self._path(group, number).stat().st_size
        except FileNotFoundError:
            return 0

    def _make(self, group: int, number: int, size: int, header: Ints) -> None:
        """Create a file; it gets its name when it has its size and its header, as others may look for it."""
        draft = self._path(group, number).with_suffix(".new")
        try:
            file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except FileNotFoundError as error:
            raise self._gone() from error
        try:
            # Not ftruncate: on a full disk a store into a hole of the file would kill the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file, 0, size)
            else:
                os.ftruncate(file, size)
            os.pwrite(file, header.tobytes(), 0)
        finally:
            os.close(file)
        os.replace(draft, self._path(group, number))

    def _discard(self, group: int, number: int) -> None:
        self._path(group, number).unlink(missing_ok=True)
        self._unmap(group, number)

    def _shape(self, header: Ints) -> tuple[Ints, int]:
        """Give the shape of a file that begins at address 0, and its size."""
        rows, text, room, heap = header.tolist()
        slots, new_slots = slots_for(rows), slots_for(room)
        delta_at = HEADER + half_size(slots, self._columns, rows, text)
        size = delta_at + half_size(new_slots, self._columns + 1, room, heap)
        return np.array([HEADER, slots, text, rows, delta_at, new_slots, heap, room]), size

    def _remember(self, group: int, mapping: Mapping, shape: Ints, size: int) -> None:
        if size > mapping.size:
            raise ValueError(f"the file of key group {group} is shorter than its header says")
        shape[[AT, HALF + AT]] += mapping.address
        self.shapes[:, group] = shape

    def _forget(self, group: int) -> None:
        self._seen[group] = -1
        self.shapes[:, group] = 0

    def _path(self, group: int, number: int) -> Path:
        return self._directory / f"{group}.{number & 1}"

    def _gone(self) -> StaleTask:
        return StaleTask(
            f"The store's files at {self._directory} are gone: it was replaced by one of another schema while"
            " this task ran. Let this task end."
        )
