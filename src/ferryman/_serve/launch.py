"""Start the state host of this host, once: whoever comes first starts it, the others find it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from ferryman._model.errors import PeerFailed
from ferryman._serve import client
from ferryman._serve.host import Configuration

_FILE = "state-host.json"


def ensure(configuration: Configuration) -> str:
    """Give the location of this host's state host; start it if it does not run."""
    home = Path(configuration.home)
    home.mkdir(parents=True, exist_ok=True)
    with (home / "state-host.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        location = _running(home / _FILE, configuration.token)
        if location is None:
            location = _start(configuration, home)
            draft = home / f".{_FILE}"
            draft.write_text(json.dumps({"location": location}))
            os.replace(draft, home / _FILE)
        return location


def _running(file: Path, token: str) -> str | None:
    try:
        location = str(json.loads(file.read_text())["location"])
        client.ping(location, token)
    except (OSError, ValueError, KeyError, PeerFailed):
        return None
    return location


def _start(configuration: Configuration, home: Path) -> str:
    with (home / "state-host.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ferryman._serve.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            # Not in the group of Spark's daemon, which signals all of it; it watches the daemon itself.
            start_new_session=True,
        )
    assert process.stdin is not None, "stdin is a pipe"
    assert process.stdout is not None, "stdout is a pipe"
    # The token goes through a pipe: everybody on the host can read a command line.
    process.stdin.write(json.dumps(asdict(configuration)).encode() + b"\n")
    process.stdin.close()
    line = process.stdout.readline()
    if not line:
        raise PeerFailed(f"no state host could be started in {home}; its log is there: state-host.log")
    return str(json.loads(line)["location"])
