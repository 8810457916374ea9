"""A bell for each process that has a store open, at which others ask it for a database.

A named pipe among the store's files: it wakes a thread at once, from any process of the host, and one whose
process has died does no harm.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_WORD = 8
_GOOD_BYE = -1


def _path(files: Path, process: int) -> Path:
    return files / f"{process}.bell"


def _word(number: int) -> bytes:
    return number.to_bytes(_WORD, "big", signed=True)


class Bell:
    """Hang up a bell among a store's files.

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
        # Open for writing as well, so that reading waits for the next to ring instead of ending with the last.
        self._pipe = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    def wait(self) -> int | None:
        """Wait for a ring; give the number of the database that is asked for, None if it is time to go."""
        number = int.from_bytes(os.read(self._pipe, _WORD), "big", signed=True)
        return None if number == _GOOD_BYE else number

    def say_good_bye(self) -> None:
        """Send home who waits for the bell."""
        os.write(self._pipe, _word(_GOOD_BYE))

    def close(self) -> None:
        """Take the bell down."""
        self.abandon()
        self._path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Leave the bell to the parent of a fork, in the child."""
        os.close(self._pipe)
        self._pipe = -1


def ring(files: Path, process: int, number: int) -> None:
    """Ask a process for a database; one that is gone has left it already."""
    with contextlib.suppress(OSError):
        pipe = os.open(_path(files, process), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(pipe, _word(number))
        finally:
            os.close(pipe)
