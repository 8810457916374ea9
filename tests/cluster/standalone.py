"""The cluster the tests run on, and how they wait for it."""

from __future__ import annotations

import time
from pathlib import Path

from ferryman._spark.cluster import Cluster, Worker, addresses, available, standalone

__all__ = ["HOSTS", "Cluster", "Worker", "available", "standalone", "until"]

HOSTS = addresses(2)


def until(condition, what: str, timeout: float = 120, log: Path | None = None):
    """Wait until a condition gives something true, and return that."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s\n{log.read_text()[-4000:] if log else ''}")
        time.sleep(0.02)
