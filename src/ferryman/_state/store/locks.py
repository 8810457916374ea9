"""Locks on key groups between the processes of a host, released by the kernel when a process dies.

One byte of one lock file stands for one group, so tasks on disjoint groups never wait for each other.
Groups are always taken in rising order, so two tasks cannot wait for each other either.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from ferryman._state.compiled import Ints

# Locks of the open file, not of the process: two stores of one process exclude each other as well,
# and closing one does not release what the other holds. Elsewhere than on Linux the process's own.
_OF_OPEN_FILE = getattr(fcntl, "F_OFD_SETLKW", None)
_ALL_BYTES = 0


class Locks:
    """Hold the lock file of a store open."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # The kernel does not keep the threads that share a file apart, and what one releases the others have lost.
        self._turn = threading.Lock()

    def __enter__(self) -> Locks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def held(self, groups: Ints) -> Iterator[None]:
        """Hold the locks of sorted groups, one system call per run of neighbours."""
        ends = np.flatnonzero(np.diff(groups) != 1)
        starts = groups[np.concatenate(([0], ends + 1))] if len(groups) else groups
        stops = groups[np.concatenate((ends, [len(groups) - 1]))] + 1 if len(groups) else groups
        with self._turn:
            try:
                for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                    self._set(fcntl.LOCK_EX, start, stop - start)
                yield
            finally:
                self._set(fcntl.LOCK_UN, 0, _ALL_BYTES)

    @contextlib.contextmanager
    def held_all(self) -> Iterator[None]:
        """Hold every lock of the file."""
        with self._turn:
            try:
                self._set(fcntl.LOCK_EX, 0, _ALL_BYTES)
                yield
            finally:
                self._set(fcntl.LOCK_UN, 0, _ALL_BYTES)

    def _set(self, how: int, start: int, length: int) -> None:
        if _OF_OPEN_FILE is None:
            fcntl.lockf(self._file, how, length, start)
            return
        kind = fcntl.F_WRLCK if how == fcntl.LOCK_EX else fcntl.F_UNLCK
        fcntl.fcntl(self._file, _OF_OPEN_FILE, struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0))

    def close(self) -> None:
        """Close the lock file, which releases what is held."""
        os.close(self._file)
