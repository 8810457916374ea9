"""The class archive: Spark's classes, read and checked once, and then mapped by every driver's JVM that starts.

Java calls it class data sharing. A JVM writes the archive when it ends, after a rehearsal of what jobs do; `write` has
one rehearse. Each archive is for one build of Java and one installation of Spark. Its name tells which, and what is in
it: Java looks whether an archive fits, but one that was cut off, or has a bad byte, can end the JVM. Calls `java` and
`compat`, and runs `_spark.api.rehearsal`.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import xxhash

from ferryman._os import java
from ferryman._spark.compat.start import spark_home

# What Spark's launcher gives to the JVM of a driver.
OPTIONS = "SPARK_SUBMIT_OPTS"
# Who has asked for one of these, here or in a setting, knows what they want.
_OWN = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare:")
# Java would tell on stdout of an archive that it cannot use.
_QUIET = "-Xlog:cds*=off -Xlog:class+path*=off"
_REHEARSAL = "ferryman._spark.api.rehearsal"
_PATIENCE_S = 300.0


def find() -> Path | None:
    """Find the archive for the Java and the Spark that a session would start with; None where there is none."""
    kind = _kind()
    found = [] if kind is None else sorted(java.user_cache().glob(f"{kind}-*.jsa"))
    return next((path for path in found if _is_usable(path, f"{kind}-")), None)


@contextlib.contextmanager
def mapped(options: str = "") -> Iterator[Path | None]:
    """Have a JVM that is started meanwhile map the archive, if there is one; give it.

    Parameters
    ----------
    options
        The options that the user gives to the JVM.
    """
    before = os.environ.get(OPTIONS, "")
    path = None if any(own in before + options for own in _OWN) else find()
    if path is None:
        yield None
        return
    os.environ[OPTIONS] = f'{before} "-XX:SharedArchiveFile={path}" {_QUIET}'.strip()
    try:
        yield path
    finally:
        if before:
            os.environ[OPTIONS] = before
        else:
            del os.environ[OPTIONS]


def write(*, nice: int = 0) -> Path | None:
    """Write the archive by a rehearsal, which takes half a minute; give it, or None where this Java cannot.

    Parameters
    ----------
    nice
        By how much everything else is to come before it.
    """
    kind, cache = _kind(), java.user_cache()
    if kind is None:
        return None
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="rehearsal-") as folder:
        made = Path(folder) / "made.jsa"
        if not _rehearse(Path(folder), made, nice) or not made.exists():
            return None
        made.chmod(0o600)
        path = cache / f"{kind}-{_digest(made)}.jsa"
        # What is there by another name has a bad byte, or another rehearsal has written it.
        for other in cache.glob(f"{kind}-*.jsa"):
            other.unlink(missing_ok=True)
        made.replace(path)
    return path


def _rehearse(folder: Path, made: Path, nice: int) -> bool:
    """Run the rehearsal; tell whether it came to its end."""
    before = os.environ.get(OPTIONS, "")
    rehearsal = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.nice({nice}); from {_REHEARSAL} import main; main({str(folder)!r})"],
        env={**os.environ, OPTIONS: f'{before} "-XX:ArchiveClassesAtExit={made}" {_QUIET}'.strip()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        # The JVM writes when Python has ended; it is done when nobody holds the other end any more.
        rehearsal.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(rehearsal.pid, signal.SIGKILL)
        rehearsal.wait()
    return rehearsal.returncode == 0


def _kind() -> str | None:
    """Name what an archive is for: this build of Java, and this installation of Spark."""
    found = java.find()
    if found is None:
        return None
    home = spark_home()
    jars = Path(home, "jars")
    if not jars.is_dir():
        # Built from source, its classes are elsewhere.
        return None
    about = [str(found.program), found.build, home]
    for jar in sorted(jars.iterdir()):
        status = jar.stat()
        about.append(f"{jar.name} {status.st_size} {status.st_mtime_ns}")
    return f"classes-{hashlib.sha256(chr(0).join(about).encode()).hexdigest()[:16]}"


def _is_usable(path: Path, kind: str) -> bool:
    """Tell whether an archive is ours and whole; another process may be writing a new one, and removing this."""
    try:
        return _is_ours(path) and path.stem == f"{kind}{_digest(path)}"
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    """Name what is in an archive; reading 200 MB that the system has at hand takes 20 ms."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return xxhash.xxh3_128_hexdigest(content)


def _is_ours(path: Path) -> bool:
    """Tell whether nobody else can have put code into an archive."""
    file, folder = path.lstat(), path.parent.stat()
    mine = stat.S_ISREG(file.st_mode) and file.st_size > 0 and file.st_uid == folder.st_uid == os.getuid()
    return mine and not (file.st_mode | folder.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
