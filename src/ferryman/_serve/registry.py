"""Which jobs run on this machine, and how to reach them: a small file per job that only its user can read."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from ferryman._os.user_directory import own_directory


@dataclass(frozen=True)
class Running:
    """A job that runs.

    Attributes
    ----------
    job
        Its name.
    checkpoint
        Its checkpoint.
    pid
        The process of its driver.
    location
        Where it listens for changes.
    token
        What it wants to be told by who asks for one.
    """

    job: str
    checkpoint: str
    pid: int
    location: str
    token: str


def place() -> Path:
    """Give the directory of the files, for this user alone."""
    chosen = os.environ.get("FERRYMAN_JOBS")
    return Path(chosen) if chosen else own_directory() / "jobs"


def announce(job: Running) -> Path:
    """Write a job's file; remove it when the job ends. What killed drivers left is removed now."""
    folder = place()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    running()
    _remove_sockets()
    file = folder / f"{job.pid}-{job.token[:8]}.json"
    # Whole before it has its name: who lists jobs takes half a file for one that a killed driver left.
    new = folder / f".{file.name}"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump(asdict(job), out)
    new.rename(file)
    return file


def running() -> list[Running]:
    """List the jobs that run; files that a killed driver left are removed."""
    found = []
    for file in sorted(place().glob("*.json")) if place().is_dir() else []:
        try:
            if file.stat().st_uid != os.getuid():
                # Whoever may write into a shared directory must not have us call him.
                continue
            job = Running(**json.loads(file.read_text()))
            os.kill(job.pid, 0)
        except ProcessLookupError:
            # In another container, which shares the directory, processes have other numbers.
            if _is_left(own_directory() / f"control-{file.stem}.sock"):
                file.unlink(missing_ok=True)
        except (ValueError, TypeError, OverflowError, RecursionError):
            with contextlib.suppress(OSError):
                file.unlink()
        except OSError:
            continue
        else:
            found.append(job)
    return found


def _remove_sockets() -> None:
    """Remove the sockets that killed drivers left."""
    for left in own_directory().glob("control-*.sock"):
        pid = left.name.split("-")[1]
        # One whose process lives may be about to listen.
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists() and _is_left(left):
            left.unlink(missing_ok=True)


def _is_left(path: Path) -> bool:
    """Tell whether nobody listens on a socket any more, in no container that shares its directory."""
    folder = None
    with socket.socket(socket.AF_UNIX) as caller:
        # Not to wait where many call at once.
        caller.setblocking(False)
        try:
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            # A path may be too long for a socket.
            short = Path(f"/proc/self/fd/{folder}")
            caller.connect(str((short if short.is_dir() else path.parent) / path.name))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:
            return False
        finally:
            if folder is not None:
                os.close(folder)
    return False
