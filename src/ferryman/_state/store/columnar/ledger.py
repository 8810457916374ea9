"""The ledger of a columnar store: what state each group's main is in, in one small mapped file.

All processes of the host see the same words. A group is marked torn before its main is touched and
unmarked after, so a kill in between leaves the mark, and the group counts as having no main.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ferryman._state.compiled import Ints
from ferryman._state.store.columnar.mapping import Mapping

_LINES = 5


class Ledger:
    """Map the ledger of a store.

    Attributes
    ----------
    epoch
        The epoch of each group's main, -1 for none.
    torn
        1 while a group's main is being written.
    generation
        Grows whenever a group's file is replaced, so that other processes map the new one.
    rows
        How many rows each main has.
    heap
        How many bytes of key text each main has.
    """

    def __init__(self, path: Path, groups: int) -> None:
        self._mapping = Mapping.of_file(path, _LINES * groups * 8)
        lines = self._mapping.words().reshape(_LINES, groups)
        self.epoch: Ints = lines[0]
        self.torn: Ints = lines[1]
        self.generation: Ints = lines[2]
        self.rows: Ints = lines[3]
        self.heap: Ints = lines[4]

    @staticmethod
    def create(path: Path, groups: int) -> None:
        """Write a ledger in which no group has a main."""
        lines = np.zeros((_LINES, groups), np.int64)
        lines[0] = -1
        path.write_bytes(lines.tobytes())

    def epochs(self) -> Ints:
        """Give the epoch of each whole main; -1 for a missing or torn one."""
        # The mark first: a writer sets it before and clears it after the epoch, so a group read as
        # unmarked and then as still at its epoch was not being written in between.
        torn = self.torn.copy()
        return np.where(torn != 0, -1, self.epoch.copy())

    def close(self) -> None:
        """Unmap the ledger."""
        # A late reader of these must meet an IndexError, not unmapped memory.
        self.epoch = self.torn = self.generation = self.rows = self.heap = np.empty(0, np.int64)
        self._mapping.close()
