"""Spark's classes, loaded once and mapped by every JVM that tests start: a driver is up in half the time.

Each of the many JVMs would read and check the same classes from Spark's jars. Java can keep them in a file instead
(class data sharing), written when a JVM ends that has worked as those of the tests do.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from ferryman._os import java

DRIVE = Path(__file__).parent / "faults" / "drive.py"

# What Spark gives to the JVMs of drivers, and to those of masters and workers; drivers hand the first on to executors.
DRIVERS = "SPARK_SUBMIT_OPTS"
DAEMONS = "SPARK_DAEMON_JAVA_OPTS"

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def archive(folder: Path) -> Path:
    """Name the file for this Java and this Spark."""
    jars = sorted(path.name for path in Path(_find_spark_home(), "jars").iterdir())
    about = [str(java.find()), _find_spark_home(), *jars]
    return folder / f"spark-{hashlib.sha256(chr(0).join(about).encode()).hexdigest()[:16]}.jsa"


def write(path: Path) -> None:
    """Run a small job, and have its JVM write down its classes when it ends."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "made.jsa"
        environment = {**os.environ, DRIVERS: f'"-XX:ArchiveClassesAtExit={made}"'}
        words = [Path(folder) / "checkpoint", Path(folder) / "out", 100, 50, 2, "local[2,4]"]
        # The JVM is done when nobody holds the other end any more; Python is so long before.
        ran = subprocess.run(
            [sys.executable, str(DRIVE), *map(str, words)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        if ran.returncode or not made.exists():
            print(f"This Java goes without:\n{ran.stdout[-2000:].decode(errors='replace')}", flush=True)
        else:
            made.rename(path)


def use(path: Path) -> None:
    """Let all JVMs that are started from here on map the file; one that cannot goes without."""
    os.environ.setdefault(DRIVERS, f'"-XX:SharedArchiveFile={path}"')
    os.environ.setdefault(DAEMONS, f'{BRIEF} "-XX:SharedArchiveFile={path}"')
