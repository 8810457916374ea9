"""One job per checkpoint: a lock that the kernel gives back when its holder dies."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import weakref
from pathlib import Path
from types import TracebackType

from ferryman._log.files.directory import Directory, LocalDirectory
from ferryman._model.errors import CheckpointInUse, CheckpointUnwritable, CorruptCheckpoint

_held: weakref.WeakSet[CheckpointLock] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """In a forked child: close what it was given of its parent's locks, or it would hold them when that is dead."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_leave_to_the_parent)


class CheckpointLock:
    """Hold a checkpoint directory for one job.

    On a local or mounted disk this is `flock`, which keeps a second job from starting. It cannot keep away a driver
    that has lost it (a lease that ran out, a file that was deleted): that is what terms are for. Object stores
    have no lock at all; there a second job takes over.
    """

    def __init__(self, directory: Directory, job: str) -> None:
        self._fd: int | None = None
        if not isinstance(directory, LocalDirectory):
            return
        path = directory.root / ".lock"
        try:
            directory.root.mkdir(parents=True, exist_ok=True)
            fd = lock_file(path)
        except OSError as error:
            raise _unwritable(directory, error) from error
        if fd is None:
            raise CheckpointInUse(
                f"{directory.uri} is in use by another job ({holder_of(path)}). Stop that job first, or give this one "
                "a checkpoint of its own."
            )
        try:
            os.ftruncate(fd, 0)
            held_by = {"job": job, "pid": os.getpid(), "host": socket.gethostname()}
            os.pwrite(fd, json.dumps(held_by).encode(), 0)
        except OSError as error:
            os.close(fd)
            raise _unwritable(directory, error) from error
        self._fd = fd
        _held.add(self)

    @property
    def held(self) -> bool:
        """Tell whether it is held: some storage has none."""
        return self._fd is not None

    def release(self) -> None:
        """Let another job have the checkpoint."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            _held.discard(self)

    def __enter__(self) -> CheckpointLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock_file(path: Path) -> int | None:
    """Lock the file that has this name now; None where another has locked it.

    What is locked is written to. A link could have any file of the user's written, and so could a second name.
    """
    while True:
        try:
            # A pipe would wait for a reader.
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise _strange(path) from error
            raise
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _strange(path)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # It may have been deleted since it was opened, and another one be there: that is the one to have.
            if os.path.samestat(status := os.fstat(fd), os.stat(path, follow_symlinks=False)):
                if status.st_nlink <= 1:
                    return fd
                # Nobody holds it; a backup made of links, for one, goes on with its own.
                os.unlink(path)
        except BlockingIOError:
            os.close(fd)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _strange(path: Path) -> CorruptCheckpoint:
    return CorruptCheckpoint(
        f"{path.name} in {path.parent} is a link, or no plain file: to lock it would be to write to what it leads to. "
        "Nothing was changed. Remove it, if no job runs on the checkpoint, and start again."
    )


def holder_of(path: Path) -> str:
    """Say who holds the lock in a file, as far as that is written there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            return file.read(4096).decode(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"


def _unwritable(directory: Directory, error: OSError) -> CheckpointUnwritable:
    return CheckpointUnwritable(
        f"cannot write to {directory.uri}: {error.strerror}. Give the job a directory it may write to, on a disk "
        "that has space."
    )
