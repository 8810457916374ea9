"""What the tests of state hosts share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from serving import GROUPS
from written_log import WrittenLog

from ferryman._log.files.directory import LocalDirectory
from ferryman._serve import client


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    log = WrittenLog(LocalDirectory(tmp_path / "checkpoint"), groups=GROUPS)
    for epoch in range(1, 5):
        log.commit({"Counts": {f"s-{number}": number * epoch for number in range(200)}})
    return log


@pytest.fixture
def watched():
    """A process that state hosts end with."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def quickly(monkeypatch):
    """Take a silent peer for gone sooner than in real use."""
    monkeypatch.setattr(client, "SILENCE_S", 0.5)
    monkeypatch.setattr(client, "PING_S", 0.5)
