"""Snapshots of a run that is over: a driver that slept through its successor leaves none that cannot be read."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from written_log import WrittenLog, local_log

from ferryman._log.term import check_term, take_term
from ferryman._log.verify import verify
from ferryman._spark.background import Background

pytestmark = pytest.mark.timeout(60)


def until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def written(tmp_path: Path) -> WrittenLog:
    log = local_log(tmp_path)
    for epoch in range(3):
        log.commit({"Counts": {f"s{number}": epoch for number in range(20)}})
    return log


def test_a_run_that_was_superseded_writes_no_snapshot(tmp_path):
    log = written(tmp_path)
    first = take_term(log.checkpoint, "first", "job")
    background = Background(log.checkpoint, every=1, retain=1, look=lambda before: check_term(log.checkpoint, first))
    take_term(log.checkpoint, "second", "job")
    background.committed(3, 1000)
    until(lambda: not background._thread.is_alive())
    assert not log.checkpoint.snapshots()
    assert log.checkpoint.epochs() == [1, 2, 3], "nor does it delete anything"
    background.close()


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

    background = Background(log.checkpoint, every=1, retain=1, look=look)
    background.committed(3, 1000)
    until(lambda: not background._thread.is_alive())
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

    background = Background(log.checkpoint, every=1, retain=1, look=look)
    background.committed(3, 1000)
    until(lambda: not background._thread.is_alive())
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

    background = Background(log.checkpoint, every=1, retain=5, look=look)
    with caplog.at_level(logging.WARNING):
        background.committed(2, 1000)
        until(lambda: background.failure is not None)
    assert "snapshot of epoch 2 failed and will be tried again later: the disk is full" in caplog.text
    background.committed(3, 1000)
    until(lambda: log.checkpoint.snapshots() == [3])
    background.close()
