"""A snapshot is made of main copies where a delta is damaged, while these move on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from test_bases import flip
from written_log import KEY, STATE, WrittenLog, local_log, root

from ferryman._log.check.verify import verify
from ferryman._log.fold import snapshot as snapshots
from ferryman._log.fold.advance import advance
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.mains import write_snapshot_of_mains
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.errors import CorruptCheckpoint
from ferryman._state import store as stores
from ferryman._state.store import Store


class Home:
    """Main copies of some key groups, at epochs of their own."""

    def __init__(self, log: WrittenLog, place: Path) -> None:
        self.log, self.place = log, place
        self.place.mkdir()
        self.store = stores.open("lmdb", place / "Counts", KEY, STATE, 8)
        self.driver: dict[str, tuple[pa.Table, int]] = {}

    def bring(self, to: int, groups: list[int]) -> None:
        advance(self.store, self.log.checkpoint, "Counts", np.array(groups), to, key=KEY, state=STATE, total=8)

    def scratch(self) -> Path:
        return self.place

    @contextlib.contextmanager
    def stores(self) -> Iterator[dict[str, Store]]:
        yield {"Counts": self.store}

    def whole(self) -> dict[str, tuple[pa.Table, int]]:
        return self.driver


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    log = local_log(tmp_path / "log")
    for number in range(1, 7):
        log.commit({"Counts": {f"s{each}": number for each in range(number, 40, 2)} | {f"s{number}": None}})
    found = Home(log, tmp_path / "home")
    yield found
    found.store.close()


def damage(home: Home, epoch: int, table: str = "Counts") -> None:
    for ref in home.log.checkpoint.manifest(epoch).tables[table]:
        flip(root(home.log) / ref.file)


@pytest.mark.parametrize("small", [False, True])
def test_main_copies_at_several_epochs_make_a_snapshot_of_the_newest(
    home: Home, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.bring(4, [0, 1, 2])
    home.bring(5, [3, 4])
    home.bring(6, [5, 6, 7])
    damage(home, 3)
    damage(home, 4)
    with pytest.raises(CorruptCheckpoint):
        write_snapshot(home.log.checkpoint, 6)
    if small:
        monkeypatch.setattr(snapshots, "FILE_BYTES", 200)

    written = write_snapshot_of_mains(home.log.checkpoint, home.log.checkpoint.job_card(), home)

    assert written.epoch == 6
    assert (len(written.tables["Counts"]) > 2) is small
    home.log.assert_rebuilds(6)
    assert verify(home.log.checkpoint).rebuildable == (1, 2, 6)
    assert sorted(path.name for path in home.place.iterdir()) == ["Counts"]
    home.log.commit({"Counts": {"s1": 9}})
    home.log.assert_rebuilds(7)


def test_a_main_copy_from_before_the_damage_is_no_help(home: Home) -> None:
    home.bring(6, [0, 1, 2, 3, 4, 5, 6])
    home.bring(3, [7])
    damage(home, 4)

    with pytest.raises(CorruptCheckpoint):
        write_snapshot_of_mains(home.log.checkpoint, home.log.checkpoint.job_card(), home)

    assert home.log.checkpoint.snapshots() == []


@pytest.mark.parametrize("at", [3, 5, 6])
def test_a_table_that_the_driver_has_whole_comes_from_there(tmp_path: Path, at: int) -> None:
    log = local_log(tmp_path / "log", operators=("Counts", "Rules"))
    for number in range(1, 7):
        changes = {f"s{each}": number for each in range(number, 20, 2)} | {f"s{number}": None}
        log.commit({"Counts": changes, "Rules": changes})
    home = Home(log, tmp_path / "home")
    home.bring(6, list(range(8)))
    home.driver["Rules"] = rebuild(log.checkpoint, "Rules", at), at
    damage(home, 3, "Rules")

    assert write_snapshot_of_mains(log.checkpoint, log.checkpoint.job_card(), home).epoch == 6

    log.assert_rebuilds(6)
    assert verify(log.checkpoint).rebuildable == (1, 2, 6)
    home.store.close()
