"""The daemon that forks Python workers, spoken to as Spark does."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

# Spark names the module of its workers; this one has something to say when nobody listens any more.
WORKER = """
def main(infile, outfile):
    try:
        infile.read()
    except ConnectionResetError:
        pass
    outfile.write(b"the last bytes of a task")
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for the end of a process of another's by Linux's way")
def test_a_worker_whose_executor_has_hung_up_ends_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "pyspark_late.py").write_text(WORKER)
    spoken = {"PYTHON_WORKER_FACTORY_SECRET": "word", "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}
    daemon = subprocess.Popen(
        [sys.executable, "-m", "ferryman._spark.session.warm_workers", "pyspark_late"],
        env={**os.environ, **spoken, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert daemon.stdout is not None
        (port,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line, line.makefile("rb") as answered:
            (worker,) = struct.unpack("!i", answered.read(4))
            line.sendall(struct.pack("!i", 4) + b"word")
            assert answered.read(6) == struct.pack("!i", 2) + b"ok"
            ended = os.pidfd_open(worker)
            # Closed with a reset, so that what the worker writes then breaks its pipe.
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert select.select([ended], [], [], 60)[0]
        os.close(ended)
    finally:
        # The daemon ends when nobody is left who could ask it.
        _, said = daemon.communicate(timeout=60)
    assert said.decode() == ""
