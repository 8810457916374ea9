"""The ledger of a columnar store: which file each group has, how much of it counts, and at which epoch.

One small mapped file, so all processes of the host see the same words. Each group has two entries, the one that
counts and the one that is being prepared; its version says which is which. So a group goes from one epoch, file
and size to the next by the writing of a single word, and a kill leaves it at the one or at the other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ferryman._state.compiled import Ints
from ferryman._state.store.columnar import kernels
from ferryman._state.store.columnar.mapping import Mapping

_ENTRY = 4
_EPOCH, _FILE, _ROWS, _TEXT = range(_ENTRY)
_WORDS = 2 + 2 * _ENTRY


class Ledger:
    """Map the ledger of a store.

    Attributes
    ----------
    version
        Grows by one with every change of a group.
    writing
        1 while the delta of a group is being appended to, or repaired; left at 1 by a process that died doing so.
    """

    def __init__(self, path: Path, groups: int) -> None:
        self._mapping = Mapping.of_file(path, _WORDS * groups * 8)
        lines = self._mapping.words().reshape(_WORDS, groups)
        self.version: Ints = lines[0]
        self.writing: Ints = lines[1]
        # By the version's last bit, by what it is, by group.
        self._entries: Ints = lines[2:].reshape(2, _ENTRY, groups)

    @staticmethod
    def create(path: Path, groups: int) -> None:
        """Write a ledger in which no group has a main."""
        lines = np.zeros((_WORDS, groups), np.int64)
        lines[2 + _EPOCH] = lines[2 + _ENTRY + _EPOCH] = -1
        path.write_bytes(lines.tobytes())

    def epochs(self) -> Ints:
        """Give the epoch of each main; -1 for a missing one."""
        _, entries = self.read(np.arange(len(self.version)))
        epochs: Ints = entries[_EPOCH]
        return epochs

    def read(self, groups: Ints) -> tuple[Ints, Ints]:
        """Give the versions of groups, and what counts at those: epochs, files, rows and bytes of the deltas."""
        while True:
            version = self.version[groups]
            kernels.barrier()
            entries = self._entries[version & 1, :, groups].T
            kernels.barrier()
            # An entry is written again only after the version has moved on.
            if (self.version[groups] == version).all():
                return version, entries

    def commit(
        self, groups: Ints, epoch: int | Ints, file: int | Ints, rows: int | Ints = 0, text: int | Ints = 0
    ) -> None:
        """Let other entries count for groups, each at once; the caller holds their locks."""
        other = (self.version[groups] + 1) & 1
        for line, values in ((_EPOCH, epoch), (_FILE, file), (_ROWS, rows), (_TEXT, text)):
            self._entries[other, line, groups] = values
        kernels.barrier()
        self.version[groups] += 1
        kernels.barrier()

    def close(self) -> None:
        """Unmap the ledger."""
        # A late reader of these must meet an IndexError, not unmapped memory.
        self.version = self.writing = np.empty(0, np.int64)
        self._entries = np.empty((2, _ENTRY, 0), np.int64)
        self._mapping.close()
