"""Make the system calls of a local directory: the one place through which files are written, named and synced.

The real disk does what it is told and nothing else. Tests put another one in its place, which forgets what was
not synced, fills up, or loses a reply; so whatever a directory does to the disk, it does through here.
"""

from __future__ import annotations

import importlib
import os
import shutil
from typing import TypeAlias

import pyarrow as pa

Data: TypeAlias = bytes | memoryview | pa.Buffer


class Disk:
    """The calls a directory makes, as the system has them."""

    def mkdir(self, path: str) -> None:
        """Make a folder, in one that is there; FileExistsError where the name is taken."""
        os.mkdir(path)

    def create(self, path: str, data: Data, *, sync: bool) -> None:
        """Write a file of a name that is not taken; with `sync`, its bytes stay."""
        with open(path, "xb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            if sync:
                os.fsync(file.fileno())

    def append(self, path: str, file: int, data: Data) -> None:
        """Write to the end of a file that is open for appending."""
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]

    def sync_bytes(self, path: str, file: int) -> None:
        """See that the bytes of an open file stay, and its length."""
        # macOS has only the other.
        getattr(os, "fdatasync", os.fsync)(file)

    def replace(self, path: str, name: str) -> None:
        """Give a file another name, in place of a file that may have it."""
        os.replace(path, name)

    def link(self, path: str, name: str) -> None:
        """Give a file one more name; FileExistsError where it is taken."""
        os.link(path, name)

    def unlink(self, path: str) -> None:
        """Take a name away; FileNotFoundError where there is none."""
        os.unlink(path)

    def remove(self, path: str) -> None:
        """Take a folder away with all that is in it, as far as that can be."""
        shutil.rmtree(path, ignore_errors=True)

    def sync(self, path: str) -> None:
        """See that the bytes of a file stay, or the names in a folder."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def list(self, path: str) -> list[str]:
        """List the names in a folder, in any order; FileNotFoundError where there is none."""
        with os.scandir(path) as entries:
            return [entry.name for entry in entries]


_current: Disk | None = None


def this_disk() -> Disk:
    """Give the disk of this process: the real one, unless a test asks for another."""
    global _current
    if _current is None:
        _current = _asked()
    return _current


def use_disk(disk: Disk | None) -> None:
    """Have directories that are opened from now on use another disk; None for what this process began with."""
    global _current
    _current = disk


def _asked() -> Disk:
    # `FERRYMAN_DISK=<module>:<function>:<argument>`: what a test asks for in the processes of a job.
    module, _, call = os.environ.get("FERRYMAN_DISK", "").partition(":")
    if not module:
        return Disk()
    function, _, argument = call.partition(":")
    disk = getattr(importlib.import_module(module), function)(argument)
    assert isinstance(disk, Disk)
    return disk
