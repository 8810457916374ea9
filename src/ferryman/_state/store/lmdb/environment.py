"""The LMDB environments this process has open, one per directory however many stores use it.

LMDB forbids opening a directory twice in one process. Calls lmdb.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import lmdb

# Address space, not disk: the file grows with what it holds.
_MAP_SIZE = 1 << 38
_MOST_READERS = 1024

_open: dict[Path, Environment] = {}
_guard = threading.Lock()


@dataclass(eq=False)
class Environment:
    """An open environment with its two databases.

    Attributes
    ----------
    database
        The environment itself.
    rows
        Every row of every main, by key group and key.
    ledger
        The epochs of the mains, in one value.
    """

    path: Path
    database: lmdb.Environment
    rows: lmdb._Database
    ledger: lmdb._Database
    process: int
    users: int = 0

    @classmethod
    def acquire(cls, path: Path) -> Environment:
        """Open an environment, or share it if this process has it open."""
        with _guard:
            found = _open.get(path)
            # A child of a fork must not use its parent's environment.
            if found is None or found.process != os.getpid():
                database = lmdb.open(
                    str(path), map_size=_MAP_SIZE, max_dbs=2, max_readers=_MOST_READERS,
                    sync=False, metasync=False, mode=0o600,
                )  # fmt: skip
                # A killed reader would keep old pages alive for ever.
                database.reader_check()
                rows, ledger = database.open_db(b"rows"), database.open_db(b"ledger")
                found = _open[path] = cls(path, database, rows, ledger, os.getpid())
            found.users += 1
            return found

    def free(self) -> None:
        """Close the environment when its last user is gone."""
        with _guard:
            self.users -= 1
            if self.users == 0 and _open.get(self.path) is self:
                del _open[self.path]
                self.database.close()
