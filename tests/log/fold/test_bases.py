"""An epoch is rebuilt from an older snapshot, and a longer chain, where the newest one is damaged or gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from written_log import KEY, STATE, WrittenLog, hash_of, local_log, root, state_of

from ferryman._log.fold import fold as folds
from ferryman._log.fold import snapshot as snapshots
from ferryman._log.fold.advance import advance
from ferryman._log.fold.fold import LoggedTable, rebuild
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._state import store as stores

KEYS = [f"s{number}" for number in range(60)]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: list[Callable[[Path], None]] = [truncate, flip, Path.unlink]


def long_log(path: Path, *, pruned: int | None = None) -> WrittenLog:
    log = local_log(path, operators=("A", "B"))
    for number in range(1, 10):
        log.commit({"A": dict.fromkeys(KEYS[number:30], number) | {KEYS[number - 1]: None}, "B": {"y": number}})
        if number in (3, 6):
            write_snapshot(log.checkpoint, number)
    if pruned is not None:
        prune(log.checkpoint, pruned)
    return log


def files(log: WrittenLog, epoch: int) -> list[Path]:
    listed = [file.file for files in log.checkpoint.snapshot(epoch).tables.values() for file in files]
    return [root(log) / name for name in (*listed, f"snapshots/{epoch:012d}.json")]


def advanced(log: WrittenLog, home: Path, to: int, at: int = 0) -> dict[str, tuple[int, str]]:
    store = stores.open("lmdb", home, KEY, STATE, 8)
    try:
        for epoch in (at, to) if at else (to,):
            advance(store, log.checkpoint, "A", np.arange(8), epoch, key=KEY, state=STATE, total=8)
        return {key: value for group in range(8) for key, value in state_of(store.scan(group, to)).items()}
    finally:
        store.close()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("pruned", [None, 5])
def test_a_snapshot_of_which_a_file_is_damaged_is_passed_over(
    tmp_path: Path, damage: Callable[[Path], None], pruned: int | None
) -> None:
    log = long_log(tmp_path / "log", pruned=pruned)
    for number, path in enumerate(files(log, 6)):
        sound = path.read_bytes()
        damage(path)

        for epoch in range(6, 10):
            log.assert_rebuilds(epoch)
        assert advanced(log, tmp_path / f"home-{number}", 9) == log.states[9]["A"]

        path.write_bytes(sound)


def test_it_is_said_once_and_kept_for_who_mends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = long_log(tmp_path)
    path = files(log, 6)[0]
    name = str(path.relative_to(tmp_path))
    flip(path)

    with caplog.at_level(logging.WARNING):
        log.assert_rebuilds(9)
        log.assert_rebuilds(8)

    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert f"{name} in {tmp_path} has altered bytes" in said[0]
    assert "older snapshot" in said[0]
    assert log.checkpoint.damage.files == (name,)


def test_a_snapshot_that_retention_took_away_meanwhile_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = long_log(tmp_path)
    found = log.checkpoint.snapshots()
    for path in files(log, 6):
        path.unlink()
    monkeypatch.setattr(log.checkpoint, "snapshots", lambda: found)

    log.assert_rebuilds(7)

    assert log.checkpoint.damage.files == ()
    assert caplog.records == []


def test_only_the_groups_of_the_damaged_file_come_from_the_older_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = local_log(tmp_path / "log")
    log.commit({"Counts": dict.fromkeys(KEYS, 1)})
    monkeypatch.setattr(snapshots, "FILE_BYTES", 600)
    write_snapshot(log.checkpoint, 1)
    log.commit({"Counts": dict.fromkeys(KEYS, 2)})
    written = write_snapshot(log.checkpoint, 2).tables["Counts"]
    log.commit({"Counts": {"s1": 3}})
    assert len(written) > 2
    flip(tmp_path / "log" / written[1].file)
    # Another file of the older one: between them they still have every group.
    older = log.checkpoint.snapshot(1).tables["Counts"]
    flip(tmp_path / "log" / next(file for file in older if file.last < written[1].first).file)

    log.assert_rebuilds(3)


@pytest.mark.parametrize("keys", [KEYS, KEYS[:4]], ids=["rows everywhere", "groups without rows"])
@pytest.mark.parametrize("wanted", [range(8), (1, 4, 6)])
def test_a_file_of_a_snapshot_is_read_in_runs_that_have_every_group_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: list[str], wanted: Sequence[int]
) -> None:
    monkeypatch.setattr(snapshots, "ROW_GROUP_ROWS", 4)
    log = local_log(tmp_path / "log")
    log.commit({"Counts": dict.fromkeys(keys, 1)})
    (file,) = write_snapshot(log.checkpoint, 1).tables["Counts"]
    monkeypatch.setattr(folds, "RUN_BYTES", 1)

    groups = np.array(wanted)
    runs = list(LoggedTable(name="Counts", key=KEY, state=STATE, total=8).read_runs(log.checkpoint, file, groups))

    assert len(runs) == max(1, len({hash_of(key) % 8 for key in keys} & set(wanted)))
    assert np.concatenate([within for within, _ in runs]).tolist() == list(wanted)
    for within, rows in runs:
        mine = {key for key in keys if hash_of(key) % 8 in within}
        assert (set(state_of(rows)), rows.num_rows) == (mine, len(mine))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_delta_that_a_snapshot_of_the_same_epoch_covers_is_not_needed(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    log = long_log(tmp_path / "log")
    write_snapshot(log.checkpoint, 9)
    newest = log.checkpoint.manifest(9).tables["A"]
    store = stores.open("lmdb", tmp_path / "home", KEY, STATE, 8)
    advance(store, log.checkpoint, "A", np.arange(8), 8, key=KEY, state=STATE, total=8)
    damage(root(log) / newest[0].file)

    rebuilt = advance(store, log.checkpoint, "A", np.arange(8), 9, key=KEY, state=STATE, total=8, newest=newest)

    assert rebuilt == 8
    assert {key for group in range(8) for key in state_of(store.scan(group, 9))} == set(log.states[9]["A"])
    store.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_where_both_are_damaged_the_error_names_the_newest_snapshot(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    log = long_log(tmp_path / "log", pruned=5)
    both = [files(log, epoch)[0] for epoch in (3, 6)]
    for path in both:
        damage(path)

    with pytest.raises((CorruptCheckpoint, MissingDelta), match=both[1].name):
        rebuild(log.checkpoint, "A", 9)
    with pytest.raises((CorruptCheckpoint, MissingDelta), match=both[1].name):
        advanced(log, tmp_path / "home", 9)
    assert log.checkpoint.damage.files == (), "nothing was done without it"


def test_a_main_does_not_go_back_to_an_older_snapshot(tmp_path: Path) -> None:
    log = long_log(tmp_path / "log")
    flip(files(log, 6)[0])
    flip(root(log) / log.checkpoint.manifest(5).tables["A"][0].file)

    with pytest.raises(CorruptCheckpoint, match="000000000006-A"):
        advanced(log, tmp_path / "home", 9, at=4)


def test_the_next_snapshot_is_made_without_a_damaged_one(tmp_path: Path) -> None:
    log = long_log(tmp_path)
    flip(files(log, 6)[0])

    write_snapshot(log.checkpoint, 9)

    flip(files(log, 3)[0])
    log.assert_rebuilds(9)


def test_a_table_that_did_nothing_has_two_copies_in_turns(tmp_path: Path) -> None:
    log = local_log(tmp_path, operators=("A", "B"))
    log.commit({"A": {"x": 1}, "B": dict.fromkeys(KEYS, 1)})
    lists = [write_snapshot(log.checkpoint, 1).tables["B"]]
    for epoch in range(2, 6):
        log.commit({"A": {"x": epoch}})
        lists.append(write_snapshot(log.checkpoint, epoch).tables["B"])
        prune(log.checkpoint, epoch - 1)
        assert {file.file for file in lists[-1]}.isdisjoint(file.file for file in lists[-2])
        for path in files(log, epoch)[:-1]:
            sound = path.read_bytes()
            flip(path)
            log.assert_rebuilds(epoch)
            path.write_bytes(sound)
    assert len({file.file for listed in lists for file in listed}) == 2
    assert {hash_of(key) % 8 for key in KEYS} == set(range(8))
