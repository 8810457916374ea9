"""Reach the checkpoint directory, on the local disk or on any filesystem pyarrow.fs knows.

Writes are atomic: a reader sees a whole file or none. On the local disk that is a temporary file and
a rename (or a link, where the file must not exist yet); elsewhere it is what `pyarrow.fs` offers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.fs as pafs

from ferryman._model.errors import CheckpointUnwritable, InvalidConfiguration

_UNWRITABLE = {
    errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOENT,
    errno.ENOTDIR, errno.EEXIST,
}  # fmt: skip

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}")


class Directory(Protocol):
    """A directory of immutable files, reached by relative names."""

    uri: str
    spark_uri: str  # the same place as Spark must be told, whatever its default filesystem is

    def read(self, name: str) -> pa.Buffer:
        """Read a whole file; FileNotFoundError where there is none."""

    def open(self, name: str) -> pa.NativeFile:
        """Open a file, to read parts of it."""

    def write(self, name: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Write a file atomically, replacing it."""

    def write_new(self, name: str, data: bytes | memoryview | pa.Buffer) -> bool:
        """Write a file atomically unless it exists; tell whether it was written."""

    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""

    def list(self, folder: str) -> list[str]:
        """List the names of a folder's files, sorted; empty where there is no such folder."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those already gone do not matter."""

    def sweep(self, folder: str) -> None:
        """Remove what killed writers left in a folder; only the job that holds the lock may."""


def directory(location: str, *, fsync: bool = False) -> Directory:
    """Open the directory at a path or URI."""
    parsed = urlparse(location)
    if parsed.scheme in ("", "file"):
        path = unquote(parsed.path) if parsed.scheme else location
        return LocalDirectory(Path(path), fsync=fsync)
    return RemoteDirectory(location)


@contextlib.contextmanager
def _named(where: str) -> Iterator[None]:
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
    """A directory on a disk of this machine, or mounted on it."""

    def __init__(self, root: Path, *, fsync: bool = False) -> None:
        self.root = root.absolute()
        self.uri = self.root.as_posix()
        self.spark_uri = f"file://{self.uri}"
        self._fsync = fsync
        self._folders: set[str] = set()

    def read(self, name: str) -> pa.Buffer:
        """Map a file into memory."""
        path = self.root / name
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            # A link could lead anywhere, and a pipe would keep us for ever.
            raise OSError(errno.EINVAL, "Not a plain file", str(path))
        if status.st_size == 0:
            return pa.py_buffer(b"")
        with pa.memory_map(str(path)) as mapped:
            return mapped.read_buffer()

    def open(self, name: str) -> pa.NativeFile:
        """Open a file."""
        return pa.memory_map(str(self.root / name))

    def _temporary(self, name: str, data: bytes | memoryview | pa.Buffer) -> Path:
        path = self.root / name
        folder = str(path.parent)
        if folder not in self._folders:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(folder)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
        try:
            with open(temporary, "xb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                if self._fsync:
                    os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def _sync_folder(self, path: Path) -> None:
        if self._fsync:
            fd = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def write(self, name: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Write to a temporary file and rename it."""
        with _named(self.uri):
            path = self.root / name
            self._temporary(name, data).replace(path)
            self._sync_folder(path)

    def write_new(self, name: str, data: bytes | memoryview | pa.Buffer) -> bool:
        """Write to a temporary file and link it, which fails where the name is taken."""
        with _named(self.uri):
            path = self.root / name
            temporary = self._temporary(name, data)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                temporary.unlink(missing_ok=True)
            self._sync_folder(path)
            return True

    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""
        return (self.root / name).exists()

    def list(self, folder: str) -> list[str]:
        """List a folder, leaving out temporary files."""
        try:
            with os.scandir(self.root / folder) as entries:
                return sorted(entry.name for entry in entries if not entry.name.startswith("."))
        except FileNotFoundError:
            return []

    def delete(self, names: Iterable[str]) -> None:
        """Unlink files."""
        for name in names:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                (self.root / name).unlink()

    def sweep(self, folder: str) -> None:
        """Remove the temporary files that killed writers left in a folder, or in the root."""
        path = self.root / folder
        if path.is_dir():
            for entry in path.iterdir():
                # In the root there are others' hidden files too.
                if entry.name.startswith(".") if folder else _TEMPORARY.fullmatch(entry.name):
                    if entry.is_dir():
                        shutil.rmtree(entry, ignore_errors=True)
                    else:
                        entry.unlink(missing_ok=True)


class RemoteDirectory:
    """A directory on any filesystem that pyarrow.fs reaches: S3, GCS, Azure, HDFS."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self.spark_uri = self.uri
        try:
            self._fs, root = pafs.FileSystem.from_uri(self.uri)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidConfiguration(
                f"{uri!r} is neither a path nor a URI that pyarrow reaches ({error}). Use a path, or a URI such as "
                "s3://bucket/folder; write ./ before a path with a colon in it."
            ) from error
        self._root = root.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def read(self, name: str) -> pa.Buffer:
        """Read a whole file."""
        with self.open(name) as file:
            return file.read_buffer()

    def open(self, name: str) -> pa.NativeFile:
        """Open a file."""
        return self._fs.open_input_file(self._path(name))

    def write(self, name: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Write to a temporary name and move it."""
        with _named(self.uri):
            path = self._path(name)
            folder, _, base = path.rpartition("/")
            self._fs.create_dir(folder, recursive=True)
            temporary = f"{folder}/.{base}.{uuid.uuid4().hex[:12]}"
            with self._fs.open_output_stream(temporary) as out:
                out.write(data)
            self._fs.move(temporary, path)

    def write_new(self, name: str, data: bytes | memoryview | pa.Buffer) -> bool:
        """Look first, then write: these filesystems have no common exclusive create."""
        if self.exists(name):
            return False
        self.write(name, data)
        return True

    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""
        return bool(self._fs.get_file_info(self._path(name)).type == pafs.FileType.File)

    def list(self, folder: str) -> list[str]:
        """List a folder, leaving out temporary files."""
        selector = pafs.FileSelector(self._path(folder), allow_not_found=True)
        names = (info.base_name for info in self._fs.get_file_info(selector))
        return sorted(name for name in names if not name.startswith("."))

    def delete(self, names: Iterable[str]) -> None:
        """Delete files."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_file(self._path(name))

    def sweep(self, folder: str) -> None:
        """Leave temporary files alone: another writer's cannot be told from a killed one's."""
