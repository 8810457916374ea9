"""The class archive: used only if it is whole, ours, and for this Java and this Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferryman._os import java
from ferryman._spark.session import class_archive
from ferryman._spark.session.class_archive import OPTIONS, find, mapped


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a cache directory of the test's own, and no options of the tests' own archive."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(OPTIONS, raising=False)
    return java.user_cache()


def archive(cache: Path, content: bytes = b"classes") -> Path:
    """Put an archive there, under the name that it would have."""
    draft = cache / "draft"
    draft.write_bytes(content)
    path = cache / f"{class_archive._kind()}-{class_archive._digest(draft)}.jsa"
    draft.chmod(0o600)
    return draft.rename(path)


def test_an_archive_is_mapped_by_a_jvm_that_starts_meanwhile_and_by_no_other(cache, monkeypatch):
    path = archive(cache)
    with mapped() as found:
        assert found == path
        assert f'"-XX:SharedArchiveFile={path}"' in os.environ[OPTIONS]
    assert OPTIONS not in os.environ

    monkeypatch.setenv(OPTIONS, "-Dmine=1")
    with mapped():
        assert os.environ[OPTIONS].startswith("-Dmine=1 ")
    assert os.environ[OPTIONS] == "-Dmine=1"


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/mine.jsa", "-Xshare:off", "-XX:ArchiveClassesAtExit=/mine"])
def test_what_the_user_wants_of_java_comes_first(cache, monkeypatch, own):
    archive(cache)
    with mapped(f"-Xmx1g {own}") as found:
        assert found is None
    monkeypatch.setenv(OPTIONS, own)
    with mapped() as found:
        assert found is None
        assert os.environ[OPTIONS] == own


def test_an_archive_with_a_bad_byte_or_cut_off_is_not_used(cache):
    path = archive(cache)
    path.write_bytes(b"classeS")
    assert find() is None
    path.write_bytes(b"class")
    assert find() is None
    path.write_bytes(b"")
    assert find() is None
    path.write_bytes(b"classes")
    assert find() == path


def test_an_archive_that_another_process_removes_just_now_is_not_used(cache, monkeypatch):
    path = archive(cache)

    def removed(found: Path) -> bool:
        found.unlink()
        return True

    monkeypatch.setattr(class_archive, "_is_ours", removed)
    assert find() is None
    assert not path.exists()


def test_a_spark_whose_classes_are_elsewhere_has_no_archive(cache, monkeypatch, tmp_path):
    monkeypatch.setattr(class_archive, "spark_home", lambda: str(tmp_path))
    assert find() is None


def test_an_archive_that_others_may_write_to_is_not_used(cache):
    path = archive(cache)
    path.chmod(0o660)
    assert find() is None
    path.chmod(0o600)
    cache.chmod(0o777)
    assert find() is None


def test_a_link_is_not_used(cache, tmp_path):
    path = archive(cache)
    elsewhere = path.rename(tmp_path / "elsewhere")
    path.symlink_to(elsewhere)
    assert find() is None


def test_another_java_or_another_spark_has_another_archive(cache, monkeypatch):
    archive(cache)
    found = java.find()
    assert found is not None
    monkeypatch.setattr(java, "find", lambda: java.Java(found.program, found.version, found.home, "another build"))
    assert find() is None
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    monkeypatch.setattr(class_archive, "spark_home", lambda: str(cache.parent / "spark"))
    (cache.parent / "spark" / "jars").mkdir(parents=True)
    assert find() is None


@pytest.mark.slow
def test_a_session_starts_without_an_archive_that_java_does_not_like(cache):
    path = archive(cache, b"not what Java has written")
    script = (
        "from ferryman._spark.session.session import session\n"
        "spark = session(master='local[1]')\n"
        "print(spark.range(3).count())\n"
        "spark.stop()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "3\n"
    assert not path.exists() or done.stderr == ""


def test_an_archive_stays_where_java_does_not_start_without_it_either(cache):
    path = archive(cache)
    script = (
        "from ferryman._spark.session.session import session\n"
        "session(master='local[1]', conf={'spark.driver.memory': '1'})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)

    assert done.returncode != 0
    assert path.exists()
