"""Verify finds every fault, says which epochs it damages, and what can still be rebuilt."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from written_log import (
    LAST,
    SNAPSHOTS,
    WrittenLog,
    files_of,
    local_log,
    rebuildable,
    replaced,
    root,
    written,
)

from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.card import JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import ForeignCheckpoint, NewerFormat


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return written(tmp_path / "log")


def delta(log: WrittenLog, epoch: int) -> DeltaRef:
    return log.checkpoint.manifest(epoch).tables["A"][0]


def test_a_sound_checkpoint_has_no_fault(log: WrittenLog) -> None:
    report = verify(log.checkpoint)

    assert report.sound
    assert report.epochs == report.rebuildable == tuple(range(1, LAST + 1))
    assert report.snapshots == SNAPSHOTS
    assert report.job == "test"
    assert report.orphans == 0
    on_disk = files_of(root(log))
    assert report.files == len(on_disk) - 1  # all but the intent
    assert report.bytes == sum(len(data) for name, data in on_disk.items() if not name.endswith(".json"))


def test_a_checkpoint_before_its_first_epoch_is_sound(tmp_path: Path) -> None:
    report = verify(local_log(tmp_path).checkpoint)

    assert report.sound
    assert report.epochs == ()


def test_progress_ends_at_the_total(log: WrittenLog) -> None:
    seen: list[tuple[int, int]] = []
    report = verify(log.checkpoint, lambda done, total: seen.append((done, total)))

    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {2 * report.bytes}
    assert seen[-1][0] == seen[-1][1]


def test_the_report_is_json(log: WrittenLog) -> None:
    (root(log) / delta(log, 2).file).unlink()

    raw = json.loads(json.dumps(verify(log.checkpoint).json()))

    assert raw["sound"] is False
    assert raw["faults"][0]["damages"] == [2]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "deleted": lambda data: None,
}


# A snapshot without its list does not exist; the first manifests go with retention; no card is no checkpoint.
MAY_BE_AWAY = {
    "ferryman.json", "intents/000000000000.json", "manifests/000000000001.json",
    *(f"snapshots/{epoch:012d}.json" for epoch in SNAPSHOTS),
}  # fmt: skip


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_whatever_happens_to_one_file_is_found_and_its_damage_told(log: WrittenLog, damage: str) -> None:
    for name, data in files_of(root(log)).items():
        if damage == "deleted" and name in MAY_BE_AWAY:
            continue
        with replaced(root(log) / name, DAMAGES[damage](data)):
            report = verify(log.checkpoint)
            possible = rebuildable(log)
        assert [fault.file for fault in report.faults] == [name]
        assert report.rebuildable == possible, name
        assert set(report.faults[0].damages) == set(report.epochs) - set(possible), name
        assert report.faults[0].remedy
    assert verify(log.checkpoint).sound


def test_every_flipped_bit_is_noticed_or_harmless(tmp_path: Path) -> None:
    log = local_log(tmp_path, groups=2)
    log.commit({"Counts": {"a": 1, "b": 2}})
    write_snapshot(log.checkpoint, 1)
    log.commit({"Counts": {"a": None}})
    log.checkpoint.intend(3, 4)
    sound = verify(log.checkpoint)
    assert sound.sound
    choose = random.Random(5)
    unnoticed = []
    for name, data in files_of(tmp_path).items():
        # The first and the last bytes are those that the checksum in a JSON file does not cover.
        for place in {*range(12), *choose.sample(range(len(data)), 60), len(data) - 2, len(data) - 1}:
            altered = bytearray(data)
            altered[place] ^= 1 << choose.randrange(8)
            (tmp_path / name).write_bytes(altered)
            try:
                report = verify(log.checkpoint)
            except NewerFormat:
                continue
            if not report.faults:
                unnoticed.append((name, place))
                assert report == sound
                for epoch in (1, 2):
                    log.assert_rebuilds(epoch)
        (tmp_path / name).write_bytes(data)
    # Only the line's end is outside the checksum.
    assert all(place == len(files_of(tmp_path)[name]) - 1 for name, place in unnoticed)


def test_faults_do_not_hide_each_other(log: WrittenLog) -> None:
    files = [delta(log, 2).file, "manifests/000000000005.json", "snapshots/000000000006.json", delta(log, 8).file]
    for name in files:
        (root(log) / name).write_bytes(b"")

    report = verify(log.checkpoint)

    assert {fault.file: fault.damages for fault in report.faults} == {
        files[0]: (2,),
        # What came before it can be had from the older snapshot, as far as that goes.
        files[1]: (5, 6, 7, 8),
        files[2]: (6, 7, 8),
        files[3]: (8,),
    }
    assert report.rebuildable == rebuildable(log) == (1, 3, 4)


def test_a_missing_manifest_in_the_middle_is_a_fault(log: WrittenLog) -> None:
    (root(log) / "manifests/000000000004.json").unlink()

    report = verify(log.checkpoint)

    assert [(fault.file, fault.what, fault.damages) for fault in report.faults] == [
        ("manifests/000000000004.json", "is missing", (4, 5))
    ]
    assert report.rebuildable == rebuildable(log) == (1, 2, 3, 6, 7, 8)
    assert report.orphans > 0


def test_missing_first_manifests_are_a_fault_where_no_snapshot_covers_them(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    for number in range(4):
        log.commit({"Counts": {"a": number}})
    for epoch in (1, 2):
        (tmp_path / f"manifests/{epoch:012d}.json").unlink()

    report = verify(log.checkpoint)

    assert [(fault.file, fault.damages) for fault in report.faults] == [("manifests/000000000001.json", (3, 4))]
    assert report.rebuildable == ()


def test_all_manifests_missing_is_a_fault(log: WrittenLog) -> None:
    shutil.rmtree(root(log) / "manifests")

    report = verify(log.checkpoint)

    assert [fault.file for fault in report.faults] == [f"manifests/{epoch:012d}.json" for epoch in (6, 7, 8)]
    assert report.rebuildable == ()


def test_a_missing_newest_manifest_is_a_fault_if_spark_committed_its_batch(log: WrittenLog) -> None:
    (root(log) / "intents/000000000000.json").unlink()
    commits = root(log) / "spark" / "commits"
    commits.mkdir(parents=True)
    batch = log.checkpoint.manifest(LAST).batch
    for number in range(batch + 1):
        (commits / str(number)).write_text("v1\n{}")
    assert verify(log.checkpoint).sound

    (root(log) / f"manifests/{LAST:012d}.json").unlink()
    report = verify(log.checkpoint)

    assert [(fault.file, fault.damages) for fault in report.faults] == [(f"manifests/{LAST:012d}.json", (LAST,))]
    assert f"Spark committed micro-batch {batch}" in report.faults[0].what
    assert LAST not in report.rebuildable


def test_a_missing_newest_manifest_is_a_fault_if_a_later_silent_epoch_was_begun(log: WrittenLog) -> None:
    log.checkpoint.intend(LAST + 1, 5)
    for epoch in (LAST - 1, LAST):
        (root(log) / f"manifests/{epoch:012d}.json").unlink()

    report = verify(log.checkpoint)

    assert [fault.file for fault in report.faults] == [f"manifests/{epoch:012d}.json" for epoch in (LAST - 1, LAST)]
    assert report.rebuildable == tuple(range(1, LAST - 1))


def test_an_old_intent_is_no_fault(log: WrittenLog) -> None:
    log.checkpoint.intend(2, 5)
    prune(log.checkpoint, 6)

    assert verify(log.checkpoint).sound


def test_a_delta_that_only_forgotten_epochs_need_damages_none(log: WrittenLog) -> None:
    (root(log) / delta(log, 6).file).unlink()

    report = verify(log.checkpoint)

    assert [fault.damages for fault in report.faults] == [()]
    assert "Nothing needs to be done" in report.faults[0].remedy
    assert report.rebuildable == report.epochs == rebuildable(log)


def test_a_damaged_snapshot_damages_no_epoch_that_an_older_one_gives(log: WrittenLog) -> None:
    file = log.checkpoint.snapshot(6).tables["A"][0].file
    (root(log) / file).write_bytes(b"")
    (fault,) = verify(log.checkpoint).faults

    assert (fault.file, fault.damages) == (file, ())
    assert "rebuilt from an older snapshot" in fault.remedy
    assert verify(log.checkpoint).rebuildable == rebuildable(log) == tuple(range(1, LAST + 1))


def test_where_the_newest_epoch_is_lost_the_way_back_is_told(log: WrittenLog) -> None:
    (root(log) / delta(log, 8).file).unlink()

    (fault,) = verify(log.checkpoint).faults

    assert "the newest epoch that can be had is 7" in fault.remedy
    assert f"ferryman rewind {root(log)} --to-epoch 7" in fault.remedy


def test_a_damaged_snapshot_whose_deltas_are_gone_can_only_be_restored(log: WrittenLog) -> None:
    prune(log.checkpoint, 6)
    (root(log) / log.checkpoint.snapshot(6).tables["A"][0].file).write_bytes(b"")

    (fault,) = verify(log.checkpoint).faults

    assert "delete" not in fault.remedy
    assert "backup" in fault.remedy
    assert fault.damages == (6, 7, 8)


def test_files_that_nobody_names_are_counted_and_no_fault(log: WrittenLog) -> None:
    log.write_deltas("A", {"dead": 1})
    (root(log) / "snapshots" / "000000000007-A-00000-abc.parquet").write_bytes(b"x")
    (root(log) / "manifests" / "notes.json").write_bytes(b"x")
    (root(log) / "deltas" / ".000000000009-A-0-abc.arrow.f00").write_bytes(b"half a fi")

    report = verify(log.checkpoint)

    assert report.sound
    assert report.orphans == 3


def test_a_damaged_card_does_not_keep_the_rest_from_being_checked(log: WrittenLog) -> None:
    (root(log) / "ferryman.json").write_bytes(b"{")
    (root(log) / delta(log, 2).file).write_bytes(b"")

    report = verify(log.checkpoint)

    assert {fault.file for fault in report.faults} == {"ferryman.json", delta(log, 2).file}
    assert report.job is None
    assert report.rebuildable == ()


def test_what_is_no_checkpoint_or_of_a_newer_format_is_refused(tmp_path: Path, log: WrittenLog) -> None:
    with pytest.raises(ForeignCheckpoint, match="is not a checkpoint"):
        verify(Checkpoint(LocalDirectory(tmp_path / "nothing")))
    log.checkpoint.create(JobCard("0", "test", 8, {}, format=99))
    with pytest.raises(NewerFormat, match="format 99"):
        verify(log.checkpoint)
    (root(log) / "ferryman.json").unlink()
    with pytest.raises(ForeignCheckpoint, match=r"no ferryman\.json"):
        verify(log.checkpoint)
