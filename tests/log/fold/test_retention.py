"""Retention: everything that is kept can be rebuilt, everything else goes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from written_log import WrittenLog, files_of, local_log

from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.fold.retention import base_retained, oldest_retained, prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._testing.faulty_disk import Death, FaultyDisk
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk


def long_log(path: Path, *, snapshots: tuple[int, ...] = (3, 6, 9)) -> WrittenLog:
    log = local_log(path, operators=("A", "B"))
    for number in range(1, 11):
        log.commit({"A": {f"s{number % 4}": number, "x": number}, "B": {"y": number} if number < 5 else {}})
        if number in snapshots:
            write_snapshot(log.checkpoint, number)
    return log


def test_epochs_from_the_oldest_wanted_on_are_kept_and_older_ones_go(tmp_path: Path) -> None:
    log = long_log(tmp_path)

    assert prune(log.checkpoint, 7) > 0

    assert log.checkpoint.epochs() == [6, 7, 8, 9, 10]
    assert log.checkpoint.snapshots() == [6, 9]
    for epoch in range(6, 11):
        log.assert_rebuilds(epoch)
    report = verify(log.checkpoint)
    assert (report.sound, report.orphans) == (True, 0)


def test_every_file_that_a_kept_manifest_names_is_there(tmp_path: Path) -> None:
    log = long_log(tmp_path)
    prune(log.checkpoint, 7)

    named = {
        ref.file
        for epoch in log.checkpoint.epochs()
        for refs in log.checkpoint.manifest(epoch).tables.values()
        for ref in refs
    }

    assert named == {f"deltas/{name}" for name in log.checkpoint.directory.list("deltas")}


def test_without_a_snapshot_before_the_oldest_nothing_can_go(tmp_path: Path) -> None:
    log = long_log(tmp_path)
    before = files_of(tmp_path)

    assert prune(log.checkpoint, 2) == 0
    assert files_of(tmp_path) == before


def test_pruning_twice_is_pruning_once(tmp_path: Path) -> None:
    log = long_log(tmp_path)
    prune(log.checkpoint, 7)
    before = files_of(tmp_path)

    assert prune(log.checkpoint, 7) == 0
    assert files_of(tmp_path) == before


def test_a_file_shared_with_a_snapshot_that_goes_stays(tmp_path: Path) -> None:
    log = long_log(tmp_path, snapshots=(6, 7, 9))
    # The one between has a copy of its own.
    shared = log.checkpoint.snapshot(9).tables["B"][0].file
    assert shared.startswith("snapshots/000000000006")

    prune(log.checkpoint, 9)

    assert log.checkpoint.directory.exists(shared)
    log.assert_rebuilds(10)


def test_orphans_go_with_the_epochs_around_them_and_strangers_stay(tmp_path: Path) -> None:
    log = long_log(tmp_path)
    orphans = ["deltas/000000000002-A-0-abc.arrow", "snapshots/000000000005-A-00000-abc.parquet"]
    later = ["deltas/000000000011-A-0-abc.arrow", "snapshots/000000000011-A-00000-abc.parquet"]
    strangers = ["deltas/notes.txt", "deltas/old-notes.txt", "snapshots/mine.parquet"]
    for name in orphans + later + strangers:
        (tmp_path / name).write_bytes(b"x")
    assert verify(log.checkpoint).orphans == 7

    prune(log.checkpoint, 7)

    assert [name for name in orphans if (tmp_path / name).exists()] == []
    assert all((tmp_path / name).exists() for name in later + strangers)
    assert verify(log.checkpoint).sound


@pytest.mark.parametrize("step", [1, 2])
def test_a_kill_in_the_middle_loses_nothing_and_the_next_run_finishes(tmp_path: Path, step: int) -> None:
    log = long_log(tmp_path)
    script = (
        "import sys; from pathlib import Path; from ferryman._log.files.checkpoint import Checkpoint\n"
        "from ferryman._log.files.directory import LocalDirectory; from ferryman._log.fold.retention import prune\n"
        "prune(Checkpoint(LocalDirectory(Path(sys.argv[1]))), 7)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env={**os.environ, "FERRYMAN_FAULT": f"retention:{step}"}
    )
    assert killed.returncode == -9

    report = verify(log.checkpoint)
    assert report.faults == ()
    assert report.orphans > 0
    for epoch in report.rebuildable:
        log.assert_rebuilds(epoch)
    assert set(range(7, 11)) <= set(report.rebuildable)
    prune(log.checkpoint, 7)
    assert verify(log.checkpoint).orphans == 0


def test_a_power_cut_in_the_middle_is_no_fault_and_the_next_run_finishes(tmp_path: Path) -> None:
    log = local_log(tmp_path / "log")
    for number in range(1, 6):
        log.commit({"Counts": {"a": number}})
    write_snapshot(log.checkpoint, 4)
    # At the fourth call the first manifest is gone.
    for call, seed in [*itertools.product(range(4, 9), range(12)), *((call, call) for call in range(9, 21))]:
        root, journal = tmp_path / f"{call}-{seed}" / "disk", tmp_path / f"{call}-{seed}" / "journal"
        shutil.copytree(tmp_path / "log", root / "log")
        inner = UnsyncedDisk(root, journal)
        disk = FaultyDisk(inner, die_at=call)
        with contextlib.suppress(Death):
            prune(Checkpoint(LocalDirectory(root / "log", fsync=True, disk=disk)), 4)
        inner.close()
        power_cut(root, journal, seed)

        left = Checkpoint(LocalDirectory(root / "log"))
        report = verify(left)
        assert report.faults == (), f"at call {call}, seed {seed}"
        assert {4, 5} <= set(report.rebuildable)
        prune(left, 4)
        assert left.epochs() == [4, 5]
    assert not disk.dead, "it has more calls than were tried"


@pytest.mark.parametrize("gone", range(1, 6))
def test_a_kill_between_any_two_manifests_is_no_fault(tmp_path: Path, gone: int) -> None:
    log = long_log(tmp_path)
    for epoch in range(1, gone + 1):
        (tmp_path / f"manifests/{epoch:012d}.json").unlink()

    report = verify(log.checkpoint)

    assert report.faults == ()
    assert report.rebuildable == report.epochs
    for epoch in report.rebuildable:
        log.assert_rebuilds(epoch)
    assert set(range(6, 11)) <= set(report.rebuildable)
    assert json.loads(json.dumps(report.json()))["sound"] is True


def test_the_newest_snapshot_that_is_old_enough_is_the_base_of_what_stays() -> None:
    assert base_retained([3, 6, 9], oldest_retained(newest=12, retain=5)) == 6
    assert base_retained([3, 6, 9], oldest_retained(newest=12, retain=6)) == 6
    assert base_retained([3, 6, 9], oldest_retained(newest=12, retain=10)) is None
