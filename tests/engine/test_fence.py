"""What a run writes once another has taken over: nothing, and it says why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from readings import Readings
from written_log import KEY, STATE, local_log

from ferryman._engine.executor import one_after_the_other
from ferryman._engine.fence import Fenced
from ferryman._engine.outputs import Outputs
from ferryman._log.check.verify import verify
from ferryman._log.files.cards import card_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.term import Term, take_term
from ferryman._log.fold.retention import prune
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.card import JobCard
from ferryman._model.errors import CheckpointInUse, Superseded
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._os.disk import Disk
from ferryman._spark.sinks.sinks import MemorySink, foreach
from ferryman._testing.faulty_disk import FaultyDisk

CARD = JobCard("1", "job", 4, {})


def manifest(term: int) -> Manifest:
    return Manifest(
        epoch=1,
        batch=0,
        silent=False,
        time_ms=0,
        routing=RoutingTable.even(1, 4, 1),
        operators={},
        tables={},
        term=term,
    )


class Computed:
    """Rows that tasks give."""

    rows, table = (1,), None

    def compute(self) -> None:
        pass

    def is_empty(self) -> bool:
        return False


def fenced(checkpoint: Checkpoint, term: Term) -> Fenced:
    return Fenced(checkpoint, CARD, Outputs([], checkpoint, None, term=term, fsync=False), term)


def test_a_run_that_falls_asleep_between_its_look_and_its_commit_is_told_that_it_was_taken_over(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    log.create(CARD)
    first = take_term(log, "first", "job")

    def watch(what: str, path: str) -> None:
        if what == "link" and "/manifests/" in path and not log.epochs():
            second = take_term(log, "second", "job")
            fenced(log, second).commit(manifest(second.number))

    late = Checkpoint(LocalDirectory(tmp_path, disk=FaultyDisk(Disk(), watcher=watch)))
    with pytest.raises(Superseded, match="taken over by run 2"):
        fenced(late, first).commit(manifest(first.number))

    assert log.manifest(1).term == 2


def test_functions_are_not_called_by_a_run_that_was_taken_over_while_its_tasks_ran(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    log.create(CARD)
    first, calls = take_term(log, "first", "job"), list[int]()
    sink = foreach(lambda rows, number: calls.append(number))
    over = Fenced(log, CARD, Outputs([sink], log, None, term=first, fsync=False), first)

    def taken_over(tasks: Sequence[Callable[[], object]]) -> None:
        one_after_the_other(tasks)
        take_term(log, "second", "job")

    with pytest.raises(Superseded, match="taken over by run 2"):
        over.write([Computed()], 1, silent=False, side_by_side=taken_over)

    assert not calls


def test_a_manifest_that_comes_when_its_epoch_is_forgotten_is_taken_back(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    term = take_term(log.checkpoint, "first", "job")
    late = fenced(log.checkpoint, term)
    log.commit({"Counts": {"a": 1}})
    mine = replace(log.checkpoint.manifest(1), term=term.number)
    # It falls asleep after its look. Another run commits the epoch, the next ones, and forgets the first.
    take_term(log.checkpoint, "second", "job")
    for n in (2, 3):
        log.commit({"Counts": {"a": n}})
    write_snapshot(log.checkpoint, 2)
    prune(log.checkpoint, 2)
    assert log.checkpoint.epochs() == [2, 3]
    log.checkpoint.commit(mine)
    assert not verify(log.checkpoint).sound

    with pytest.raises(Superseded):
        late.tell(mine)

    assert log.checkpoint.epochs() == [2, 3]
    assert verify(log.checkpoint).sound


def test_so_is_one_of_an_epoch_without_data(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    term = take_term(log.checkpoint, "first", "job")
    late = fenced(log.checkpoint, term)
    log.commit({"Counts": {}})
    mine = replace(log.checkpoint.manifest(1), term=term.number, tables={"Counts": ()})
    take_term(log.checkpoint, "second", "job")
    for n in (2, 3, 4):
        log.commit({"Counts": {"a": n}})
    write_snapshot(log.checkpoint, 3)
    prune(log.checkpoint, 3)
    log.checkpoint.commit(mine)
    assert not verify(log.checkpoint).sound

    with pytest.raises(Superseded):
        late.tell(mine)

    assert log.checkpoint.epochs() == [3, 4]
    assert verify(log.checkpoint).sound


def test_a_manifest_of_another_run_is_not_taken_back(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    term = take_term(log.checkpoint, "first", "job")
    late = fenced(log.checkpoint, term)
    log.commit({"Counts": {"a": 1}})
    # A backup was restored, and the epoch done again: by now the name is another's, and its own deltas are gone.
    theirs = log.checkpoint.manifest(1)
    take_term(log.checkpoint, "second", "job")
    gone = [replace(ref, file=ref.file.replace("Counts", "Gone")) for ref in theirs.tables["Counts"]]
    mine = replace(theirs, term=term.number, tables={"Counts": tuple(gone)})

    with pytest.raises(Superseded):
        late.tell(mine)

    assert log.checkpoint.manifest(1) == theirs
    assert verify(log.checkpoint).sound


def test_a_manifest_that_others_go_on_from_stays_when_its_run_is_over(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    late = fenced(log.checkpoint, take_term(log.checkpoint, "first", "job"))
    log.commit({"Counts": {"a": 1}})
    take_term(log.checkpoint, "second", "job")
    log.commit({"Counts": {"a": 2}})
    write_snapshot(log.checkpoint, 2)

    with pytest.raises(Superseded):
        late.tell(log.checkpoint.manifest(1))

    assert log.checkpoint.epochs() == [1, 2]


def test_a_manifest_whose_predecessor_is_forgotten_by_now_stays(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    term = take_term(log.checkpoint, "first", "job")
    late = fenced(log.checkpoint, term)
    for number in (1, 2):
        log.commit({"Counts": {"a": number}})
    mine = replace(log.checkpoint.manifest(2), term=term.number)
    log.checkpoint.record_again("manifests/000000000002.json", mine.json())
    take_term(log.checkpoint, "second", "job")
    write_snapshot(log.checkpoint, 2)
    prune(log.checkpoint, 2)

    with pytest.raises(Superseded):
        late.tell(mine)

    assert log.checkpoint.epochs() == [2]


def test_a_card_that_came_too_late_is_replaced_by_that_of_the_run_which_commits(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    log.create(CARD)
    run = fenced(log, take_term(log, "second", "job"))
    # Of a run that had looked before it fell asleep.
    log.create(replace(CARD, tables={"Counts": card_of("Counts", KEY, STATE)}))

    run.commit(manifest(1))

    assert log.card() == CARD


class Looks(Fenced):
    """Counts its looks."""

    taken: tuple[str, ...] = ()

    def look(self, before: str) -> None:
        self.taken += (before,)
        super().look(before)


def test_a_commit_takes_one_look_also_where_the_card_is_new(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    log.create(replace(CARD, tables={"Counts": card_of("Counts", KEY, STATE)}))
    term = take_term(log, "first", "job")
    run = Looks(log, CARD, Outputs([], log, None, term=term, fsync=False), term)

    run.commit(manifest(1))

    assert log.card() == CARD
    assert run.taken == ("manifest",)


def test_a_run_that_is_the_newest_is_told_that_the_epoch_is_there(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    log.create(CARD)
    first, second = take_term(log, "first", "job"), take_term(log, "second", "job")
    log.commit(manifest(first.number))

    with pytest.raises(CheckpointInUse, match="committed by another job"):
        fenced(log, second).commit(manifest(second.number))


def test_every_step_of_a_run_that_was_taken_over_is_refused(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    log.create(CARD)
    over = fenced(log, take_term(log, "first", "job"))
    take_term(log, "second", "job")

    steps = [
        lambda: over.intend(1, 1000),
        lambda: over.write([], 1, silent=False, side_by_side=one_after_the_other),
        lambda: over.commit(manifest(1)),
        lambda: over.tell(manifest(1)),
    ]
    for step in steps:
        with pytest.raises(Superseded):
            step()

    over.close()
    assert log.intent() is None
    assert log.epochs() == []
    assert log.told() == (0, None)


class TakenOver(MemorySink):
    """A memory sink that fails in its second epoch, as another run takes over meanwhile."""

    taken_over: Callable[[], object]

    def write(self, rows, epoch):
        if epoch == 2:
            self.taken_over()
            raise ConnectionError("somebody else is connected")
        return super().write(rows, epoch)


def test_whatever_fails_in_a_run_that_was_taken_over_the_reason_it_gives_is_that(spark, tmp_path):
    sink = TakenOver()
    job = Readings(spark, tmp_path, sink=sink)
    sink.taken_over = lambda: take_term(job.log, "second", "readings")

    error = job.fails(Superseded, "taken over by run 2")

    assert isinstance(error.__cause__, ConnectionError)
