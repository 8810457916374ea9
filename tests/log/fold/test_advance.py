"""Main copies come to the epoch that is needed, from whatever is nearest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from written_log import KEY, STATE, WrittenLog, local_log, state_of

from ferryman._log.fold.advance import advance
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.errors import CorruptCheckpoint, MissingDelta, StaleTask
from ferryman._state import store as stores
from ferryman._state.store import Store

ALL = np.arange(8)


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return local_log(tmp_path / "checkpoint")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = stores.open("lmdb", tmp_path / "home", KEY, STATE, 8)
    yield opened
    opened.close()


def bring(store: Store, log: WrittenLog, to: int, groups: np.ndarray = ALL, **options: object) -> int:
    return advance(store, log.checkpoint, "Counts", groups, to, key=KEY, state=STATE, total=8, **options)


def held(store: Store, as_of: int, groups: np.ndarray = ALL) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for group in groups.tolist():
        found |= state_of(store.scan(group, as_of))
    return found


def commit(log: WrittenLog, epochs: int) -> None:
    for _ in range(epochs):
        number = log.epoch + 1
        log.commit({"Counts": {f"s{number % 5}": number, f"t{number}": number, f"t{number - 2}": None}})


def test_before_the_first_epoch_every_main_is_empty(store: Store, log: WrittenLog) -> None:
    assert bring(store, log, 0) == 8

    assert store.epochs().tolist() == [0] * 8
    assert held(store, 0) == {}


def test_epoch_by_epoch_the_newest_deltas_are_enough(store: Store, log: WrittenLog) -> None:
    bring(store, log, 0)
    for epoch in range(1, 6):
        commit(log, 1)
        newest = log.checkpoint.manifest(epoch).tables["Counts"]
        # With the deltas in hand no manifest is read; so it may as well be away.
        path = Path(log.checkpoint.directory.uri) / f"manifests/{epoch:012d}.json"
        hidden = path.rename(path.with_name("hidden"))
        assert bring(store, log, epoch, newest=newest) == 0
        hidden.rename(path)
        assert held(store, epoch) == log.states[epoch]["Counts"]


def test_an_epoch_without_changes_moves_the_epoch_alone(store: Store, log: WrittenLog) -> None:
    bring(store, log, 0)
    log.commit()

    assert bring(store, log, 1, newest=()) == 0
    assert store.epochs().tolist() == [1] * 8
    log.commit()
    assert bring(store, log, 2) == 0
    assert store.epochs().tolist() == [2] * 8


def test_what_is_there_already_is_not_touched(store: Store, log: WrittenLog) -> None:
    commit(log, 2)

    assert bring(store, log, 2) == 8
    assert bring(store, log, 2) == 0


@pytest.mark.parametrize("snapshots", [(), (2,), (2, 5)])
@pytest.mark.parametrize("behind", [1, 2, 4, 6])
def test_a_main_that_is_behind_catches_up(
    store: Store, log: WrittenLog, behind: int, snapshots: tuple[int, ...]
) -> None:
    commit(log, 6)
    for epoch in snapshots:
        write_snapshot(log.checkpoint, epoch)
    bring(store, log, 6 - behind)

    assert bring(store, log, 6) == 0, "it was made anew"
    assert held(store, 6) == log.states[6]["Counts"]


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("oldest", [3, 5])
def test_a_main_whose_deltas_are_forgotten_is_rebuilt(store: Store, log: WrittenLog, at: int, oldest: int) -> None:
    commit(log, 6)
    bring(store, log, at)
    write_snapshot(log.checkpoint, oldest)
    prune(log.checkpoint, oldest)

    assert bring(store, log, 6) == (8 if at < oldest - 1 else 0)
    assert held(store, 6) == log.states[6]["Counts"]


def test_a_damaged_delta_that_a_snapshot_covers_does_no_harm(store: Store, log: WrittenLog) -> None:
    commit(log, 4)
    bring(store, log, 1)
    write_snapshot(log.checkpoint, 3)
    ref = log.checkpoint.manifest(2).tables["Counts"][0]
    (Path(log.checkpoint.directory.uri) / ref.file).write_bytes(b"")

    assert bring(store, log, 4) == 8
    assert held(store, 4) == log.states[4]["Counts"]


@pytest.mark.parametrize(("data", "error"), [(b"", CorruptCheckpoint), (None, MissingDelta)])
def test_a_damaged_delta_that_nothing_covers_is_an_error_and_nothing_moves(
    store: Store, log: WrittenLog, data: bytes | None, error: type[Exception]
) -> None:
    commit(log, 4)
    bring(store, log, 1)
    ref = log.checkpoint.manifest(3).tables["Counts"][0]
    path = Path(log.checkpoint.directory.uri) / ref.file
    path.unlink()
    if data is not None:
        path.write_bytes(data)

    with pytest.raises(error, match=ref.file):
        bring(store, log, 4)
    assert held(store, 1) == log.states[1]["Counts"]


def test_a_main_beyond_the_epoch_means_that_the_task_is_over(store: Store, log: WrittenLog) -> None:
    commit(log, 5)
    bring(store, log, 5)

    with pytest.raises(StaleTask, match="at epoch 5 already"):
        bring(store, log, 3)
    assert held(store, 5) == log.states[5]["Counts"]


def test_groups_at_different_epochs_all_arrive(store: Store, log: WrittenLog) -> None:
    commit(log, 5)
    bring(store, log, 1, np.array([0, 1]))
    bring(store, log, 4, np.array([2, 3]))
    bring(store, log, 5, np.array([4]))

    newest = log.checkpoint.manifest(5).tables["Counts"]
    assert bring(store, log, 5, newest=newest) == 3, "only those without a main are made anew"
    assert held(store, 5) == log.states[5]["Counts"]


def test_only_the_groups_asked_for_move(store: Store, log: WrittenLog) -> None:
    commit(log, 3)
    mine = np.array([1, 6])

    assert bring(store, log, 3, mine) == 2
    assert [group for group in range(8) if store.epochs()[group] == 3] == [1, 6]


def test_groups_that_change_hands_arrive_from_the_former_owners_deltas(store: Store, log: WrittenLog) -> None:
    bring(store, log, 0)
    for instances in (1, 3, 2, 5):
        log.rescale(instances)
        commit(log, 1)
        newest = log.checkpoint.manifest(log.epoch).tables["Counts"]
        bring(store, log, log.epoch, newest=newest)
        assert held(store, log.epoch) == log.states[log.epoch]["Counts"]
