"""Snapshots of a run that is over: a driver that slept through its successor leaves none that cannot be read."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from until import until
from written_log import KEY, WrittenLog, local_log, root

from ferryman._engine.job_options import SnapshotOptions
from ferryman._engine.maintenance import Background
from ferryman._log.check.verify import verify
from ferryman._log.files.cards import card_of
from ferryman._log.files.mend_notes import mended
from ferryman._log.files.term import check_term, take_term
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._os import faults

pytestmark = pytest.mark.timeout(60)

EVERY_EPOCH = SnapshotOptions(snapshot_every=1, retain=1)


def written(tmp_path: Path) -> WrittenLog:
    log = local_log(tmp_path)
    for epoch in range(3):
        log.commit({"Counts": {f"s{number}": epoch for number in range(20)}})
    return log


def test_a_run_that_was_superseded_writes_no_snapshot(tmp_path):
    log = written(tmp_path)
    first = take_term(log.checkpoint, "first", "job")
    background = Background(
        log.checkpoint,
        log.checkpoint.job_card(),
        EVERY_EPOCH,
        look=lambda before: check_term(log.checkpoint, first),
    )
    take_term(log.checkpoint, "second", "job")
    background.committed(3, 1000)
    until(lambda: not background._thread.is_alive(), "it goes on", 30)
    assert not log.checkpoint.snapshots()
    assert log.checkpoint.epochs() == [1, 2, 3], "nor does it delete anything"
    background.close()


def test_a_snapshot_goes_by_the_card_of_its_run_and_puts_that_right(tmp_path):
    log = written(tmp_path)
    card = log.checkpoint.job_card()
    # Of a driver that had looked before it fell asleep, and declared less.
    fewer = pa.schema([("n", pa.int64())])
    log.checkpoint.create(replace(card, tables={"Counts": card_of("Counts", KEY, fewer)}))

    background = Background(log.checkpoint, card, EVERY_EPOCH, look=lambda before: None)
    background.committed(3, 1000)
    until(lambda: log.checkpoint.snapshots() == [3], "there is no snapshot", 30)
    background.close()

    assert log.checkpoint.card() == card
    log.assert_rebuilds(3)
    assert verify(log.checkpoint).sound


def test_a_snapshot_whose_files_were_tidied_away_meanwhile_is_withdrawn(tmp_path):
    log = written(tmp_path)
    looks: list[int] = []
    first = take_term(log.checkpoint, "first", "job")

    def look(before: str) -> None:
        looks.append(1)
        if len(looks) == 2:
            # It slept after it had listed its snapshot; who took over found files that no epoch knew of.
            take_term(log.checkpoint, "second", "job")
            for file in (tmp_path / "snapshots").glob("*.parquet"):
                file.unlink()
        check_term(log.checkpoint, first)

    background = Background(log.checkpoint, log.checkpoint.job_card(), EVERY_EPOCH, look=look)
    background.committed(3, 1000)
    until(lambda: not background._thread.is_alive(), "it goes on", 30)
    assert len(looks) == 2
    assert not log.checkpoint.snapshots()
    assert verify(log.checkpoint).sound
    log.assert_rebuilds(3)
    background.close()


def test_a_snapshot_that_is_whole_stays_although_its_run_is_over(tmp_path):
    log = written(tmp_path)
    looks: list[int] = []
    first = take_term(log.checkpoint, "first", "job")

    def look(before: str) -> None:
        looks.append(1)
        if len(looks) == 2:
            take_term(log.checkpoint, "second", "job")
        check_term(log.checkpoint, first)

    background = Background(log.checkpoint, log.checkpoint.job_card(), EVERY_EPOCH, look=look)
    background.committed(3, 1000)
    until(lambda: not background._thread.is_alive(), "it goes on", 30)
    assert log.checkpoint.snapshots() == [3]
    assert log.checkpoint.epochs() == [1, 2, 3], "what is too old is for the new run to delete"
    background.close()


def test_a_snapshot_that_fails_is_said_and_the_next_one_is_made(tmp_path, caplog):
    log = written(tmp_path)
    looks: list[int] = []

    def look(before: str) -> None:
        looks.append(1)
        if len(looks) == 1:
            raise OSError("the disk is full")

    background = Background(log.checkpoint, log.checkpoint.job_card(), replace(EVERY_EPOCH, retain=5), look=look)
    with caplog.at_level(logging.WARNING):
        background.committed(2, 1000)
        until(lambda: background.failure is not None, "it did not fail", 30)
    assert "snapshot of epoch 2 failed and will be tried again later: the disk is full" in caplog.text
    background.committed(3, 1000)
    until(lambda: log.checkpoint.snapshots() == [3], "there is no snapshot", 30)
    background.close()


def damage(log: WrittenLog, name: str) -> None:
    path = root(log) / name
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("told", [True, False])
def test_what_tasks_or_the_next_snapshot_find_damaged_is_written_anew(tmp_path, told):
    log = written(tmp_path)
    write_snapshot(log.checkpoint, 2)
    name = log.checkpoint.snapshot(2).tables["Counts"][0].file
    damage(log, name)
    every = EVERY_EPOCH if not told else replace(EVERY_EPOCH, snapshot_every=100)
    background = Background(log.checkpoint, log.checkpoint.job_card(), every, look=lambda before: None)

    background.committed(3, 100_000, damaged=(name,) if told else ())

    until(lambda: mended(log.checkpoint), "it is not mended", 30)
    background.close()
    assert [note.file for note in mended(log.checkpoint)] == [name]
    assert log.checkpoint.snapshots() == ([2] if told else [2, 3])
    assert verify(log.checkpoint).sound


def test_a_list_that_cannot_be_read_is_no_reason_not_to_start_and_is_written_anew(tmp_path):
    log = written(tmp_path)
    for epoch in (1, 2):
        write_snapshot(log.checkpoint, epoch)
    damage(log, "snapshots/000000000002.json")

    background = Background(log.checkpoint, log.checkpoint.job_card(), EVERY_EPOCH, look=lambda before: None)
    background.committed(3, 100_000)
    until(lambda: log.checkpoint.snapshots() == [2, 3], "there is no snapshot", 30)
    background.close()

    assert [note.file for note in mended(log.checkpoint)] == ["snapshots/000000000002.json"]
    assert verify(log.checkpoint).sound


def test_a_run_that_was_superseded_mends_nothing(tmp_path):
    log = written(tmp_path)
    write_snapshot(log.checkpoint, 2)
    name = log.checkpoint.snapshot(2).tables["Counts"][0].file
    damage(log, name)
    first = take_term(log.checkpoint, "first", "job")
    background = Background(
        log.checkpoint, log.checkpoint.job_card(), EVERY_EPOCH, look=lambda before: check_term(log.checkpoint, first)
    )
    take_term(log.checkpoint, "second", "job")
    background.committed(3, 1, damaged=(name,))
    until(lambda: not background._thread.is_alive(), "it goes on", 30)
    assert mended(log.checkpoint) == ()
    background.close()


def test_a_run_that_is_superseded_while_it_mends_lists_no_snapshot_of_an_epoch_that_is_gone(tmp_path, monkeypatch):
    log = written(tmp_path)
    for epoch in (1, 2):
        write_snapshot(log.checkpoint, epoch)
    name = "snapshots/000000000002.json"
    damage(log, name)
    first = take_term(log.checkpoint, "first", "job")

    def slept(step: str) -> None:
        # The job was taken back to epoch 1 meanwhile; the numbers of the others come again, with other rows.
        monkeypatch.setattr(faults, "watcher", None)
        take_term(log.checkpoint, "second", "job")
        log.checkpoint.directory.delete([name, "manifests/000000000003.json", "manifests/000000000002.json"])

    monkeypatch.setattr(faults, "watcher", slept)
    background = Background(
        log.checkpoint,
        log.checkpoint.job_card(),
        replace(EVERY_EPOCH, snapshot_every=100),
        look=lambda before: check_term(log.checkpoint, first),
    )
    background.committed(3, 1)
    until(lambda: not background._thread.is_alive(), "it goes on", 30)
    background.close()
    assert log.checkpoint.snapshots() == [1]


def test_a_run_that_is_superseded_when_its_snapshot_is_made_forgets_nothing(tmp_path):
    log = written(tmp_path)
    for epoch in (1, 2):
        write_snapshot(log.checkpoint, epoch)
    first = take_term(log.checkpoint, "first", "job")
    looks: list[str] = []

    def look(before: str) -> None:
        looks.append(before)
        check_term(log.checkpoint, first)
        if len(looks) == 2:
            # Whoever takes over may go back to what this run would forget now.
            take_term(log.checkpoint, "second", "job")

    background = Background(log.checkpoint, log.checkpoint.job_card(), EVERY_EPOCH, look=look)
    background.committed(3, 100_000)
    until(lambda: not background._thread.is_alive(), "it goes on", 30)
    background.close()
    assert log.checkpoint.epochs() == [1, 2, 3]
    assert log.checkpoint.snapshots() == [1, 2, 3]


def test_what_could_not_be_mended_now_is_mended_after_a_later_epoch(tmp_path):
    log = written(tmp_path)
    write_snapshot(log.checkpoint, 2)
    name = log.checkpoint.snapshot(2).tables["Counts"][0].file
    damage(log, name)
    looks: list[str] = []

    def look(before: str) -> None:
        looks.append(before)
        if len(looks) == 1:
            raise OSError("the disk does not answer")

    background = Background(
        log.checkpoint, log.checkpoint.job_card(), replace(EVERY_EPOCH, snapshot_every=100), look=look
    )
    background.committed(3, 1, damaged=(name,))
    until(lambda: background.failure is not None, "it did not fail", 30)
    assert looks == ["mending"], "not at once again"
    background.committed(3, 1)
    until(lambda: mended(log.checkpoint), "it is not mended", 10)
    background.close()
    assert verify(log.checkpoint).sound
