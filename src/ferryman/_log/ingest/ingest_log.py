"""Write an ingest log: append rows, durable when that returns, and trim what is committed.

Offsets count rows and only grow. Files are begun whole, by a rename, and then only appended to, one block at a time.
Calls `ingest_files` and `blocks`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
import uuid
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.lock import CheckpointLock, holder_of
from ferryman._log.ingest.blocks import pack_block, pack_head
from ferryman._log.ingest.ingest_files import firsts, head_of, name_of, tail_of
from ferryman._model.errors import (
    CheckpointInUse,
    CheckpointUnwritable,
    IngestLogFull,
    IngestLogInUse,
    IngestLogUnwritable,
    InvalidConfiguration,
)
from ferryman._os.disk import this_disk
from ferryman._os.faults import reach

MAX_BYTES = 1 << 30
_LEAST_BYTES = 1 << 20
_MOST_FILE_BYTES = 8 << 20
_MOST_BLOCK_BYTES = 4 << 20


class IngestLog:
    """An ingest log, open for writing.

    Parameters
    ----------
    path
        A directory on a local disk, or on a mounted one with locks.
    schema
        The columns of its rows.
    max_bytes
        How large it may be. When it is full, `append` refuses.
    keep_bytes
        How much of what is committed is kept all the same, for checkpoints that are rewound.
    patience_s
        How long to wait for another that writes, and may be about to end.

    Raises
    ------
    IngestLogInUse
        Another process writes to it.
    CorruptIngestLog
        It is damaged, other than by a crash.
    """

    def __init__(
        self,
        path: str | Path,
        schema: pa.Schema,
        *,
        max_bytes: int = MAX_BYTES,
        keep_bytes: int = 0,
        patience_s: float = 0.0,
    ) -> None:
        if max_bytes < _LEAST_BYTES or not 0 <= keep_bytes <= max_bytes // 4:
            raise InvalidConfiguration.of(
                [f"max_bytes: an ingest log needs {_LEAST_BYTES} bytes, and keep_bytes at most a quarter of them"]
            )
        self.path = Path(path)
        self._schema = schema
        self.max_bytes, self._keep_bytes = max_bytes, keep_bytes
        self._file_bytes = min(_MOST_FILE_BYTES, max_bytes // 8)
        # How much to write at once; and the largest row there is room for as soon as all is committed.
        self.block_bytes, self.row_bytes = min(_MOST_BLOCK_BYTES, max_bytes // 8), max_bytes // 4
        self.id = ""
        self._sizes: dict[int, int] = {}
        self._end = 0
        # The first offset of the file that is appended to.
        self._active = 0
        self._disk = this_disk()
        self._file: int | None = None
        self._broken = False
        # Guards what `append` and `trim` both change; neither works on files under it.
        self._lock = threading.Lock()
        self._held = self._locked(patience_s)
        try:
            self._open()
        except OSError as error:
            self.close()
            raise self._unwritable(error) from error
        except BaseException:
            self.close()
            raise

    def _locked(self, patience_s: float) -> CheckpointLock:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return CheckpointLock(LocalDirectory(self.path), "ingest log")
            except CheckpointInUse as error:
                if time.monotonic() >= deadline:
                    raise IngestLogInUse(
                        f"the ingest log {self.path} is written to by another process "
                        f"({holder_of(self.path / '.lock')}). A log belongs to one stream of one job: stop that job, "
                        "or give this stream a log of its own."
                    ) from error
                # There is nothing that would tell.
                time.sleep(0.05)
            except CheckpointUnwritable as error:
                raise IngestLogUnwritable(str(error.message)) from error

    def _open(self) -> None:
        for name in self._disk.list(str(self.path)):
            if name.endswith(".begun"):
                self._disk.unlink(str(self.path / name))
        there = firsts(self.path)
        if not there:
            self.id = str(uuid.uuid4())
            self._begin_file(0)
            return
        head, schema = head_of(self.path, there[-1])
        if not schema.equals(self._schema):
            raise InvalidConfiguration(
                f"the ingest log {self.path} has other columns ({', '.join(schema.names)}) than this source "
                f"({', '.join(self._schema.names)}): it is of another kind of source, or of another version. Give "
                "this one a log of its own."
            )
        self.id = head.log
        self._sizes = {first: (self.path / name_of(first)).stat().st_size for first in there}
        tail = tail_of(self.path, there[-1])
        self._end, self._active = tail.end, there[-1]
        path = str(self.path / name_of(there[-1]))
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        if tail.torn:
            os.ftruncate(self._file, tail.at)
        # Whoever wrote the last block may have died before it was synced, and is read from now on.
        self._disk.sync_bytes(path, self._file)
        self._disk.sync(str(self.path))
        self._sizes[there[-1]] = tail.at

    @property
    def begin(self) -> int:
        """Give the offset of the oldest row that is there."""
        with self._lock:
            return min(self._sizes)

    @property
    def end(self) -> int:
        """Give the offset after the newest row that is durable."""
        with self._lock:
            return self._end

    @property
    def bytes(self) -> int:
        """Give how many bytes its files have."""
        with self._lock:
            return sum(self._sizes.values())

    def append(self, batch: pa.RecordBatch) -> int:
        """Write rows; they are durable when this returns, and it gives the offset of the first.

        Raises
        ------
        IngestLogFull
            There is no room for them until something is trimmed. Nothing was written.
        IngestLogUnwritable
            The disk refuses. What is in the log already stays; open it again to go on.
        """
        if self._broken or self._file is None:
            raise IngestLogUnwritable(f"the ingest log {self.path} is closed, or could not be written before.")
        block = pack_block(batch, self._end)
        if self.bytes + len(block) > self.max_bytes:
            raise IngestLogFull(
                f"the ingest log {self.path} has {self.bytes} of {self.max_bytes} bytes, and none of it is committed: "
                "the job is slower than its source, or stands still. See what it waits for, or raise max_bytes."
            )
        first, active = self._end, self._active
        try:
            if self._sizes[active] >= self._file_bytes and first > active:
                self._begin_file(first)
                active = self._active
            path = str(self.path / name_of(active))
            self._disk.append(path, self._file, block)
            reach("ingest-written")
            self._disk.sync_bytes(path, self._file)
        except OSError as error:
            # What of it is on the disk is not known: no further block may follow it.
            self._broken = True
            raise self._unwritable(error) from error
        reach("ingest-durable")
        with self._lock:
            self._sizes[active] += len(block)
            self._end += batch.num_rows
        return first

    def _begin_file(self, first: int) -> None:
        path = str(self.path / name_of(first))
        head = pack_head(self.id, first, self._schema)
        self._disk.create(path + ".begun", head, sync=True)
        self._disk.replace(path + ".begun", path)
        self._disk.sync(str(self.path))
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        if self._file is not None:
            os.close(self._file)
        self._file = file
        self._active = first
        with self._lock:
            self._sizes[first] = len(head)

    def trim(self, committed: int) -> int:
        """Delete files whose rows are all before an offset, but for what is to be kept; give how many went."""
        with self._lock:
            there = sorted(self._sizes)
            done = [first for first, after in pairwise(there) if after <= committed]
            spare = sum(self._sizes[first] for first in done) - self._keep_bytes
        gone = 0
        for first in done:
            with self._lock:
                spare -= self._sizes[first]
            if spare < 0:
                break
            # One by one and the oldest first, so that a power cut leaves no gap.
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(str(self.path / name_of(first)))
            self._disk.sync(str(self.path))
            with self._lock:
                del self._sizes[first]
            gone += 1
        return gone

    def close(self) -> None:
        """Let another write."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._held.release()

    def _unwritable(self, error: OSError) -> IngestLogUnwritable:
        what = error.strerror or errno.errorcode.get(error.errno or 0, "unknown")
        return IngestLogUnwritable(
            f"cannot write to the ingest log {self.path}: {what}. Nothing was acknowledged that is not durable. Give "
            "it a directory it may write to, on a disk that has space, and start the job again."
        )
