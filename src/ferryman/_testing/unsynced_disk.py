"""A disk that forgets: real calls on a real directory, and a journal of what a power cut may take back.

A kill loses nothing that was written, as the kernel has it. So that a test can cut the power too, every call is
noted: which name has been given to which file, and which bytes and names were synced. `power_cut` then makes of
the directory one of those it could be afterwards.

The journal is a folder of its own on the same file system, for all processes of a test. A note is one line,
appended after its call was made; a file that loses a name is kept there by a link.

Handed to a directory, or asked for in the processes of a job by the variables of `disk_environment`.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from ferryman._os.disk import Data, Disk

NOTES = "notes"


class UnsyncedDisk(Disk):
    """Do what is asked for below `root`, and note it in the journal; leave what is elsewhere to the system.

    What is below the root when the journal begins is taken for synced. Nothing is really synced: the machine the test
    runs on is not the one that loses its power.
    """

    def __init__(self, root: Path, journal: Path) -> None:
        self._root = os.path.abspath(root)
        self._inside = self._root + os.sep
        self.journal = journal
        journal.mkdir(parents=True, exist_ok=True)
        fresh = not (journal / NOTES).exists()
        self._notes = os.open(journal / NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if fresh:
            for folder, _, files in os.walk(self._root):
                for name in files:
                    self._note_bytes(os.path.join(folder, name))
                self._note_folder(folder)

    def close(self) -> None:
        """Let go of the journal."""
        os.close(self._notes)

    def mkdir(self, path: str) -> None:
        """Make a folder, whose name is not synced."""
        super().mkdir(path)
        self._note_name(path)

    def create(self, path: str, data: Data, *, sync: bool) -> None:
        """Write a file, whose name is not synced."""
        with open(path, "xb", buffering=0) as file:
            self._note_name(path)
            self._fill(file, memoryview(data))
        if sync:
            self._note_bytes(path)

    def _fill(self, file: Any, view: memoryview) -> None:
        while view:
            view = view[file.write(view) :]

    def sync_bytes(self, path: str, file: int) -> None:
        """Note that a file's bytes stay from now on."""
        self._note_bytes(path)

    def replace(self, path: str, name: str) -> None:
        """Rename a file: that its old name is gone, and that the new one is there, are two things to be synced."""
        self._keep(name)
        super().replace(path, name)
        self._note_name(name)
        self._note_name(path)

    def link(self, path: str, name: str) -> None:
        """Give a file one more name, which is not synced."""
        super().link(path, name)
        self._note_name(name)

    def unlink(self, path: str) -> None:
        """Take a name away, which may come back."""
        self._keep(path)
        super().unlink(path)
        self._note_name(path)

    def remove(self, path: str) -> None:
        """Take a folder away with all that is in it, any of which may come back."""
        for folder, _, files in os.walk(path, topdown=False):
            # Somebody else may be at it too.
            for name in files:
                with contextlib.suppress(FileNotFoundError):
                    self.unlink(os.path.join(folder, name))
            with contextlib.suppress(OSError):
                os.rmdir(folder)
            self._note_name(folder)

    def sync(self, path: str) -> None:
        """Note what stays from now on: a file's bytes, or the names in a folder."""
        if stat.S_ISDIR(os.stat(path).st_mode):
            self._note_folder(path)
        else:
            # Whoever wrote it may delete it past this disk, and its number must not be another file's then.
            self._keep(path)
            self._note_bytes(path)

    # -- notes -----------------------------------------------------------------------------------

    def _tracked(self, path: str) -> bool:
        return path == self._root or path.startswith(self._inside)

    def _note(self, *what: Any) -> None:
        os.write(self._notes, (json.dumps(what) + "\n").encode())

    def _note_name(self, path: str) -> None:
        """Note what a name stands for now, if for anything."""
        if not self._tracked(path):
            return
        folder, name = os.path.split(path)
        with contextlib.suppress(FileNotFoundError):
            self._note("name", os.stat(folder).st_ino, name, _looked_up(path))

    def _note_bytes(self, path: str) -> None:
        if self._tracked(path):
            found = os.stat(path)
            self._note("bytes", found.st_ino, found.st_size)

    def _note_folder(self, path: str) -> None:
        if self._tracked(path):
            self._note("folder", os.stat(path).st_ino, names_in(path))

    def _keep(self, path: str) -> None:
        """Keep a file that is about to lose a name: the power may be cut before that is synced."""
        if self._tracked(path):
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                os.link(path, self.journal / str(os.stat(path).st_ino))


def disk_environment(root: Path, journal: Path) -> dict[str, str]:
    """Give the variables that have another process use an unsynced disk."""
    return {"FERRYMAN_DISK": f"{__name__}:{asked_disk.__name__}:{root}:{journal}"}


def asked_disk(folders: str) -> UnsyncedDisk:
    """Make the disk that `disk_environment` asks for."""
    root, _, journal = folders.partition(":")
    return UnsyncedDisk(Path(root), Path(journal))


def _looked_up(path: str) -> tuple[int, bool] | None:
    """Give a file's number and whether it is a folder; None where the name stands for nothing."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, stat.S_ISDIR(found.st_mode)


def names_in(folder: str) -> dict[str, tuple[int, bool]]:
    """Give the number of each file in a folder by its name, and whether it is a folder itself."""
    with os.scandir(folder) as entries:
        return {entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries}
