"""Start the state host of this host, once: whoever comes first starts it, the others find it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from ferryman._model.errors import PeerFailed
from ferryman._os.processes import kill, look
from ferryman._serve import client
from ferryman._serve.auth import Access
from ferryman._serve.state_host import LOCATION, Configuration

_MODULE = "ferryman._serve.state_host"
_STARTED = "state-host.started"
# One that has not come up after so long will not.
_PATIENCE_S = 60.0


def begin(configuration: Configuration) -> str | None:
    """Start this host's state host if it does not run; give its location, or None while it is coming up."""
    home = Path(configuration.home)
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (home / "state-host.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        location = _running(home / LOCATION, configuration.access)
        if location is None and not _coming_up(home / _STARTED):
            _put_down(home)
            (home / LOCATION).unlink(missing_ok=True)
            started = {"pid": _start(configuration, home), "at": time.time()}
            (home / _STARTED).write_text(json.dumps(started))
        return location


def put_down(home: Path) -> None:
    """End the state host of a home, however it is, and remove the home."""
    if home.is_dir():
        with (home / "state-host.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _put_down(home)
        shutil.rmtree(home, ignore_errors=True)


def _running(file: Path, access: Access) -> str | None:
    try:
        location = str(json.loads(file.read_text())["location"])
        client.ping(location, access)
    except (OSError, ValueError, KeyError, PeerFailed):
        return None
    return location


def _coming_up(file: Path) -> bool:
    """Tell whether one was started and has not yet said where it is."""
    try:
        started = json.loads(file.read_text())
        recent = time.time() - started["at"] < _PATIENCE_S
    except (OSError, ValueError, KeyError):
        return False
    # One that said so and does not answer has ended, or stalls.
    return recent and not (file.parent / LOCATION).exists() and _is_host(started["pid"])


def _put_down(home: Path) -> None:
    """End one that does not answer: while it stalls it may hold locks that tasks wait for."""
    for name in (LOCATION, _STARTED):
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads((home / name).read_text())["pid"])
            if _is_host(pid):
                kill(pid)


def _is_host(pid: int) -> bool:
    """Tell whether a process is a state host; its id may be somebody else's by now."""
    found = look(pid)
    return found is not None and _MODULE in found.command


def _start(configuration: Configuration, home: Path) -> int:
    with (home / "state-host.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            # Not in the group of Spark's daemon, which signals all of it; it watches the daemon itself. But in its
            # session: between sessions Linux does not go by priorities.
            preexec_fn=os.setpgrp,
        )
    assert process.stdin is not None, "stdin is a pipe"
    # The token goes through a pipe: everybody on the host can read a command line.
    process.stdin.write(json.dumps(asdict(configuration)).encode() + b"\n")
    process.stdin.close()
    return process.pid
