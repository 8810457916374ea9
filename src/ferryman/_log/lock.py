"""One job per checkpoint: a lock that the kernel gives back when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from types import TracebackType

from ferryman._log.directory import Directory, LocalDirectory
from ferryman._model.errors import CheckpointInUse, CheckpointUnwritable


class CheckpointLock:
    """Hold a checkpoint directory for one job.

    On a local or mounted disk this is `flock`. Object stores have none; there the manifests, of which
    each epoch has one, keep a second job from committing.
    """

    def __init__(self, directory: Directory, job: str) -> None:
        self._fd: int | None = None
        if not isinstance(directory, LocalDirectory):
            return
        path = directory.root / ".lock"
        try:
            directory.root.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _unwritable(directory, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            held_by = {"job": job, "pid": os.getpid(), "host": socket.gethostname()}
            os.pwrite(fd, json.dumps(held_by).encode(), 0)
        except BlockingIOError:
            holder = os.pread(fd, 4096, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise CheckpointInUse(
                f"{directory.uri} is in use by another job ({holder}). Stop that job first, or give this one a "
                "checkpoint of its own."
            ) from None
        except OSError as error:
            os.close(fd)
            raise _unwritable(directory, error) from error
        self._fd = fd

    def release(self) -> None:
        """Let another job have the checkpoint."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> CheckpointLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _unwritable(directory: Directory, error: OSError) -> CheckpointUnwritable:
    return CheckpointUnwritable(
        f"cannot write to {directory.uri}: {error.strerror}. Give the job a directory it may write to, on a disk "
        "that has space."
    )
