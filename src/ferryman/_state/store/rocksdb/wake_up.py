"""A wake-up pipe for each process that has a store open, through which others ask it for a database.

A named pipe among the store's files: it wakes a thread at once, from any process of the host, and one whose
process has died does no harm.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_WORD = 8
_END = -1


def _path(files: Path, process: int) -> Path:
    return files / f"{process}.pipe"


def _word(number: int) -> bytes:
    return number.to_bytes(_WORD, "big", signed=True)


class WakeUpPipe:
    """Open a wake-up pipe among a store's files.

    Parameters
    ----------
    files
        The directory of the store's files.
    process
        The number by which other processes know this one.
    """

    def __init__(self, files: Path, process: int) -> None:
        self._path = _path(files, process)
        os.mkfifo(self._path, 0o600)
        # Open for writing as well, so that reading waits for the next to write instead of ending with the last.
        self._pipe = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    def wait(self) -> int | None:
        """Wait to be woken; give the number of the database that is asked for, None if it is time to go."""
        number = int.from_bytes(os.read(self._pipe, _WORD), "big", signed=True)
        return None if number == _END else number

    def end_wait(self) -> None:
        """Wake who waits, for the last time."""
        os.write(self._pipe, _word(_END))

    def close(self) -> None:
        """Take the pipe away."""
        self.abandon()
        self._path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Leave the pipe to the parent of a fork, in the child."""
        os.close(self._pipe)
        self._pipe = -1


def wake_up(files: Path, process: int, number: int) -> None:
    """Ask a process for a database; one that is gone has left it already."""
    with contextlib.suppress(OSError):
        pipe = os.open(_path(files, process), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(pipe, _word(number))
        finally:
            os.close(pipe)
