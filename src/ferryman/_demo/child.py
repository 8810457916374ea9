"""A child process of the demo: started in a session of its own, heard through its events, ended with all below it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from ferryman._os.processes import below, end, java_of, kill

Event = dict[str, Any]


class Child:
    """Run a module of the demo on the demo's directory.

    Parameters
    ----------
    module
        Which one, for example `pipeline`.
    out
        The demo's directory.
    log
        Takes all that the child and what it starts have to say besides events.
    environment
        Variables to set for it.
    """

    def __init__(self, module: str, out: Path, log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        with log.open("ab") as file:
            # A session of its own keeps the terminal's Ctrl-C from it: the supervisor ends it, in order.
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"ferryman._demo.{module}", str(out)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
                env={**os.environ, **environment},
            )
        assert self._process.stdout is not None, "stdout is a pipe"
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    @property
    def id(self) -> int:
        """Give its process id."""
        return self._process.pid

    def _listen(self, lines: IO[bytes]) -> None:
        for line in lines:
            # The last line of a killed child may be cut off.
            with contextlib.suppress(json.JSONDecodeError):
                self._events.put(json.loads(line))
        self._events.put({"event": "ended", "code": self._process.wait()})

    def event(self, timeout_s: float) -> Event | None:
        """Wait a while for the next event; `ended` is the last of every child."""
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=timeout_s)
        return None

    def kill(self) -> list[int]:
        """Kill it and its JVM with SIGKILL, at once; return their ids when all below them is gone as well."""
        family = below(self.id)
        java = java_of(self.id)
        killed = [id for id in (self.id, *([java.id] if java else [])) if kill(id)]
        self._process.wait()
        end(family)
        return killed

    def close(self) -> None:
        """End it if it runs, and everything it started."""
        if self._process.poll() is None:
            self.kill()

    def last_words(self, lines: int = 12) -> str:
        """Give the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
