"""What is damaged of a snapshot is written anew, under any kill; and it is told."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from test_bases import DAMAGES, files, flip, long_log

from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.mend_notes import mended, note_mended
from ferryman._log.fold.mend_snapshots import mend_snapshots
from ferryman._log.fold.retention import prune
from ferryman._testing.faulty_disk import Death, FaultyDisk
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_file_of_a_snapshot_is_written_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    log = long_log(tmp_path, pruned=5)
    *parts, listed = files(log, 6)
    for path in parts:
        name, sound = str(path.relative_to(tmp_path)), path.read_bytes()
        damage(path)

        assert mend_snapshots(log.checkpoint, log.checkpoint.job_card(), {name}) == [name]

        assert path.read_bytes() == sound
        assert verify(log.checkpoint).faults == ()
    # A list that is gone is a snapshot that never was.
    if damage is not Path.unlink:
        damage(listed)
        assert mend_snapshots(log.checkpoint, log.checkpoint.job_card(), ()) == ["snapshots/000000000006.json"]
        assert verify(log.checkpoint).faults == ()
    for path in (*parts, *files(log, 3)[:1]):
        path.unlink()
    assert mend_snapshots(log.checkpoint, log.checkpoint.job_card(), {"deltas/x"}) == []


def test_verify_tells_what_was_mended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = long_log(tmp_path)
    name = str(files(log, 6)[0].relative_to(tmp_path))
    flip(tmp_path / name)
    mend_snapshots(log.checkpoint, log.checkpoint.job_card(), {name})

    report = verify(log.checkpoint)

    assert report.sound
    assert [note.file for note in report.mended] == [name]
    assert f"{name} in {tmp_path}: damaged or missing, and written anew" in caplog.text
    (tmp_path / "mended.json").write_bytes(b"{}")
    assert [(fault.file, fault.damages) for fault in verify(log.checkpoint).faults] == [("mended.json", ())]
    note_mended(log.checkpoint, ["other"])
    assert [note.file for note in mended(log.checkpoint)] == ["other"]


def test_what_nothing_else_has_stays_as_it_is_and_does_not_keep_others_from_being_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = long_log(tmp_path)
    prune(log.checkpoint, 5)
    oldest, newest = files(log, 3)[0], files(log, 6)[1]
    for path in (oldest, newest):
        flip(path)
    names = [str(path.relative_to(tmp_path)) for path in (oldest, newest)]

    assert mend_snapshots(log.checkpoint, log.checkpoint.job_card(), names) == names[1:]

    assert "snapshot of epoch 3 cannot be mended" in caplog.text
    assert [fault.file for fault in verify(log.checkpoint).faults] == names[:1]
    log.assert_rebuilds(9)


@pytest.mark.parametrize("which", [0, -1])
def test_a_power_cut_while_mending_loses_nothing(tmp_path: Path, which: int) -> None:
    log = long_log(tmp_path / "log", pruned=5)
    path = files(log, 6)[which]
    flip(path)
    damaged = {str(path.relative_to(tmp_path / "log"))}
    call = 0
    while True:
        call += 1
        place, journal = tmp_path / f"{call}" / "disk", tmp_path / f"{call}" / "journal"
        shutil.copytree(tmp_path / "log", place / "log")
        inner = UnsyncedDisk(place, journal)
        disk = FaultyDisk(inner, die_at=call)
        with contextlib.suppress(Death):
            mend_snapshots(
                Checkpoint(LocalDirectory(place / "log", fsync=True, disk=disk)), log.checkpoint.job_card(), damaged
            )
        inner.close()
        power_cut(place, journal, call)

        left = Checkpoint(LocalDirectory(place / "log"))
        assert verify(left).rebuildable == verify(log.checkpoint).rebuildable
        mend_snapshots(left, log.checkpoint.job_card(), damaged)
        assert verify(left).faults == ()
        if not disk.dead:
            break
    assert call > 4
