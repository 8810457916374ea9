"""The files of running jobs: what killed drivers left goes, what belongs to those that run stays."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ferryman._os.user_directory import own_directory
from ferryman._serve import registry
from ferryman._serve.registry import Running, announce, running


@pytest.fixture(params=["short", "long" * 30])
def folder(request, tmp_path, monkeypatch):
    (tmp_path / request.param).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / request.param))
    monkeypatch.delenv("FERRYMAN_JOBS", raising=False)
    return own_directory()


def gone() -> int:
    """Give the number of a process that there is not, as those of another container are not here."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def listening(path: Path) -> socket.socket:
    """Listen at a path, however long it is."""
    server, fd = socket.socket(socket.AF_UNIX), os.open(path.parent, os.O_RDONLY)
    server.bind(f"/proc/self/fd/{fd}/{path.name}")
    os.close(fd)
    server.listen()
    return server


def job(pid: int, token: str) -> Running:
    return Running("job", "/checkpoint", pid, "grpc+tcp://127.0.0.1:1", token)


def test_a_driver_of_another_container_keeps_its_socket_and_its_file(folder: Path) -> None:
    pid, token = gone(), "abcdefgh" * 4
    path = folder / f"control-{pid}-{token[:8]}.sock"
    with listening(path):
        file = announce(job(pid, token))

        announce(job(os.getpid(), "12345678" * 4))

        assert path.exists()
        assert file.exists()
        # It is not one that could be reached from here.
        assert [driver.pid for driver in running()] == [os.getpid()]
        assert file.exists()


def test_what_a_killed_driver_left_is_removed(folder: Path) -> None:
    pid, token = gone(), "abcdefgh" * 4
    path = folder / f"control-{pid}-{token[:8]}.sock"
    server = listening(path)
    file = announce(job(pid, token))
    server.close()
    assert path.exists()

    announce(job(os.getpid(), "12345678" * 4))

    assert not path.exists()
    assert not file.exists()
    assert list(registry.place().iterdir()) == [registry.place() / f"{os.getpid()}-12345678.json"]
