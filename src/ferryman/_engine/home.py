"""Find this host's home: the local directory that holds main copies. A cache; it can always be rebuilt.

A home belongs to one run of a job on one checkpoint directory. What an earlier run left, perhaps of a
history that a restored or copied checkpoint no longer has, is never read again, only removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from ferryman._model.errors import FerrymanError, HomeUnwritable
from ferryman._os.user_directory import own_directory


def home(checkpoint: str, run_id: str, configured: str | None) -> Path:
    """Give the home of a run on this host.

    The executor's own directory comes first, as Spark removes it with the executor; then what the
    cluster manager or Spark names as local disk; then the system's temporary directory.
    """
    job = hashlib.blake2b(checkpoint.encode(), digest_size=8).hexdigest()
    return _base(configured) / job / run_id


def _base(configured: str | None) -> Path:
    if configured:
        return _owned(configured)
    for name in ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"):
        if place := os.environ.get(name):
            return _owned(place.replace(":", ",").split(",")[0], given=True)
    return own_directory()


@lru_cache(maxsize=64)
def _owned(place: str, given: bool = False) -> Path:
    """Give this user's directory in a place that others may use too; looked at once, as each task comes this way."""
    return own_directory(Path(place), given=given)


def settle(place: Path) -> None:
    """Move into a home, for as long as this process lives; remove those that nobody lives in any more.

    Who lives in a home holds a lock in it. So of two runs that share a directory, and take it for the same as their
    checkpoints have the same path in two containers, none removes the other's.
    """
    if place not in _settled:
        _settled[place] = _lock(place)
    for other in place.parent.iterdir():
        if other != place and other.is_dir() and not other.is_symlink():
            _remove_if_left(other)


def move_out(place: Path) -> None:
    """Let go of a home."""
    if (fd := _settled.pop(place, None)) is not None:
        os.close(fd)


# The homes that this process lives in, with the lock it holds in each.
_settled: dict[Path, int] = {}


def _lock(place: Path) -> int:
    while True:
        try:
            make(place)
            fd = os.open(place / _LIVING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            # So it may have been between the two.
            continue
        fcntl.flock(fd, fcntl.LOCK_SH)
        # Who took it for left may just have removed it.
        with contextlib.suppress(FileNotFoundError):
            if (place / _LIVING).stat().st_ino == os.fstat(fd).st_ino:
                return fd
        os.close(fd)


def _remove_if_left(other: Path) -> None:
    try:
        fd = os.open(other / _LIVING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(other, ignore_errors=True)
    except BlockingIOError:
        # Somebody lives in it.
        pass
    finally:
        os.close(fd)


def make(place: Path) -> None:
    """Make the directory of a home, and that of its job, for their user alone."""
    for each in (place.parent, place):
        each.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextlib.contextmanager
def writable(place: Path) -> Iterator[None]:
    """Say which disk it is that has no room, or may not be written to."""
    try:
        yield
    except FerrymanError:
        raise
    except Exception as error:
        # Stores have errors of their own, which say it in words.
        why = next((os.strerror(code) for code in _REFUSED if _says(error, code)), None)
        if why is None:
            raise
        raise HomeUnwritable(
            f"the home {place} on {host()} cannot be written: {why} ({type(error).__name__}: {error}). It holds this "
            "host's copy of the state, which can be made anew from the checkpoint, so nothing is lost, and the epoch "
            "was not committed. Free space there, or have homes on another disk with Ferry(home=...), and start the "
            "job again."
        ) from error


_LIVING = "living.lock"
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO)


def _says(error: Exception, number: int) -> bool:
    return getattr(error, "errno", None) == number or os.strerror(number) in str(error)


@contextlib.contextmanager
def alone(place: Path, operator: str, who: int | str) -> Iterator[None]:
    """Keep two attempts of one instance apart while they read a home; or two instances that share a key group.

    One of them may have to rebuild the main copies; the other must not read them meanwhile.
    """
    make(place)
    fd = os.open(place / f"{operator}-{who}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def host() -> str:
    """Give the name by which Spark knows the host of this executor.

    Spark hands its Python workers no name, but the variables that make an executor call itself something else than
    the system does are inherited by them.
    """
    return os.environ.get("SPARK_LOCAL_HOSTNAME") or os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
