"""A PostgreSQL server of a test's own, on loopback, from the programs that the machine has."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def programs() -> Path | None:
    """Find the server's programs, which Debian keeps off the path."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else max(found, default=None)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Run a server; give what psycopg connects by. Skip where there is none."""
    pytest.importorskip("psycopg", reason="make install brings it")
    bin = programs()
    if bin is None:
        pytest.skip("no PostgreSQL server on this machine: Debian's package postgresql has one")
    folder = Path(tempfile.mkdtemp(prefix="ferryman-pg-"))
    folder.chmod(0o755)
    data = folder / "data"
    data.mkdir()
    user: dict[str, int] = {}
    if os.getuid() == 0:
        # The server does not run as root.
        shutil.chown(data, "nobody")
        user = {"user": shutil.os.stat(data).st_uid}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = {"cwd": data, "check": True, "stdout": subprocess.DEVNULL, "env": {"PATH": f"{bin}:{os.environ['PATH']}"}}
    options = f"-p {port} -k {data} -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB"
    initdb = [bin / "initdb", "-D", data / "db", "-U", "ferry", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
    pg_ctl = [bin / "pg_ctl", "-D", data / "db", "-w"]
    try:
        subprocess.run(initdb, **run, **user)
        subprocess.run([*pg_ctl, "-l", data / "log", "-o", options, "start"], **run, **user)
        yield f"host=127.0.0.1 port={port} user=ferry dbname=postgres"
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run([*pg_ctl, "-m", "immediate", "stop"], **run, **user)
        shutil.rmtree(folder, ignore_errors=True)
