"""Reach a checkpoint directory on S3, GCS, Azure, HDFS: any filesystem that pyarrow.fs knows.

`pyarrow.fs` has no way to create a file only where there is none, and the commit of an epoch rests on that. Object
stores have one of their own, a conditional put, which `obstore` reaches (the `objects` extra). Where there is none,
two drivers cannot be kept apart, and `fences` says so. Calls pyarrow and obstore.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import importlib.util
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from ferryman._log.files.directory import named
from ferryman._log.files.remote_options import plain_uri
from ferryman._model.errors import InvalidConfiguration
from ferryman._os.disk import Data

# The stores that create a file only where there is none, if they are asked to.
_CONDITIONAL = ("s3", "gs", "abfs", "abfss")


class RemoteDirectory:
    """A directory on any filesystem that pyarrow.fs reaches: S3, GCS, Azure, HDFS."""

    remote = True

    def __init__(self, uri: str) -> None:
        self.address = uri.rstrip("/")
        self.uri = masked(self.address)
        parts = urlsplit(self.address)
        # Spark has its own ways to be told of servers and credentials.
        user, at, host = parts.netloc.rpartition("@")
        # Of Azure's, what is before it is the container.
        host = host if parts.scheme in ("s3", "gs") else f"{user.partition(':')[0]}{at}{host}"
        self.spark_uri = parts._replace(netloc=host, query="").geturl().rstrip("/")
        try:
            self._fs, root = pafs.FileSystem.from_uri(self.address)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidConfiguration(
                f"{self.uri!r} is neither a path nor a URI that pyarrow reaches ({masked(str(error))}). "
                "Use a path, or a URI such as s3://bucket/folder; write ./ before a path with a colon in it."
            ) from None
        self._root = root.rstrip("/")
        self._conditional: Any = None
        self._known: bool | None = None

    def fences(self) -> bool:
        """Try whether the store creates a file only where there is none; some take the condition and ignore it."""
        if not self._conditionally():
            return False
        # In no folder: pyarrow leaves a mark where it has deleted a file, and that would look like a checkpoint.
        probe = f".probe-{uuid.uuid4().hex[:12]}"
        try:
            return self._create(probe, b"first") and not self._create(probe, b"second")
        finally:
            self.delete([probe])

    def _conditionally(self) -> bool:
        if self._known is None:
            here = importlib.util.find_spec("obstore") is not None
            self._known = here and urlsplit(self.address).scheme in _CONDITIONAL
        return self._known

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @property
    def _objects(self) -> Any:
        """Give the store as obstore has it, which does with one request what takes pyarrow several."""
        if self._conditional is None:
            self._conditional = _store(self.address)
        return self._conditional

    def read(self, name: str) -> pa.Buffer:
        """Read a whole file."""
        if self._conditionally():
            with as_os_errors():
                return pa.py_buffer(obstore().get(self._objects, name).bytes())
        with self.open(name) as file:
            return file.read_buffer()

    def open(self, name: str) -> pa.NativeFile:
        """Open a file."""
        return self._fs.open_input_file(self._path(name))

    def write(self, name: str, data: Data) -> None:
        """Put a file: nobody sees a part of it. Elsewhere than in an object store, write it aside and move it."""
        with named(self.uri):
            if self._conditionally():
                with as_os_errors():
                    obstore().put(self._objects, name, bytes(data))
                return
            path = self._path(name)
            folder, _, base = path.rpartition("/")
            self._fs.create_dir(folder, recursive=True)
            temporary = f"{folder}/.{base}.{uuid.uuid4().hex[:12]}"
            with self._fs.open_output_stream(temporary) as out:
                out.write(data)
            self._fs.move(temporary, path)

    def write_new(self, name: str, data: Data) -> bool:
        """Create a file where there is none; without a conditional put that is to look first, and then to write."""
        if self._conditionally():
            return self._create(name, bytes(data))
        if self.exists(name):
            return False
        self.write(name, data)
        return True

    def _create(self, name: str, data: bytes) -> bool:
        """Put a file on the condition that there is none; tell whether it is ours."""
        from obstore.exceptions import AlreadyExistsError

        with named(self.uri), as_os_errors():
            try:
                obstore().put(self._objects, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                # A put whose reply was lost is sent again, and then meets itself.
                return bool(self.read(name).to_pybytes() == data)
        return True

    def exists(self, name: str) -> bool:
        """Tell whether a file is there."""
        if self._conditionally():
            try:
                with as_os_errors():
                    obstore().head(self._objects, name)
            except FileNotFoundError:
                return False
            return True
        return bool(self._fs.get_file_info(self._path(name)).type == pafs.FileType.File)

    def strange(self, folders: Iterable[str]) -> builtins.list[str]:
        """Find nothing strange: there are no links."""
        return []

    def list(self, folder: str) -> builtins.list[str]:
        """List a folder, leaving out temporary files."""
        if self._conditionally():
            with as_os_errors():
                found = obstore().list_with_delimiter(self._objects, prefix=folder or None)
            paths = [*(str(entry["path"]) for entry in found["objects"]), *map(str, found["common_prefixes"])]
            below = (path.rstrip("/").rpartition("/")[2] for path in paths)
            return sorted(name for name in below if name and not name.startswith("."))
        selector = pafs.FileSelector(self._path(folder), allow_not_found=True)
        names = (info.base_name for info in self._fs.get_file_info(selector))
        return sorted(name for name in names if not name.startswith("."))

    def delete(self, names: Iterable[str]) -> None:
        """Delete files."""
        if self._conditionally():
            # pyarrow would put a mark where it has deleted the last file of a folder.
            if listed := builtins.list(names):
                with as_os_errors(), contextlib.suppress(FileNotFoundError):
                    obstore().delete(self._objects, listed)
            return
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_file(self._path(name))

    def move(self, moves: Mapping[str, str]) -> None:
        """Move files: on an object store, a copy that it makes itself."""
        gone = []
        with named(self.uri):
            for name, target in moves.items():
                try:
                    self._fs.move(self._path(name), self._path(target))
                except OSError:
                    # An object store has an error of its own for a file that is not there.
                    if self.exists(name):
                        raise
                    if not self.exists(target):
                        gone.append(name)
        if gone:
            raise FileNotFoundError(errno.ENOENT, "there is no such file, nor one of the name it was to get", gone[0])

    def remove(self, folder: str) -> None:
        """Delete a folder with all that is in it."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.delete_dir(self._path(folder))

    def sync(self, names: Iterable[str]) -> None:
        """Nothing to do: these stores keep what they have taken."""

    def keep(self, folders: Iterable[str]) -> None:
        """Nothing to do: these stores keep what they have taken."""

    def sweep(self, folder: str) -> None:
        """Leave temporary files alone: another writer's cannot be told from a killed one's."""


# A password may have any letter in it, a slash too, so it ends at the last "@" of a word.
_PASSWORD = re.compile(r"(://[^@:/\s]*):\S*@")
_SECRET = re.compile(r"([?&][^=&\s]*(?:secret|key|token|sig|password)[^=&\s]*)=[^&\s'\"]+", re.IGNORECASE)


def masked(text: str) -> str:
    """Give a URI, or a text with one in it, without passwords and keys, as it may be shown.

    Examples
    --------
    >>> masked("s3://key:secret@bucket/jobs?region=eu")
    's3://key:***@bucket/jobs?region=eu'
    >>> masked("abfss://box@place/jobs?client_secret=abc")
    'abfss://box@place/jobs?client_secret=***'
    """
    return _SECRET.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", text))


def obstore() -> Any:
    """Give the library that reaches object stores; only who needs it loads it."""
    import obstore

    return obstore


@contextlib.contextmanager
def as_os_errors() -> Iterator[None]:
    """Have what an object store answers be an error as a disk has it."""
    from obstore.exceptions import AlreadyExistsError, BaseError, GenericError

    try:
        yield
    except AlreadyExistsError:
        raise
    except GenericError as error:
        # After all its retries: the network, or the store itself.
        raise ConnectionError(errno.EIO, masked(str(error).splitlines()[0])) from error
    except BaseError as error:
        raise OSError(errno.EIO, masked(str(error).splitlines()[0])) from error


def _store(uri: str) -> Any:
    """Open an object store at the URI that pyarrow was given."""
    from obstore.store import from_url

    plain, options = plain_uri(uri)
    client = {"allow_http": True} if options.pop("allow_http", "") else {}
    arguments: dict[str, Any] = {"config": options, "client_options": client}
    return from_url(plain, **{name: value for name, value in arguments.items() if value})
