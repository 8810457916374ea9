"""One RocksDB of a store, and whose it is: at any time at most one process of the host has it open.

A process that needs it takes two locks. The *turn* makes those who want it wait in line; the first in line
wakes the process that has it and waits for the *owner* lock, which that process gives up when its
call is done. So whoever has a database may keep it open between calls, and nobody waits for a process that is
idle. The kernel releases the locks of a process that dies.

Everything written is in RocksDB's write-ahead log when a call returns, so a kill loses nothing.
Calls `wake_up`, `ledger`, `options` and rocksdict.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from rocksdict import Rdict, ReadOptions, WriteBatch

from ferryman._model.errors import StaleTask
from ferryman._state.store.rocksdb.ledger import Ledger
from ferryman._state.store.rocksdb.options import options
from ferryman._state.store.rocksdb.wake_up import wake_up

_Items = Iterator[tuple[bytes, bytes]]


class Database:
    """Share one RocksDB with the other processes of the host.

    Parameters
    ----------
    files
        The directory of the store's files.
    number
        Which of the store's databases it is.
    ledger
        The store's ledger.
    me
        The number by which other processes know this one.
    """

    def __init__(self, files: Path, number: int, ledger: Ledger, me: int) -> None:
        self.number = number
        self._files = files
        self._ledger = ledger
        self._me = me
        self._turn = _lock_file(files / f"{number}.turn")
        self._owner = _lock_file(files / f"{number}.owner")
        self._rows: Rdict | None = None
        self._guard = threading.Lock()
        self._wanted = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Own the database, open, for the length of a call; wait for the process that has it."""
        self._guard.acquire()
        try:
            self._take(wait=True)
            yield
        except StaleTask:
            raise
        except BaseException:
            # After a failed write RocksDB refuses all others until it is opened anew.
            self._wanted = True
            raise
        finally:
            self._leave()

    def mend(self) -> None:
        """Look at what a killed process left, unless somebody else is about to."""
        if self._guard.acquire(blocking=False):
            try:
                self._take(wait=False)
            finally:
                self._leave()

    def yield_up(self) -> None:
        """Let others have the database: now, or at the end of the call that uses it."""
        self._wanted = True
        # Never waits: the call may be waiting for a process that waits for another database of ours.
        if self._guard.acquire(blocking=False):
            try:
                if self._wanted:
                    self._let_go()
            finally:
                self._guard.release()

    def get(self, records: list[bytes]) -> list[bytes | None]:
        """Read records; the caller holds the database, here and below."""
        assert self._rows is not None, "the caller holds the database"
        return cast("list[bytes | None]", self._rows.get(cast("list[Any]", records)))

    def range(self, low: bytes, high: bytes, limit: int | None = None) -> list[tuple[bytes, bytes]]:
        """Read the records from `low` to before `high`, or the first few of them."""
        assert self._rows is not None, "the caller holds the database"
        if low >= high:
            return []
        within = ReadOptions()
        within.set_iterate_upper_bound(high)
        # Without a name for the iterator, which a traceback would keep alive, and RocksDB with it.
        return list(itertools.islice(cast(_Items, self._rows.items(from_key=low, read_opt=within)), limit))

    def write(self, batch: WriteBatch) -> None:
        """Write a batch whole or not at all."""
        assert self._rows is not None, "the caller holds the database"
        self._rows.write(batch)

    def close(self) -> None:
        """Let others have the database, and close the lock files."""
        with self._guard:
            self._let_go()
            self._close_files()

    def abandon(self) -> None:
        """Leave it to the parent of a fork, in the child."""
        if self._rows is not None:
            # Even to close it would write into files that are the parent's.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._rows))
            self._rows = None
        # Both locks belong to the open files that parent and child share, and must die with the parent.
        self._close_files()

    def _take(self, wait: bool) -> None:
        if self._rows is not None or not self._own(wait):
            return
        try:
            chosen = options()
            self._rows = Rdict(str(self._files / str(self.number)), chosen, {"default": chosen})
            self._ledger.reread(self.number, self._rows)
        except BaseException:
            self._let_go()
            raise

    def _own(self, wait: bool) -> bool:
        if not _lock(self._turn, wait):
            return False
        try:
            if not _lock(self._owner, wait=False):
                if not wait:
                    return False
                # Nobody can have come before us since, so it is the last holder's, or about to be free.
                wake_up(self._files, int(self._ledger.holder[self.number]), self.number)
                _lock(self._owner, wait=True)
            self._ledger.holder[self.number] = self._me
            return True
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def _leave(self) -> None:
        self._guard.release()
        # Only now: whoever asks from here on finds the guard free.
        if self._wanted:
            self.yield_up()

    def _let_go(self) -> None:
        self._wanted = False
        rows, self._rows = self._rows, None
        try:
            # What cannot be moved to a table file, on a full disk say, stays in the write-ahead log.
            with contextlib.suppress(Exception):
                if rows is not None:
                    rows.close()
        finally:
            fcntl.flock(self._owner, fcntl.LOCK_UN)

    def _close_files(self) -> None:
        os.close(self._turn)
        os.close(self._owner)
        # The numbers may soon be those of other files.
        self._turn = self._owner = -1


def _lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(file: int, wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
