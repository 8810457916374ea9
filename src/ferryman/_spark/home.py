"""Find this host's name and its home: the local directory that holds main copies, a cache that can be rebuilt."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path


def home(job_id: str, configured: str | None) -> Path:
    """Give the home of a job on this host.

    The executor's own directory comes first, as Spark removes it with the executor; then what the
    cluster manager or Spark names as local disk; then the system's temporary directory.
    """
    for place in (
        configured,
        os.environ.get("SPARK_EXECUTOR_DIRS"),
        os.environ.get("LOCAL_DIRS"),
        os.environ.get("SPARK_LOCAL_DIRS"),
    ):
        if place:
            base = Path(place.replace(":", ",").split(",")[0] if place is not configured else place)
            return base / "ferryman" / job_id
    return Path(tempfile.gettempdir()) / f"ferryman-{os.getuid()}" / job_id


def host() -> str:
    """Give the name by which Spark knows the host of this executor.

    Spark hands its Python workers no name, but the variables that make an executor call itself something else than
    the system does are inherited by them.
    """
    return os.environ.get("SPARK_LOCAL_HOSTNAME") or os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
