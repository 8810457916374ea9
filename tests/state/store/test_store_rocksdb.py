"""What is the rocksdb backend's own: databases that go from process to process, and writes in several batches."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import history
import numpy as np
import pytest
from test_store_processes import ALL, finish, start, wrong_keys

from ferryman._model.errors import UnknownOption
from ferryman._state.store.rocksdb import store as rocksdb_store
from ferryman._state.store.rocksdb.which_database import place


def databases(home: Path) -> list[str]:
    return sorted(each.parent.name for each in home.rglob("CURRENT"))


@contextlib.contextmanager
def ran(script: str, home: Path) -> Iterator[None]:
    """Run a script that finds a rocksdb store of words, `opened`, at `home`; its children live a little longer."""
    head = """
import os, sys
import history, numpy as np
from pathlib import Path
ALL, home = np.arange(history.GROUPS), Path(sys.argv[1])
opened = history.open_store("rocksdb", home, "word")
"""
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", head + script, str(home)]
    with subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE) as process:
        assert process.wait(timeout=120) == 0
        yield


def test_groups_that_come_together_share_a_database(tmp_path: Path) -> None:
    opened = history.open_store("rocksdb", tmp_path, "word")
    opened.ingest(history.part_at("word", 1), ALL[:3], 1)
    opened.apply(history.delta_of("word", 1), ALL[3:5], 0)
    opened.ingest(history.part_at("word", 1), ALL[2:4], 1)
    assert databases(tmp_path) == ["0", "1"]
    opened.ingest(history.part_at("word", 1), ALL[4:], 1)
    assert databases(tmp_path) == ["0", "1"]
    opened.close()


def test_groups_that_come_one_by_one_do_not_get_a_database_each() -> None:
    database = np.full(256, -1)
    for group in range(256):
        database[group] = place(database, np.array([group]))[0]
    assert np.bincount(database).tolist() == [8] * 32


def test_processes_that_need_each_others_databases_all_get_them(tmp_path: Path) -> None:
    opened = history.open_store("rocksdb", tmp_path, "word")
    for pair in np.split(ALL, 4):
        opened.ingest(history.part_at("word", 0), pair, 0)
    assert databases(tmp_path) == ["0", "1", "2", "3"]
    writers = [start("rocksdb", tmp_path, "word", each, 1, 8) for each in (ALL[::2], ALL[1::2])]
    while any(each.poll() is None for each in writers):
        history.values_found(opened, "word")
    assert "stale" not in finish(*writers)
    assert opened.epochs().tolist() == [8] * history.GROUPS
    assert wrong_keys(history.values_found(opened, "word"), opened.epochs()) == []
    opened.close()


def test_what_a_killed_process_had_written_is_found_in_the_database(tmp_path: Path) -> None:
    opened = history.open_store("rocksdb", tmp_path, "word")
    opened.ingest(history.part_at("word", 1), ALL, 1)
    opened.apply(history.delta_of("word", 2), ALL, 2)
    opened.close()
    # What a kill leaves behind that comes after the batch and before the ledger has the new epoch.
    path = next(tmp_path.rglob("ledger"))
    words = np.fromfile(path, np.int64).reshape(-1, history.GROUPS)
    words[0, 3:5] = 1
    words[1, 3:5] = 1
    path.write_bytes(words.tobytes())
    opened = history.open_store("rocksdb", tmp_path, "word")
    assert opened.epochs().tolist() == [2] * history.GROUPS
    assert wrong_keys(history.values_found(opened, "word"), opened.epochs()) == []
    opened.close()


def test_groups_whose_database_is_gone_have_no_main(tmp_path: Path) -> None:
    opened = history.open_store("rocksdb", tmp_path, "word")
    opened.ingest(history.part_at("word", 1), ALL[:4], 1)
    opened.ingest(history.part_at("word", 1), ALL[4:], 1)
    opened.release()
    shutil.rmtree(next(tmp_path.rglob("CURRENT")).parent)
    history.values_found(opened, "word")
    assert sorted(opened.epochs().tolist()) == [-1] * 4 + [1] * 4
    assert wrong_keys(history.values_found(opened, "word"), opened.epochs()) == []
    opened.close()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_store, "BATCH_BYTES", 10_000)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("kind", list(history.KINDS))
def test_many_batches_leave_what_one_would(kind: str, tmp_path: Path) -> None:
    opened = history.open_store("rocksdb", tmp_path, kind)
    opened.ingest(history.part_at(kind, 1), ALL, 1)
    opened.apply(history.delta_of(kind, 2), ALL, 2)
    assert opened.epochs().tolist() == [2] * history.GROUPS
    assert wrong_keys(history.values_found(opened, kind), opened.epochs()) == []
    opened.close()


@pytest.mark.usefixtures("small_batches")
def test_a_write_that_ends_between_two_batches_leaves_no_main(tmp_path: Path) -> None:
    opened = history.open_store("rocksdb", tmp_path, "word")
    opened.ingest(history.part_at("word", 1), ALL[:4], 1)
    opened.ingest(history.part_at("word", 1), ALL[4:], 1)
    largest = max(each.stat().st_size for each in tmp_path.rglob("*.log"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 50_000, hard))
    try:
        with pytest.raises(Exception, match="large"):
            opened.apply(history.delta_of("word", 2), ALL[:4], 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert opened.epochs().tolist() == [-1] * 4 + [1] * 4
    assert wrong_keys(history.values_found(opened, "word"), opened.epochs()) == []
    opened.ingest(history.part_at("word", 2), ALL[:4], 2)
    assert wrong_keys(history.values_found(opened, "word"), opened.epochs()) == []
    opened.close()


def test_the_child_of_a_fork_leaves_its_parents_databases_alone(tmp_path: Path) -> None:
    with ran(
        """
from ferryman._model.errors import InvalidConfiguration
opened.ingest(history.part_at("word", 1), ALL, 1)
child = os.fork()
if child == 0:
    try:
        history.open_store("rocksdb", home, "word")
    except InvalidConfiguration:
        # It ends as a process does that was not forked, with everything it has inherited torn down.
        sys.exit(0)
    sys.exit(1)
assert os.waitpid(child, 0)[1] == 0
opened.apply(history.delta_of("word", 2), ALL, 2)
assert (history.values_found(opened, "word") == history.values_at(2)).all()
""",
        tmp_path,
    ):
        opened = history.open_store("rocksdb", tmp_path, "word")
        assert wrong_keys(history.values_found(opened, "word"), opened.epochs()) == []
        opened.close()


def test_a_process_that_dies_leaves_no_lock_to_its_children(tmp_path: Path) -> None:
    opened = history.open_store("rocksdb", tmp_path, "word")
    with ran(
        """
opened.ingest(history.part_at("word", 1), ALL, 1)
if os.fork():
    os._exit(0)
# Lives on for as long as the test has its end of the pipe.
sys.stdin.read()
os._exit(0)
""",
        tmp_path,
    ):
        assert opened.epochs().tolist() == [1] * history.GROUPS
        assert wrong_keys(history.values_found(opened, "word"), opened.epochs()) == []
    opened.close()


def test_a_store_without_its_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("ferryman._state.store.rocksdb")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(UnknownOption, match=r"pip install .ferryman\[rocksdb\]"):
        history.open_store("rocksdb", tmp_path, "word")
