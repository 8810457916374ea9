"""Stores shared by several processes, some of which are killed."""

from __future__ import annotations

import contextlib
import itertools
import random
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import history
import numpy as np
import pyarrow as pa
import pytest

from ferryman._model.errors import StaleTask
from ferryman._state import store
from ferryman._state.store.locks import Locks

ALL = np.arange(history.GROUPS)
GROUP_OF = history.HASHES % history.GROUPS


@pytest.fixture(params=["columnar", "lmdb", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Each start of a process takes about a second, so not every behaviour is tried on every kind of key.
narrow_and_wide = pytest.mark.parametrize("kind", ["word", pytest.param("string", marks=pytest.mark.slow)])


def start(backend: str, home: Path, kind: str, groups: np.ndarray, first: int, last: int) -> subprocess.Popen[str]:
    listed = ",".join(str(each) for each in groups.tolist())
    command = [sys.executable, history.__file__, backend, str(home), kind, listed, str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(*writers: subprocess.Popen[str]) -> str:
    said = "".join(each.communicate()[0] for each in writers)
    assert [each.returncode for each in writers] == [0] * len(writers)
    return said


def wrong_keys(found: np.ndarray, epochs: np.ndarray, known: dict[int, np.ndarray] | None = None) -> list[int]:
    """Give the keys whose value is not that of the epoch their group is at."""
    wrong: list[int] = []
    for group in ALL[epochs >= 0].tolist():
        epoch = int(epochs[group])
        values = known[epoch] if known else history.values_at(epoch)
        mine = group == GROUP_OF
        wrong += history.IDS[mine & (found != values)].tolist()
    return wrong


@narrow_and_wide
def test_two_processes_advance_disjoint_groups(backend: str, kind: str, tmp_path: Path) -> None:
    opened = history.open_store(backend, tmp_path, kind)
    opened.ingest(history.part_at(kind, 0), ALL, 0)
    said = finish(start(backend, tmp_path, kind, ALL[::2], 1, 8), start(backend, tmp_path, kind, ALL[1::2], 1, 8))
    assert "stale" not in said
    assert opened.epochs().tolist() == [8] * history.GROUPS
    assert wrong_keys(history.values_found(opened, kind), opened.epochs()) == []
    opened.close()


def test_two_processes_advance_the_same_groups(backend: str, tmp_path: Path) -> None:
    kind = "composite"
    opened = history.open_store(backend, tmp_path, kind)
    opened.ingest(history.part_at(kind, 0), ALL, 0)
    finish(start(backend, tmp_path, kind, ALL, 1, 8), start(backend, tmp_path, kind, ALL, 1, 8))
    assert opened.epochs().tolist() == [8] * history.GROUPS
    assert wrong_keys(history.values_found(opened, kind), opened.epochs()) == []
    opened.close()


@narrow_and_wide
def test_a_lookup_overtaken_by_a_writer_shows_in_the_epochs(backend: str, kind: str, tmp_path: Path) -> None:
    opened = history.open_store(backend, tmp_path, kind)
    opened.ingest(history.part_at(kind, 1), ALL, 1)
    known = {epoch: history.values_at(epoch) for epoch in range(1, 21)}
    writer = start(backend, tmp_path, kind, ALL, 2, 20)
    keys = history.keys_of(kind)
    checked = 0
    while writer.poll() is None:
        before = opened.epochs()
        found = opened.lookup(keys).state.column("n").combine_chunks().fill_null(-1).to_numpy()
        after = opened.epochs()
        still = np.where(before == after, before, -1)
        assert wrong_keys(found, still, known) == []
        checked += int((still >= 0).sum())
    finish(writer)
    assert checked > 0
    assert opened.epochs().tolist() == [20] * history.GROUPS
    opened.close()


@pytest.mark.parametrize("more", [0, pytest.param(7, marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_each_group_whole_or_absent(backend: str, more: int, tmp_path: Path) -> None:
    chance = random.Random(7)
    tops = dict.fromkeys(history.KINDS, 0)
    for kind in [*history.KINDS] + ["word"] * more:
        home, top = tmp_path / kind, tops[kind]
        opened = history.open_store(backend, home, kind)
        if top == 0:
            opened.ingest(history.part_at(kind, 0), ALL, 0)
        # It has a few epochs more than are waited for, so that the kill finds it at work.
        lines = chance.randint(2, 8)
        writer = start(backend, home, kind, ALL, top + 1, top + lines + 8)
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        epochs = opened.epochs()
        assert (epochs[epochs >= 0] >= said[-1] - 1).all()
        assert backend != "columnar" or (epochs >= 0).all()
        assert wrong_keys(history.values_found(opened, kind), epochs) == []
        # What is torn or behind is rebuilt, as a caller would, and the history goes on from there.
        tops[kind] = top = max(said[-1] - 1, int(epochs.max()))
        opened.ingest(history.part_at(kind, top), ALL[epochs != top], top)
        assert wrong_keys(history.values_found(opened, kind), opened.epochs()) == []
        opened.close()


def apply_all(opened: store.Store, epochs: range) -> None:
    for epoch in epochs:
        opened.apply(history.delta_of("word", epoch), ALL, epoch)


def test_a_disk_that_is_full_leaves_no_wrong_main(backend: str, tmp_path: Path) -> None:
    opened = history.open_store(backend, tmp_path, "word")
    opened.ingest(history.part_at("word", 1), ALL, 1)
    largest = max(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        with pytest.raises(Exception, match="large"):
            apply_all(opened, range(2, 10))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    epochs = opened.epochs()
    assert wrong_keys(history.values_found(opened, "word"), epochs) == []
    opened.ingest(history.part_at("word", 9), ALL, 9)
    assert wrong_keys(history.values_found(opened, "word"), opened.epochs()) == []
    opened.close()


def mains_of(home: Path) -> dict[str, bytes]:
    """Give what the main of each file begins with: it changes when a file is written anew, and only then."""
    files = [each for each in home.rglob("*") if each.stem.isdigit()]
    return {each.name: each.read_bytes()[:32] for each in files}


@narrow_and_wide
def test_a_group_that_a_process_died_writing_is_what_it_was(kind: str, tmp_path: Path) -> None:
    opened = history.open_store("columnar", tmp_path, kind)
    opened.ingest(history.part_at(kind, 3), ALL, 3)
    ledger = next(tmp_path.rglob("ledger"))
    before = mains_of(tmp_path)
    # The second finds a delta, with half of its own keys in it.
    for epoch, rows in ((4, slice(0, 2000)), (5, slice(1000, 3000))):
        delta = history.delta_of(kind, epoch)[rows]
        words = np.fromfile(ledger, np.int64).reshape(-1, history.GROUPS)
        values = history.values_found(opened, kind)
        opened.apply(delta, ALL, epoch)
        after = history.values_found(opened, kind)
        # What a kill before the last word of a write leaves behind: the rows, and the mark, but not the count.
        words[1] = 1
        with ledger.open("r+b") as file:
            file.write(words.tobytes())
        assert opened.epochs().tolist() == [epoch - 1] * history.GROUPS
        assert (history.values_found(opened, kind) == values).all()
        assert opened.scan(3, epoch - 1).num_rows == int((values[GROUP_OF == 3] >= 0).sum())
        opened.apply(delta, ALL, epoch)
        assert (history.values_found(opened, kind) == after).all()
        assert (after != values).sum() > 1000
    assert mains_of(tmp_path) == before
    opened.close()


@narrow_and_wide
def test_a_delta_is_folded_into_the_main_when_its_room_is_used_up(kind: str, tmp_path: Path) -> None:
    opened = history.open_store("columnar", tmp_path, kind)
    opened.ingest(history.part_at(kind, 1), ALL, 1)
    seen = [mains_of(tmp_path)]
    for epoch in range(2, 14):
        opened.apply(history.delta_of(kind, epoch), ALL, epoch)
        seen.append(mains_of(tmp_path))
        assert len(seen[-1]) <= 2 * history.GROUPS
    folds = sum(len(other.items() - one.items()) for one, other in itertools.pairwise(seen)) / history.GROUPS
    # Less often than every epoch, though each touches a third of the keys.
    assert 2 <= folds <= 9
    assert wrong_keys(history.values_found(opened, kind), opened.epochs()) == []
    opened.close()


def some_rows(kind: str, count: int, n: int) -> pa.Table:
    ids = history.IDS[:count]
    values = pa.array(np.full(count, n))
    columns = [pa.array(history.HASHES[ids]), *history.key_columns(kind, ids), values, values.cast(pa.float64())]
    return pa.Table.from_arrays(columns, schema=store.part_schema(history.KINDS[kind], history.STATE))


@narrow_and_wide
def test_groups_that_shrink_and_grow_again_harm_nobody(kind: str, tmp_path: Path) -> None:
    one = history.open_store("columnar", tmp_path, kind)
    other = history.open_store("columnar", tmp_path, kind)
    one.ingest(some_rows(kind, history.KEYS, 0), ALL, 0)
    for epoch, (count, writer) in enumerate([(5, one), (9, other), (9000, one), (3, other), (9000, one)], 1):
        # Through turns: a store may not have mapped what it makes anew. The groups of the second half stay.
        writer.ingest(some_rows(kind, count, epoch), ALL[:4], epoch)
        for reader in (one, other):
            found = history.values_found(reader, kind)
            assert (found[GROUP_OF >= 4] == 0).all()
            kept = (GROUP_OF < 4) & (count > history.IDS)
            assert (found[kept] == epoch).all()
            assert (found[(GROUP_OF < 4) & ~kept] == -1).all()
    one.close()
    other.close()


def test_keys_that_expire_leave_no_large_files(tmp_path: Path) -> None:
    opened = history.open_store("columnar", tmp_path, "string")
    opened.ingest(some_rows("string", history.KEYS, 0), ALL, 0)
    part = some_rows("string", history.KEYS, 0)
    gone = part.add_column(1, pa.field("_deleted", pa.bool_()), pa.repeat(True, part.num_rows))
    opened.apply(gone, ALL, 1)
    for epoch in range(2, 1500):
        few = history.delta_of("string", epoch)[:50]
        opened.apply(few, ALL, epoch)
    size = sum(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file())
    assert size < 500_000
    opened.close()


def test_threads_of_one_process_share_a_store(tmp_path: Path) -> None:
    opened = history.open_store("columnar", tmp_path, "string")
    opened.ingest(history.part_at("string", 1), ALL, 1)
    writer = start("columnar", tmp_path, "string", ALL, 2, 12)
    known = {epoch: int((history.values_at(epoch)[GROUP_OF == 0] >= 0).sum()) for epoch in range(1, 13)}

    def read() -> int:
        seen = 0
        while writer.poll() is None:
            epoch = int(opened.epochs()[0])
            with contextlib.suppress(StaleTask):
                assert opened.scan(0, epoch).num_rows == known[epoch]
                seen += 1
        return seen

    with ThreadPoolExecutor(4) as threads:
        counts = [reading.result() for reading in [threads.submit(read) for _ in range(4)]]
    finish(writer)
    assert all(counts)
    opened.close()


HOLDER = """
import sys, numpy as np
from pathlib import Path
from ferryman._state import store
from ferryman._state.store.locks import Locks
with Locks(Path(sys.argv[1])) as locks, locks.held(np.array([0, 1, 5])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_writer_waits_only_for_the_groups_it_wants(tmp_path: Path) -> None:
    opened = history.open_store("columnar", tmp_path, "word")
    opened.ingest(history.part_at("word", 0), ALL, 0)
    lock = next(tmp_path.rglob("groups.lock"))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    opened.apply(history.delta_of("word", 1), np.array([2, 3, 4, 6, 7]), 1)
    writer = start("columnar", tmp_path, "word", np.array([4, 5]), 2, 2)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "2\n"
    assert opened.epochs().tolist() == [0, 0, 1, 1, 1, 0, 1, 1]
    # A killed holder holds nothing.
    holder.kill()
    holder.communicate()
    finish(writer)
    assert opened.epochs().tolist() == [0, 0, 1, 1, 2, 2, 1, 1]
    opened.close()


def test_locks_of_two_stores_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("locks belong to the process there, not to the open file")
    probe = (
        "import fcntl, os, struct, sys;"
        "file = os.open(sys.argv[1], os.O_RDWR);"
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 3)"
    )
    command = [sys.executable, "-c", probe, str(tmp_path / "lock")]
    with Locks(tmp_path / "lock") as one, one.held(np.array([3])):
        Locks(tmp_path / "lock").close()
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
