"""What a run writes once another has taken over: nothing, and it says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from written_log import local_log

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.directory import LocalDirectory
from ferryman._log.disk import Disk
from ferryman._log.retention import prune
from ferryman._log.snapshot import write_snapshot
from ferryman._log.term import Term, take_term
from ferryman._log.verify import verify
from ferryman._model.errors import CheckpointInUse, Superseded
from ferryman._model.records import JobCard, Manifest, RoutingTable
from ferryman._spark.fenced import Fenced
from ferryman._spark.outputs import Outputs
from ferryman._testing.troubled import TroubledDisk

CARD = JobCard("1", "job", 4, {})


def manifest(term: int) -> Manifest:
    return Manifest(1, 0, False, 0, RoutingTable.even(1, 4, 1), {}, {}, term=term)


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

    late = Checkpoint(LocalDirectory(tmp_path, disk=TroubledDisk(Disk(), watcher=watch)))
    with pytest.raises(Superseded, match="taken over by run 2"):
        fenced(late, first).commit(manifest(first.number))

    assert log.manifest(1).term == 2


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
        lambda: over.write([], 1, silent=False),
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
