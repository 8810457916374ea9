"""Find this host's home: the local directory that holds main copies. A cache; it can always be rebuilt.

A home belongs to one run of a job on one checkpoint directory. What an earlier run left, perhaps of a
history that a restored or copied checkpoint no longer has, is never read again, only removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from ferryman._serve.private import own_directory


def home(checkpoint: str, run_id: str, configured: str | None) -> Path:
    """Give the home of a run on this host.

    The executor's own directory comes first, as Spark removes it with the executor; then what the
    cluster manager or Spark names as local disk; then the system's temporary directory.
    """
    job = hashlib.blake2b(checkpoint.encode(), digest_size=8).hexdigest()
    return _base(configured) / job / run_id


def _base(configured: str | None) -> Path:
    if configured:
        return Path(configured) / "ferryman"
    for name in ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"):
        if place := os.environ.get(name):
            return Path(place.replace(":", ",").split(",")[0]) / "ferryman"
    return own_directory()


def forget_earlier_runs(place: Path) -> None:
    """Remove the homes that earlier runs on the same checkpoint left on this host."""
    if place.parent.is_dir():
        for other in place.parent.iterdir():
            if other != place:
                shutil.rmtree(other, ignore_errors=True)


@contextlib.contextmanager
def alone(place: Path, operator: str, who: int | str) -> Iterator[None]:
    """Keep two attempts of one instance apart while they read a home; or two instances that share a key group.

    One of them may have to rebuild the main copies; the other must not read them meanwhile.
    """
    place.mkdir(parents=True, exist_ok=True)
    fd = os.open(place / f"{operator}-{who}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
