"""A start meets a run that is alive, or another start: it goes on from what is there when its term is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.directory import LocalDirectory
from ferryman._log.disk import Disk
from ferryman._log.term import Redo, Term, intent_of, take_term
from ferryman._model.errors import SinkMissing
from ferryman._model.records import JobCard, Manifest, RoutingTable
from ferryman._spark.sinks import none
from ferryman._spark.stream import Output
from ferryman._spark.takeover import take_over
from ferryman._testing.troubled import TroubledDisk

CARD = JobCard("1", "job", 4, {})


class Met:
    """A checkpoint, and what happens there just before a start makes a call for the first time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = Checkpoint(LocalDirectory(root))

    def start(self, cores: str, *, locked: bool = False) -> tuple[Term, Manifest | None]:
        return self._start(self.log, cores, locked)

    def start_while(
        self, what: str, folder: str, happens: Callable[[], object], *, locked: bool = False
    ) -> tuple[Term, Manifest | None]:
        left = [happens]

        def watch(call: str, path: str) -> None:
            if call == what and f"/{folder}" in path and left:
                left.pop()()

        disk = TroubledDisk(Disk(), watcher=watch)
        found = self._start(Checkpoint(LocalDirectory(self.root, disk=disk)), "late", locked)
        assert not left, "it did not come to that"
        return found

    def _start(self, log: Checkpoint, cores: str, locked: bool) -> tuple[Term, Manifest | None]:
        outputs = [Output(None, none())]
        return take_over(log, CARD, outputs, instances=1, reading={"cores": cores}, locked=locked)

    def begin(self, batch: int) -> None:
        self.log.directory.write(f"spark/offsets/{batch}", b"v1\n{}\n1")

    def commit(self, epoch: int, term: int) -> None:
        routing = RoutingTable.even(1, 4, 1)
        self.log.commit(Manifest(epoch, epoch - 1, False, 0, routing, {}, {}, offsets=(1,), term=term))
        self.log.directory.write(f"spark/commits/{epoch - 1}", b"v1\n{}")


def test_a_start_that_slept_finds_what_the_start_that_passed_it_has_begun(tmp_path: Path) -> None:
    met = Met(tmp_path)

    def pass_it() -> None:
        term, _ = met.start("first")
        met.log.intend(1, 1000, term=term.number)

    term, _ = met.start_while("link", "terms/", pass_it)

    assert term.number == 2
    assert term.redo == Redo(1, {"cores": "first"}, 1, since=1)


def test_what_a_run_begins_while_it_is_taken_over_is_done_as_that_run_reads(tmp_path: Path) -> None:
    met = Met(tmp_path)
    met.start("first")

    term, _ = met.start_while("link", "terms/", lambda: met.begin(0))

    assert term.redo == Redo(1, {"cores": "first"}, 1, since=1)


def test_what_was_begun_is_found_though_a_start_in_between_died(tmp_path: Path) -> None:
    met = Met(tmp_path)
    met.start("first")
    take_term(met.log, "dies", "job", reading={"cores": "dies"})
    met.begin(0)

    term, _ = met.start("third")

    assert term.redo == Redo(1, {"cores": "first"}, 1, since=1)


def test_an_intent_that_came_too_late_says_nothing_of_what_another_run_has_begun(tmp_path: Path) -> None:
    met = Met(tmp_path)
    slept, _ = met.start("sleeps")
    met.start("dies")
    met.begin(0)
    # It had looked before it fell asleep, and wakes up now.
    met.log.intend(1, 1000, term=slept.number, silent=True)

    term, _ = met.start("third")
    again, _ = met.start("fourth")

    assert term.redo == again.redo == Redo(1, {"cores": "dies"}, 1, since=2)
    assert intent_of(met.log, term) is None
    assert intent_of(met.log, again) is None


def test_what_a_run_has_written_down_counts_for_all_who_do_it_again(tmp_path: Path) -> None:
    met = Met(tmp_path)
    first, _ = met.start("first")
    met.log.intend(1, 1000, term=first.number, silent=True)

    for name in ("second", "third"):
        term, _ = met.start(name)
        intent = intent_of(met.log, term)
        assert intent is not None
        assert (intent.epoch, intent.time_ms, intent.silent) == (1, 1000, True)


def test_a_sink_that_is_left_out_is_missed_for_an_epoch_that_is_committed_during_the_start(tmp_path: Path) -> None:
    met = Met(tmp_path)
    running, _ = met.start("first")

    def go_on() -> None:
        sinks = {"parquet:1": {"told": True, "written": {}}}
        routing = RoutingTable.even(1, 4, 1)
        met.begin(0)
        met.log.commit(Manifest(1, 0, False, 0, routing, {}, {}, sinks, offsets=(1,), term=running.number))

    with pytest.raises(SinkMissing, match="was not told"):
        met.start_while("link", "terms/", go_on)


def test_what_sinks_were_told_of_an_epoch_does_not_hold_for_that_epoch_done_again(tmp_path: Path) -> None:
    met = Met(tmp_path)
    sinks = {"parquet:1": {"told": True, "written": {}}}
    met.begin(0)
    met.log.commit(Manifest(1, 0, False, 0, RoutingTable.even(1, 4, 1), {}, {}, sinks, offsets=(1,), term=7))

    # Of a run that slept while a backup was restored, and ended in order when the next one had done the epoch again.
    met.log.tell(1, 5)
    with pytest.raises(SinkMissing, match="was not told"):
        met.start("next")
    met.log.tell(1, 7)
    met.start("next")


def test_epochs_that_are_committed_during_a_start_are_not_taken_for_lost_ones(tmp_path: Path) -> None:
    for number, (what, folder) in enumerate([("list", "spark/offsets"), ("list", "snapshots"), ("link", "terms/")]):
        for locked in (False, True):
            met = Met(tmp_path / f"{number}-{locked}")
            running, _ = met.start("first")

            def go_on(met: Met = met, running: Term = running) -> None:
                for epoch in (1, 2):
                    met.begin(epoch - 1)
                    met.commit(epoch, running.number)
                met.log.intend(3, 1000, term=running.number)

            term, latest = met.start_while(what, folder, go_on, locked=locked)

            assert latest is not None
            assert latest.epoch == 2
            assert term.redo == Redo(3, {"cores": "first"}, 1, since=running.number)
