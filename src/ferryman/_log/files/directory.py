"""Reach the checkpoint directory, on the local disk or on any filesystem pyarrow.fs knows.

Writes are atomic: a reader sees a whole file or none. On the local disk that is a temporary file and
a rename (or a link, where the file must not exist yet); elsewhere it is what `pyarrow.fs` offers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlparse

import pyarrow as pa

from ferryman._model.errors import CheckpointUnwritable
from ferryman._os.disk import Data, Disk, this_disk

_UNWRITABLE = {
    errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOENT,
    errno.ENOTDIR, errno.EEXIST,
}  # fmt: skip

# How many folders whose names were synced a directory remembers.
_REMEMBERED = 1000

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}")


class NotPlain(OSError):
    """What is in the place of a file is none, or behind a link: it is not followed."""


class Directory(Protocol):
    """A directory of immutable files, reached by relative names."""

    uri: str  # for people to read: without secrets
    address: str  # what `directory` opens it by, in another process too
    remote: bool  # in an object store, or another place that is not mounted on this machine
    spark_uri: str  # the same place as Spark must be told, whatever its default filesystem is

    def fences(self) -> bool:
        """Tell whether of two that write a new file of one name at once, only one is told yes."""

    def read(self, name: str) -> pa.Buffer:
        """Read a whole file; FileNotFoundError where there is none, `NotPlain` where it is no plain one."""

    def open(self, name: str) -> pa.NativeFile:
        """Open a file, to read parts of it."""

    def write(self, name: str, data: Data) -> None:
        """Write a file atomically, replacing it."""

    def write_new(self, name: str, data: Data) -> bool:
        """Write a file atomically unless it exists; tell whether it was written."""

    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""

    def strange(self, folders: Iterable[str]) -> list[str]:
        """List those of some folders in whose place there is something else: a link, or a file."""

    def list(self, folder: str) -> list[str]:
        """List the names of a folder's files, sorted; empty where there is no such folder."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those already gone do not matter."""

    def move(self, moves: Mapping[str, str]) -> None:
        """Give files other names, which nobody else has; those already moved do not matter."""

    def remove(self, folder: str) -> None:
        """Delete a folder with all that is in it."""

    def sync(self, names: Iterable[str]) -> None:
        """See that files which others wrote survive a power cut; those that are not there do not matter."""

    def keep(self, folders: Iterable[str]) -> None:
        """See that folders are there and survive a power cut, with the names in them."""

    def sweep(self, folder: str) -> None:
        """Remove what killed writers left in a folder; only the job that holds the lock may."""


def directory(location: str, *, fsync: bool = False) -> Directory:
    """Open the directory at a path or URI."""
    parsed = urlparse(location)
    if parsed.scheme in ("", "file"):
        path = unquote(parsed.path) if parsed.scheme else location
        return LocalDirectory(Path(path), fsync=fsync)
    # Only who needs it loads it.
    from ferryman._log.files.remote import RemoteDirectory

    return RemoteDirectory(location)


@contextlib.contextmanager
def named(where: str) -> Iterator[None]:
    """Have an error say which directory could not be written."""
    try:
        yield
    except OSError as error:
        if error.errno in _UNWRITABLE:
            raise CheckpointUnwritable(
                f"cannot write to {where}: {error.strerror or error}. Nothing of the epoch under way was "
                "committed and everything committed before is intact. Make the directory writable or free "
                "space, then start the job again."
            ) from error
        raise


class LocalDirectory:
    """A directory on a disk of this machine, or mounted on it.

    With `fsync`, what a method has written is there after a power cut when it returns: the bytes, the name, and the
    folders above it.
    """

    remote = False

    def __init__(self, root: Path, *, fsync: bool = False, disk: Disk | None = None) -> None:
        self.root = root.absolute()
        self.uri = self.address = self.root.as_posix()
        self.spark_uri = f"file://{self.uri}"
        self._fsync = fsync
        self._disk = disk or this_disk()
        self._folders: set[str] = set()
        self._synced: set[Path] = set()

    def fences(self) -> bool:
        """Tell that a name is given once: `link` sees to it, on mounted disks too."""
        return True

    def read(self, name: str) -> pa.Buffer:
        """Map a file into memory."""
        path = self.root / name
        if self._plain(name).st_size == 0:
            return pa.py_buffer(b"")
        with pa.memory_map(str(path)) as mapped:
            return mapped.read_buffer()

    def open(self, name: str) -> pa.NativeFile:
        """Open a file."""
        self._plain(name)
        return pa.memory_map(str(self.root / name))

    def _plain(self, name: str) -> os.stat_result:
        """Expect a plain file in plain folders: a link could lead anywhere, and a pipe would keep us for ever."""
        path = self.root
        *folders, last = name.split("/")
        for folder in folders:
            path = path / folder
            if not stat.S_ISDIR(path.lstat().st_mode):
                raise NotPlain(errno.EINVAL, "Not in a plain folder", str(path))
        path = path / last
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise NotPlain(errno.EINVAL, "Not a plain file", str(path))
        return status

    def _make(self, folder: Path) -> None:
        """Make a folder, and those above it that are not there; with `fsync`, see that their names stay."""
        try:
            self._disk.mkdir(str(folder))
        except FileExistsError:
            if not folder.is_dir():
                raise
            return
        except FileNotFoundError:
            if folder == folder.parent:
                raise
            self._make(folder.parent)
            self._make(folder)
            return
        if self._fsync:
            self._disk.sync(str(folder.parent))

    def _temporary(self, name: str, data: Data) -> Path:
        path = self.root / name
        folder = str(path.parent)
        if folder not in self._folders:
            self._make(path.parent)
            self._folders.add(folder)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
        try:
            self._disk.create(str(temporary), data, sync=self._fsync)
        except BaseException:
            self._unlink(temporary)
            raise
        return temporary

    def _unlink(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(str(path))

    def _sync_folder(self, path: Path) -> None:
        if self._fsync:
            self._disk.sync(str(path.parent))

    def write(self, name: str, data: Data) -> None:
        """Write to a temporary file and rename it."""
        with named(self.uri):
            path = self.root / name
            self._disk.replace(str(self._temporary(name, data)), str(path))
            self._sync_folder(path)

    def write_new(self, name: str, data: Data) -> bool:
        """Write to a temporary file and link it, which fails where the name is taken."""
        with named(self.uri):
            path = self.root / name
            temporary = self._temporary(name, data)
            try:
                self._disk.link(str(temporary), str(path))
            except OSError as error:
                # On a mounted disk the link may have been made and the reply lost: then the name is our own file's.
                if not _same(temporary, path):
                    if isinstance(error, FileExistsError):
                        return False
                    raise
            finally:
                self._unlink(temporary)
            self._sync_folder(path)
            return True

    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""
        return (self.root / name).exists()

    def strange(self, folders: Iterable[str]) -> list[str]:
        """List those of some folders that are there and are not directories themselves."""
        found = []
        for folder in folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if not stat.S_ISDIR((self.root / folder).lstat().st_mode):
                    found.append(folder)
        return found

    def list(self, folder: str) -> list[str]:
        """List a folder, leaving out temporary files."""
        try:
            return sorted(name for name in self._disk.list(str(self.root / folder)) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def delete(self, names: Iterable[str]) -> None:
        """Unlink files; with `fsync` they are gone for good, so what is deleted next cannot be gone without them."""
        folders = set()
        for name in names:
            path = self.root / name
            with contextlib.suppress(IsADirectoryError):
                self._unlink(path)
            folders.add(path.parent)
        if self._fsync:
            for folder in sorted(folders):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.sync(str(folder))

    def move(self, moves: Mapping[str, str]) -> None:
        """Rename files; with `fsync`, a file's new name is there for good before its old one goes."""
        gone = []
        with named(self.uri):
            for name, target in moves.items():
                source, path = self.root / name, self.root / target
                self._make(path.parent)
                try:
                    if self._fsync:
                        with contextlib.suppress(FileExistsError):
                            self._disk.link(str(source), str(path))
                    else:
                        self._disk.replace(str(source), str(path))
                except FileNotFoundError:
                    if not path.exists():
                        gone.append(name)
            if self._fsync:
                self._sync_all((self.root / target).parent for target in moves.values())
                for name, target in moves.items():
                    if (self.root / target).exists():
                        self._unlink(self.root / name)
                self._sync_all((self.root / name).parent for name in moves)
        if gone:
            raise FileNotFoundError(errno.ENOENT, "there is no such file, nor one of the name it was to get", gone[0])

    def _sync_all(self, folders: Iterable[Path]) -> None:
        for folder in set(folders):
            with contextlib.suppress(FileNotFoundError):
                self._disk.sync(str(folder))

    def remove(self, folder: str) -> None:
        """Delete a folder with all that is in it; a power cut may bring it back."""
        self._disk.remove(str(self.root / folder))

    def sync(self, names: Iterable[str]) -> None:
        """Sync files, then the folders they are in, and of one that is new those above it. Nothing without `fsync`."""
        if not self._fsync:
            return
        folders: set[Path] = set()
        with named(self.uri):
            for name in names:
                path = self.root / name
                with contextlib.suppress(FileNotFoundError):
                    self._disk.sync(str(path))
                    folders.add(path.parent)
            # Whoever made a folder gave it a name in the one above it, and perhaps made that too.
            new = folders - self._synced - {self.root}
            above = {parent for folder in new for parent in folder.parents if parent.is_relative_to(self.root)}
            for folder in sorted(folders | above, reverse=True):
                self._disk.sync(str(folder))
            # A sink has a new folder for each epoch; to sync a known one's parents again does no harm.
            self._synced = new if len(self._synced) > _REMEMBERED else self._synced | new

    def keep(self, folders: Iterable[str]) -> None:
        """Make folders and sync them and all that are above them; nothing without `fsync`."""
        if not self._fsync:
            return
        with named(self.uri):
            for folder in folders:
                self._make(self.root / folder)
                self._disk.sync(str(self.root / folder))
            self._disk.sync(str(self.root))
            for above in self.root.parents:
                # Whoever made it may have been killed before it was synced; what is not ours to read we did not make.
                with contextlib.suppress(PermissionError):
                    self._disk.sync(str(above))

    def sweep(self, folder: str) -> None:
        """Remove the temporary files that killed writers left in a folder, or in the root."""
        path = self.root / folder
        if path.is_dir() and not (folder and path.is_symlink()):
            for entry in path.iterdir():
                # There may be hidden files of others too, and no directory is a writer's.
                if _TEMPORARY.fullmatch(entry.name) and (entry.is_symlink() or not entry.is_dir()):
                    self._unlink(entry)


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
