"""A server of S3's protocol of a test's own: that of the benchmarks, where it can be had."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from bench.s3_server import KEYS, Server
from bench.s3_server import server as running_server

__all__ = ["KEYS", "Server", "server"]


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Run a server; skip where moto is not installed."""
    for name in ("boto3", "moto.server", "obstore"):
        pytest.importorskip(name, reason="make install brings it")
    with running_server() as running:
        yield running
