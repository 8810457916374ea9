"""The ledger of a rocksdb store: at which epoch and in which database each group's main is.

One small mapped file, so that every process of the host sees it without opening a database. The databases
hold the epochs as well, in the same batches as the rows, and who opens one believes it: a group is marked
torn before its database is touched and unmarked after, and where a kill left the mark, the database says what
became of the group.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rocksdict import Rdict, WriteBatch

from ferryman._state.compiled import Ints

# Shorter than any record key, which begins with two bytes of key group.
_KEY = b"\0"
_LINES = 4


class Ledger:
    """Map the ledger of a store.

    Attributes
    ----------
    epoch
        The epoch of each group's main, -1 for none.
    torn
        1 while a group's main is being written.
    database
        The number of the database each group is in, -1 before its first main.
    holder
        For each database, who took it last.
    """

    def __init__(self, path: Path, groups: int) -> None:
        lines = np.memmap(path, np.int64, "r+", shape=(_LINES, groups))
        self.epoch: Ints = lines[0]
        self.torn: Ints = lines[1]
        self.database: Ints = lines[2]
        self.holder: Ints = lines[3]

    @staticmethod
    def create(path: Path, groups: int) -> None:
        """Write a ledger in which no group has a main."""
        lines = np.full((_LINES, groups), -1, np.int64)
        lines[1] = 0
        path.write_bytes(lines.tobytes())

    def epochs(self) -> Ints:
        """Give the epoch of each whole main; -1 for a missing or torn one."""
        # The mark first: a writer sets it before and clears it after the epoch.
        torn = np.array(self.torn)
        return np.where(torn != 0, -1, np.array(self.epoch))

    def inside(self, number: int) -> Ints:
        """Give the epochs of the groups in a database; -1 for all others."""
        return np.where(np.array(self.database) == number, np.array(self.epoch), -1)

    def reread(self, number: int, rows: Rdict) -> None:
        """Take over what a database says that nobody else has open."""
        groups = np.flatnonzero(np.array(self.database) == number)
        found = rows.get(_KEY)
        self.epoch[groups] = -1 if found is None else np.frombuffer(found, np.int64)[groups]
        self.torn[groups] = 0


def write(batch: WriteBatch, epochs: Ints) -> None:
    """Record in a batch the epochs of the groups that its database will hold."""
    batch.put(_KEY, epochs.tobytes())
