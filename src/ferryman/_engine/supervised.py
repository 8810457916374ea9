"""The driver's side of `ferryman run`.

It runs the script as Python would. The supervisor is told of each job that starts, and of the error that ends the
script; asked to end (SIGTERM), jobs end after the epoch under way. When the supervisor is gone, however that came, this
process and all that it has started end too.

In a driver that nobody supervises `announce` does nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sys
import threading
import weakref
from types import FrameType
from typing import Any, Protocol

from ferryman._os.processes import in_session, kill

# Two file descriptors: one ends when the supervisor does, the other takes what it is told.
LINES = "FERRYMAN_SUPERVISED"


class Stoppable(Protocol):
    """A job, as far as it is of interest here."""

    @property
    def active(self) -> bool:
        """Tell whether it runs."""

    def stop(self) -> None:
        """End it after the epoch under way."""


_out: int | None = None
_jobs: weakref.WeakSet[Any] = weakref.WeakSet()


def announce(job: Stoppable, name: str, checkpoint: str, epoch: int) -> None:
    """Tell the supervisor, if there is one, of a job that has started, and after which epoch it goes on."""
    if _out is not None:
        _jobs.add(job)
        _tell({"job": name, "checkpoint": checkpoint, "epoch": epoch})


def _tell(what: dict[str, Any]) -> None:
    if _out is not None:
        with contextlib.suppress(OSError):
            os.write(_out, json.dumps(what).encode() + b"\n")


def main(script: str, arguments: list[str]) -> None:
    """Run a script under a supervisor."""
    global _out
    lifeline, _out = (int(number) for number in os.environ.pop(LINES).split(","))
    for line in (lifeline, _out):
        # What this process starts must not keep them open.
        os.set_inheritable(line, False)
    threading.Thread(target=_end_with, args=(lifeline,), name="ferryman-lifeline", daemon=True).start()
    signal.signal(signal.SIGTERM, _asked_to_end)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:
        _tell({"error": type(error).__name__, "message": str(error)[:2000]})
        raise


def _asked_to_end(signum: int, frame: FrameType | None) -> None:
    running = [job for job in _jobs if job.active]
    if not running:
        raise SystemExit(128 + signum)
    # On a thread: the epoch under way may need this one.
    threading.Thread(target=_stop, args=(running,), name="ferryman-asked-to-end", daemon=True).start()


def _stop(jobs: list[Stoppable]) -> None:
    for job in jobs:
        with contextlib.suppress(Exception):
            job.stop()


def _end_with(lifeline: int) -> None:
    """Wait until nobody holds the other end, and end everything."""
    os.read(lifeline, 1)
    own = os.getpid()
    for process in in_session(own):
        if process.id != own:
            kill(process.id)
    kill(own)
