"""Stores after a power cut: their files may be anything, so none of it is believed, and the checkpoint has it all.

A store syncs nothing, and writes past the `Disk` that a directory uses: by mapped files, LMDB and RocksDB. So for the
journal all of a home is unsynced, and a power cut leaves any part of it.
"""

from __future__ import annotations

import random
from pathlib import Path

import history
import numpy as np
import pytest

from ferryman._state.store import store_identity as homes
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk

ALL = np.arange(history.GROUPS)
GROUP_OF = history.HASHES % history.GROUPS
CUTS = 6


class Machine:
    """A home on a machine that can lose its power, and has another boot id each time it comes up."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = place / "home"
        self.home.mkdir()
        self._boot, self._boots = place / "boot_id", 0
        self._journal = place / "journal"
        monkeypatch.setattr(homes, "_BOOT", self._boot)
        self.come_up()

    def come_up(self) -> None:
        self._boots += 1
        self._boot.write_text(f"boot-{self._boots}\n")
        self._disk = UnsyncedDisk(self.home, self._journal)

    def cut(self, seed: int) -> None:
        self._disk.close()
        power_cut(self.home, self._journal, seed)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def live(machine: Machine, backend: str, kind: str, chance: random.Random) -> np.ndarray:
    """Bring a store up to some epoch, look at it, and give what its groups were at when it was opened."""
    opened = history.open_store(backend, machine.home, kind)
    found = opened.epochs()
    first = chance.randint(0, 3)
    opened.ingest(history.part_at(kind, first), ALL[found != first], first)
    for epoch in range(first + 1, first + chance.randint(1, 3)):
        opened.apply(history.delta_of(kind, epoch), ALL, epoch)
    epoch = int(opened.epochs().max())
    assert (opened.epochs() == epoch).all()
    assert (history.values_found(opened, kind) == history.values_at(epoch)).all()
    opened.close()
    return found


@pytest.mark.parametrize("kind", ["word", "string"])
@pytest.mark.parametrize("backend", ["columnar", "lmdb", "rocksdb"])
def test_nothing_of_a_store_is_believed_after_a_power_cut(machine: Machine, backend: str, kind: str) -> None:
    chance = random.Random(7)
    for seed in range(CUTS):
        assert (live(machine, backend, kind, chance) == -1).all()
        machine.cut(seed)
        machine.come_up()


def test_it_would_be_wrong_to_believe_it(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "same").write_text("boot-1")
    monkeypatch.setattr(homes, "_BOOT", tmp_path / "same")
    chance = random.Random(7)
    believed = 0
    for seed in range(100):
        try:
            believed += bool((live(machine, "columnar", "word", chance) >= 0).any())
        except Exception:
            return
        machine.cut(seed)
        machine.come_up()

    raise AssertionError(f"a cut must do harm, or these tests see nothing; {believed} homes were believed and right")
