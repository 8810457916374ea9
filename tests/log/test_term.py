"""Terms: only the newest run of a job may write."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.directory import LocalDirectory
from ferryman._log.term import (
    Redo,
    check_term,
    left_behind,
    newest_term,
    read_term,
    resumes,
    settle_term,
    take_term,
    term_before,
)
from ferryman._model.errors import CorruptCheckpoint, Superseded
from ferryman._model.records import Manifest, RoutingTable


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


def begun(log: Checkpoint, batch: int) -> None:
    """Let Spark have begun a micro-batch."""
    log.directory.write(f"spark/offsets/{batch}", b"v1\n{}\n1")


def test_what_a_run_left_behind_is_done_as_it_did_it(tmp_path: Path) -> None:
    log = at(tmp_path)
    assert left_behind(log, None, None) is None
    first = take_term(log, "a", "job", instances=3, reading={"cores": "1"})
    assert left_behind(log, None, first) is None, "nothing was begun"

    begun(log, 0)
    redo = left_behind(log, None, first)
    assert redo == Redo(1, {"cores": "1"}, 3, since=1)
    second = settle_term(log, take_term(log, "b", "job", instances=5, reading={"cores": "8"}), redo)
    assert left_behind(log, None, second) == redo, "the second died in it too"

    latest = Manifest(1, 0, False, 0, RoutingTable.even(1, 8, 4), {}, {}, term=second.number)
    begun(log, 1)
    assert left_behind(log, latest, second) == Redo(2, {"cores": "8"}, 4, since=2), "it was rescaled to 4 meanwhile"


def test_an_intent_of_a_run_that_was_taken_over_does_not_count(tmp_path: Path) -> None:
    log = at(tmp_path)
    first = take_term(log, "a", "job")
    second = take_term(log, "b", "job")

    log.intend(1, 1000, term=first.number)
    assert left_behind(log, None, second) is None
    log.intend(1, 1000, term=second.number)
    assert left_behind(log, None, second) == Redo(1, {}, 1, since=second.number)


def test_a_run_that_was_not_ready_has_left_nothing_behind(tmp_path: Path) -> None:
    log = at(tmp_path)
    first = settle_term(log, take_term(log, "a", "job"), None)
    second = take_term(log, "b", "job")
    third = take_term(log, "c", "job")

    assert term_before(log, third.number) == first
    assert term_before(log, first.number) is None
    ready = settle_term(log, second, Redo(1, {}, 1))
    assert term_before(log, third.number) == ready


@pytest.mark.parametrize(
    ("redo", "latest", "wanted"),
    [
        (None, None, True),
        (None, (4, 1), True),
        (None, (5, 2), False),
        # It redoes epoch 5, at the time that had; only the one after it comes at a time of this run.
        (5, (4, 1), True),
        (5, (5, 2), True),
        (5, (6, 2), False),
    ],
)
def test_a_run_tells_between_which_epochs_the_job_was_away(
    tmp_path: Path, redo: int | None, latest: tuple[int, int] | None, wanted: bool
) -> None:
    log = at(tmp_path)
    term = settle_term(log, take_term(log, "run", "job", above=1), Redo(redo, {}, 1) if redo else None)
    manifest = None
    if latest is not None:
        epoch, number = latest
        manifest = Manifest(epoch, epoch, False, 0, RoutingTable.even(1, 1, 1), {}, {}, term=number)

    assert resumes(term, manifest) is wanted
