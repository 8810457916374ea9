"""Which jobs run on this machine, and how to reach them: a small file per job that only its user can read."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from ferryman._model.errors import InvalidConfiguration


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


def own_directory() -> Path:
    """Give a directory among the temporary files that nobody but this user can look into.

    Raises
    ------
    InvalidConfiguration
        If somebody else has made it, who could then read what is in it, and change it.
    """
    found = Path(tempfile.gettempdir()) / f"ferryman-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        found.mkdir(mode=0o700)
    mine = found.lstat()
    if mine.st_uid != os.getuid() or not stat.S_ISDIR(mine.st_mode):
        raise InvalidConfiguration(
            f"{found} belongs to somebody else, who could read and change what is put there. Remove it, or have "
            "temporary files elsewhere: set TMPDIR, or give Ferry(home=...)."
        )
    if mine.st_mode & 0o077:
        found.chmod(0o700)
    return found


def announce(one: Running) -> Path:
    """Write a job's file; remove it when the job ends. What killed drivers left is removed now."""
    folder = place()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    running()
    file = folder / f"{one.pid}-{one.token[:8]}.json"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump(asdict(one), out)
    return file


def running() -> list[Running]:
    """List the jobs that run; files that a killed driver left are removed."""
    found = []
    for file in sorted(place().glob("*.json")) if place().is_dir() else []:
        try:
            if file.stat().st_uid != os.getuid():
                # Whoever may write into a shared directory must not have us call him.
                continue
            one = Running(**json.loads(file.read_text()))
            os.kill(one.pid, 0)
        except (ValueError, TypeError, ProcessLookupError):
            with contextlib.suppress(OSError):
                file.unlink()
        except OSError:
            continue
        else:
            found.append(one)
    return found
