"""Look at the processes below one of ours, and end them; through /proc where there is one, else ps."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Process:
    """One process as of a moment.

    `started` tells a process from a later one that got the same id; `running` whether it was on a core, or
    waiting for one; `cpu` is its time on cores so far, in whatever unit the system counts.
    """

    id: int
    parent: int
    command: str
    started: str
    running: bool
    cpu: int


def processes() -> dict[int, Process]:
    """List all processes by id."""
    if (_PROC / "self" / "stat").exists():
        found = (_of_proc(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdigit())
        return {process.id: process for process in found if process is not None}
    return _of_ps()


def look(id: int) -> Process | None:
    """Look at one process."""
    return _of_proc(id) if (_PROC / "self").exists() else _of_ps().get(id)


def _of_proc(id: int) -> Process | None:
    # A process may end between listing and reading it.
    with contextlib.suppress(OSError, ValueError):
        # The name, in parentheses, may hold anything; what follows it is fixed.
        stat = (_PROC / str(id) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        command = (_PROC / str(id) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        if stat[0] != "Z":
            return Process(id, int(stat[1]), command, stat[19], stat[0] == "R", int(stat[11]) + int(stat[12]))
    return None


def _of_ps() -> dict[int, Process]:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,time=,lstart=,command="], capture_output=True, text=True, check=True
    )
    found = {}
    for line in listed.stdout.splitlines():
        # lstart is five words: Mon Jan 1 12:00:00 2026.
        id, parent, stat, cpu, *rest = line.split(None, 9)
        if not stat.startswith("Z") and len(rest) == 6:
            clock = "".join(field for field in cpu if field.isdigit())
            found[int(id)] = Process(int(id), int(parent), rest[5], " ".join(rest[:5]), stat[0] == "R", int(clock))
    return found


def below(root: int) -> list[Process]:
    """List the processes that a process started, and those that they started, and so on."""
    everything = processes()
    found, wave = [], [root]
    while wave:
        wave = [process.id for process in everything.values() if process.parent in wave]
        found += [everything[id] for id in wave]
    return found


def in_session(leader: int) -> list[Process]:
    """List the processes of a session, also those whose parents are gone."""
    found = []
    for process in processes().values():
        # It may have ended meanwhile.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(process.id) == leader:
                found.append(process)
    return found


def python_workers(driver: int) -> list[Process]:
    """List the Python workers that run tasks for a driver: what its daemon of task workers has forked."""
    # A forked worker keeps its daemon's command line, so what tells them apart is who started whom.
    family = [process for process in below(driver) if process.command.endswith(" pyspark.worker")]
    known = {process.id for process in family}
    return [process for process in family if process.parent in known]


def java_of(driver: int) -> Process | None:
    """Find a driver's JVM."""
    return next(
        (process for process in below(driver) if "org.apache.spark.deploy.SparkSubmit" in process.command), None
    )


def end(family: Iterable[Process], *, patience_s: float = 3.0) -> None:
    """Wait until processes are gone, and end by force what is still there after a while.

    A JVM ends by itself when its driver is gone, and Python workers when their JVM is; both in their own time.
    """
    waiting = list(family)
    forced = time.monotonic() + patience_s
    while waiting:
        alive = processes()
        waiting = [
            process for process in waiting if process.id in alive and alive[process.id].started == process.started
        ]
        if waiting and time.monotonic() > forced:
            for process in waiting:
                kill(process.id)
        if waiting:
            time.sleep(0.02)


def end_with_parent() -> None:
    """Have this process end when the one that started it does, however that ends; for `preexec_fn`, on Linux only."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def kill(id: int) -> bool:
    """Send SIGKILL to one process; tell whether it was there."""
    try:
        os.kill(id, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
