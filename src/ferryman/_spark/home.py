"""Find this host's home: the local directory that holds main copies. A cache; it can always be rebuilt."""

from __future__ import annotations

import os
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
