"""Terms: only the newest run of a job may write."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.term import (
    Redo,
    check_term,
    newest_term,
    read_term,
    settle_term,
    take_term,
    term_before,
)
from ferryman._model.errors import CorruptCheckpoint, Superseded


def at(path: Path) -> Checkpoint:
    return Checkpoint(LocalDirectory(path))


def test_every_run_has_a_newer_term_and_the_one_before_is_superseded(tmp_path: Path) -> None:
    log = at(tmp_path)

    first = take_term(log, "run-a", "job")
    check_term(log, first)
    second = settle_term(log, take_term(log, "run-b", "job", reading={"cores": "2"}), Redo(5, {"cores": "1"}, 2))

    assert (first.number, second.number) == (1, 2)
    check_term(log, second)
    with pytest.raises(Superseded, match=rf"taken over by run 2 \(host .*, process {os.getpid()}\).*this one, run 1"):
        check_term(log, first)
    assert newest_term(log) == second


def test_a_term_is_newer_than_those_that_only_sinks_remember(tmp_path: Path) -> None:
    assert take_term(at(tmp_path), "run", "job", above=41).number == 42


def test_a_run_whose_checkpoint_was_restored_beneath_it_is_superseded(tmp_path: Path) -> None:
    log = at(tmp_path)
    term = take_term(log, "run", "job")
    (tmp_path / "terms" / "000000000001.json").unlink()

    with pytest.raises(Superseded, match="deleted or restored while the job ran"):
        check_term(log, term)


def test_of_runs_that_start_at_once_each_has_a_term_of_its_own(tmp_path: Path) -> None:
    taken: list[int] = []
    start = threading.Barrier(8)

    def run(name: str) -> None:
        start.wait()
        taken.append(take_term(at(tmp_path), name, "job").number)

    threads = [threading.Thread(target=run, args=(f"run-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == list(range(1, 9))


def test_old_terms_are_forgotten(tmp_path: Path) -> None:
    log = at(tmp_path)
    for number in range(40):
        settle_term(log, take_term(log, f"run-{number}", "job"), None)

    assert len(log.numbers("terms")) <= 21
    assert log.numbers("terms")[-1] == 40


def test_a_damaged_term_is_said_and_keeps_nobody_from_taking_the_next(tmp_path: Path) -> None:
    log = at(tmp_path)
    take_term(log, "run", "job")
    (tmp_path / "terms" / "000000000001.json").write_text("{}")

    assert newest_term(log) is None
    with pytest.raises(CorruptCheckpoint, match=r"terms/000000000001\.json"):
        read_term(log, 1)
    assert take_term(log, "next", "job").number == 2


def test_a_run_that_finds_another_with_its_number_is_superseded(tmp_path: Path) -> None:
    log = at(tmp_path)
    asleep = take_term(log, "asleep", "job")
    (tmp_path / "terms" / "000000000001.json").unlink()
    awake = take_term(log, "awake", "job")

    assert asleep.number == awake.number
    check_term(log, awake)
    with pytest.raises(Superseded, match="deleted or restored while the job ran"):
        check_term(log, asleep)


def test_a_run_that_was_not_ready_has_left_nothing_behind(tmp_path: Path) -> None:
    log = at(tmp_path)
    first = settle_term(log, take_term(log, "a", "job"), None)
    second = take_term(log, "b", "job")
    third = take_term(log, "c", "job")

    assert term_before(log, third.number) == first
    assert term_before(log, first.number) is None
    ready = settle_term(log, second, Redo(1, {}, 1))
    assert term_before(log, third.number) == ready
