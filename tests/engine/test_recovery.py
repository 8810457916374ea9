"""A start meets a run that is alive, or another start: it goes on from what is there when its term is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ferryman._engine.recovery import Takeover, begin_run, left_behind, resumes, take_over
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.term import Redo, Term, settle_term, take_term
from ferryman._log.spark_log.agreement import pending_batch
from ferryman._model.card import JobCard
from ferryman._model.errors import CorruptCheckpoint, SinkMissing
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman._os.disk import Disk
from ferryman._spark.sinks.sinks import none
from ferryman._testing.faulty_disk import FaultyDisk
from ferryman._testing.power_cut import power_cut
from ferryman._testing.unsynced_disk import UnsyncedDisk

CARD = JobCard("1", "job", 4, {})


class Met:
    """A checkpoint, and what happens there just before a start makes a call for the first time."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self.disk = disk or Disk()
        self.log = Checkpoint(LocalDirectory(root, disk=self.disk))

    def start(self, cores: str, *, locked: bool = False) -> Takeover:
        return self._start(self.log, cores, locked)

    def start_while(
        self, what: str, folder: str, happens: Callable[[], object], *, locked: bool = False, fsync: bool = False
    ) -> Takeover:
        left = [happens]

        def watch(call: str, path: str) -> None:
            if call == what and f"/{folder}" in path and left:
                left.pop()()

        disk = FaultyDisk(self.disk, watcher=watch)
        found = self._start(Checkpoint(LocalDirectory(self.root, fsync=fsync, disk=disk)), "late", locked)
        assert not left, "it did not come to that"
        return found

    def _start(self, log: Checkpoint, cores: str, locked: bool) -> Takeover:
        return take_over(log, CARD, [none()], instances=1, reading={"cores": cores}, locked=locked)

    def begin(self, batch: int) -> None:
        begin(self.log, batch)

    def commit(self, epoch: int, term: int) -> None:
        routing = RoutingTable.even(1, 4, 1)
        self.log.commit(
            Manifest(
                epoch=epoch,
                batch=epoch - 1,
                silent=False,
                time_ms=0,
                routing=routing,
                operators={},
                tables={},
                offsets=(1,),
                term=term,
            )
        )
        self.log.directory.write(f"spark/commits/{epoch - 1}", b"v1\n{}")


def test_a_start_that_slept_finds_what_the_start_that_passed_it_has_begun(tmp_path: Path) -> None:
    met = Met(tmp_path)

    def pass_it() -> None:
        term = met.start("first").term
        met.log.intend(1, 1000, term=term.number)

    term = met.start_while("link", "terms/", pass_it).term

    assert term.number == 2
    assert term.redo == Redo(1, {"cores": "first"}, 1, since=1)


@pytest.mark.parametrize("seed", range(8))
def test_what_a_start_goes_on_from_survives_a_power_cut_though_its_run_had_no_time_to_sync_it(
    tmp_path: Path, seed: int
) -> None:
    root, journal = tmp_path / "root", tmp_path / "journal"
    (root / "manifests").mkdir(parents=True)
    disk = UnsyncedDisk(root, journal)
    met = Met(root, disk)
    first = met.start("first").term

    def commits() -> None:
        met.begin(0)
        met.commit(1, first.number)

    found = met.start_while("link", "terms/", commits, fsync=True)
    assert found.latest is not None
    disk.close()
    power_cut(root, journal, seed)

    assert Checkpoint(LocalDirectory(root)).epochs() == [1], "the sinks are told of it next"


def test_what_a_run_begins_while_it_is_taken_over_is_done_as_that_run_reads(tmp_path: Path) -> None:
    met = Met(tmp_path)
    met.start("first")

    term = met.start_while("link", "terms/", lambda: met.begin(0)).term

    assert term.redo == Redo(1, {"cores": "first"}, 1, since=1)


def test_what_was_begun_is_found_though_a_start_in_between_died(tmp_path: Path) -> None:
    met = Met(tmp_path)
    met.start("first")
    take_term(met.log, "dies", "job", reading={"cores": "dies"})
    met.begin(0)

    term = met.start("third").term

    assert term.redo == Redo(1, {"cores": "first"}, 1, since=1)


def test_an_intent_that_came_too_late_says_nothing_of_what_another_run_has_begun(tmp_path: Path) -> None:
    met = Met(tmp_path)
    slept = met.start("sleeps").term
    met.start("dies")
    met.begin(0)
    # It had looked before it fell asleep, and wakes up now.
    met.log.intend(1, 1000, term=slept.number, silent=True)

    third = met.start("third")
    again = met.start("fourth")

    assert third.term.redo == again.term.redo == Redo(1, {"cores": "dies"}, 1, since=2)
    assert third.intent is None
    assert again.intent is None
    assert again.pending, "Spark begins with the batch"


def test_an_intent_that_came_too_late_is_not_in_the_place_of_a_newer_runs(tmp_path: Path) -> None:
    met = Met(tmp_path)
    slept = met.start("sleeps").term
    second = met.start("dies").term
    met.log.intend(1, 2000, term=second.number, silent=True, held={3})
    # It had looked before it fell asleep, and wakes up now.
    met.log.intend(1, 1000, term=slept.number, silent=True)

    for name in ("third", "fourth"):
        found = met.start(name)
        assert found.term.redo == Redo(1, {"cores": "dies"}, 1, since=2)
        assert found.silent_first is not None
        assert (found.silent_first.time_ms, found.silent_first.held) == (2000, {3})


def test_an_epoch_that_many_runs_die_in_is_done_as_it_was_begun(tmp_path: Path) -> None:
    met = Met(tmp_path)
    first = met.start("first").term
    met.log.intend(1, 1000, term=first.number, silent=True)

    for number in range(30):
        assert met.start(str(number)).silent_first is not None


def test_an_intent_of_an_earlier_version_is_found(tmp_path: Path) -> None:
    met = Met(tmp_path)
    first = met.start("first").term
    met.log.record_again("intent.json", {"epoch": 1, "time_ms": 7, "silent": True, "held": [], "term": first.number})

    found = met.start("next").silent_first
    assert found is not None
    assert found.time_ms == 7


def test_of_intents_that_say_nothing_any_more_only_the_newest_is_kept(tmp_path: Path) -> None:
    met = Met(tmp_path)
    for epoch in (1, 2, 3):
        term = met.start(str(epoch)).term
        met.begin(epoch - 1)
        met.log.intend(epoch, 1000, term=term.number)
        met.commit(epoch, term.number)
    met.start("next")

    assert met.log.directory.list("intents") == ["000000000003.json"]
    assert "intent.json" not in met.log.directory.list("")


def test_what_a_run_has_written_down_counts_for_all_who_do_it_again(tmp_path: Path) -> None:
    met = Met(tmp_path)
    first = met.start("first").term
    met.log.intend(1, 1000, term=first.number, silent=True)

    for name in ("second", "third"):
        takeover = met.start(name)
        intent = takeover.silent_first
        assert intent is not None, "it comes first"
        assert (intent.epoch, intent.time_ms, intent.silent) == (1, 1000, True)
        assert takeover.begun(1) == intent
        assert takeover.begun(2) is None
        assert not takeover.pending


def test_a_sink_that_is_left_out_is_missed_for_an_epoch_that_is_committed_during_the_start(tmp_path: Path) -> None:
    met = Met(tmp_path)
    running = met.start("first").term

    def go_on() -> None:
        sinks = {"parquet:1": {"told": True, "written": {}}}
        routing = RoutingTable.even(1, 4, 1)
        met.begin(0)
        met.log.commit(
            Manifest(
                epoch=1,
                batch=0,
                silent=False,
                time_ms=0,
                routing=routing,
                operators={},
                tables={},
                sinks=sinks,
                offsets=(1,),
                term=running.number,
            )
        )

    with pytest.raises(SinkMissing, match="was not told"):
        met.start_while("link", "terms/", go_on)


def test_what_sinks_were_told_of_an_epoch_does_not_hold_for_that_epoch_done_again(tmp_path: Path) -> None:
    met = Met(tmp_path)
    sinks = {"parquet:1": {"told": True, "written": {}}}
    met.begin(0)
    met.log.commit(
        Manifest(
            epoch=1,
            batch=0,
            silent=False,
            time_ms=0,
            routing=RoutingTable.even(1, 4, 1),
            operators={},
            tables={},
            sinks=sinks,
            offsets=(1,),
            term=7,
        )
    )

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
            running = met.start("first").term

            def go_on(met: Met = met, running: Term = running) -> None:
                for epoch in (1, 2):
                    met.begin(epoch - 1)
                    met.commit(epoch, running.number)
                met.log.intend(3, 1000, term=running.number)

            takeover = met.start_while(what, folder, go_on, locked=locked)

            assert takeover.latest is not None
            assert takeover.latest.epoch == 2
            assert takeover.term.redo == Redo(3, {"cores": "first"}, 1, since=running.number)


def test_a_run_begins_with_the_card_that_is_there_when_its_term_is_taken(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    seen: list[int] = []
    left = tmp_path / "deltas" / ".half-written.0123456789ab"
    left.parent.mkdir()
    left.touch()

    def declared() -> JobCard:
        seen.append(len(log.numbers("terms")))
        return JobCard(str(len(seen)), "job", 4, {})

    card, _ = begin_run(log, declared, [none()], instances=1, usual=1, reading={}, locked=True)

    assert seen == [0, 1], "before the term is taken, and after"
    assert card.id == "2"
    assert not left.exists()


@pytest.mark.parametrize(("asked", "usual", "first"), [(None, 3, 3), (None, 64, 4), (2, 3, 2)])
def test_a_job_has_the_instances_that_are_asked_for_or_those_it_last_had(
    tmp_path: Path, asked: int | None, usual: int, first: int
) -> None:
    met = Met(tmp_path)

    def start(instances: int | None, usual: int) -> Takeover:
        return take_over(met.log, CARD, [none()], instances=instances, usual=usual, reading={}, locked=False)

    takeover = start(asked, usual)
    assert takeover.routing.instances == takeover.term.instances == first
    met.begin(0)
    met.commit(1, takeover.term.number)

    assert start(None, usual).routing.instances == 1, "what the newest epoch had"
    assert start(4, usual).routing.instances == 4


def test_what_was_asked_for_comes_after_the_epoch_that_is_done_again(tmp_path: Path) -> None:
    met = Met(tmp_path)
    met.start("first")
    met.begin(0)

    takeover = take_over(met.log, CARD, [none()], instances=3, reading={}, locked=False)

    assert takeover.routing.instances == 1, "as it was begun"
    assert [takeover.instances_after(epoch) for epoch in (0, 1, 2)] == [None, 3, None]


def begin(log: Checkpoint, batch: int) -> None:
    """Let Spark have begun a micro-batch."""
    log.directory.write(f"spark/offsets/{batch}", b"v1\n{}\n1")


def found_behind(log: Checkpoint, latest: Manifest | None, before: Term | None) -> Redo | None:
    return left_behind(latest, before, batch=pending_batch(log), intents=log.intents().values())


def test_what_a_run_left_behind_is_done_as_it_did_it(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    assert found_behind(log, None, None) is None
    first = take_term(log, "a", "job", instances=3, reading={"cores": "1"})
    assert found_behind(log, None, first) is None, "nothing was begun"

    begin(log, 0)
    redo = found_behind(log, None, first)
    assert redo == Redo(1, {"cores": "1"}, 3, since=1)
    second = settle_term(log, take_term(log, "b", "job", instances=5, reading={"cores": "8"}), redo)
    assert found_behind(log, None, second) == redo, "the second died in it too"

    latest = Manifest(
        epoch=1,
        batch=0,
        silent=False,
        time_ms=0,
        routing=RoutingTable.even(1, 8, 4),
        operators={},
        tables={},
        term=second.number,
    )
    begin(log, 1)
    assert found_behind(log, latest, second) == Redo(2, {"cores": "8"}, 4, since=2), "it was rescaled to 4 meanwhile"


def test_an_intent_of_a_run_that_was_taken_over_does_not_count(tmp_path: Path) -> None:
    log = Checkpoint(LocalDirectory(tmp_path))
    first = take_term(log, "a", "job")
    second = take_term(log, "b", "job")

    log.intend(1, 1000, term=first.number)
    assert found_behind(log, None, second) is None
    log.intend(1, 1000, term=second.number)
    assert found_behind(log, None, second) == Redo(1, {}, 1, since=second.number)


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
    log = Checkpoint(LocalDirectory(tmp_path))
    term = settle_term(log, take_term(log, "run", "job", above=1), Redo(redo, {}, 1) if redo else None)
    manifest = None
    if latest is not None:
        epoch, number = latest
        manifest = Manifest(
            epoch=epoch,
            batch=epoch,
            silent=False,
            time_ms=0,
            routing=RoutingTable.even(1, 1, 1),
            operators={},
            tables={},
            term=number,
        )

    assert resumes(term, manifest) is wanted


@pytest.mark.parametrize("begun", ["batch", "intent"])
@pytest.mark.parametrize("locked", [True, False])
def test_a_damaged_term_is_refused_while_an_epoch_waits_that_it_may_have_begun(
    tmp_path: Path, begun: str, locked: bool
) -> None:
    met = Met(tmp_path)
    met.start("first")
    met.start("second")
    if begun == "batch":
        met.begin(0)
    else:
        met.log.intend(1, 1000, term=2)
        met.log.intend(1, 900, term=1)
    newest = tmp_path / "terms" / "000000000002.json"
    whole = newest.read_text()
    newest.write_text(whole[: len(whole) // 2])

    for _ in range(2):
        with pytest.raises(CorruptCheckpoint, match=r"terms/000000000002\.json .* epoch 1, which was begun"):
            met.start("third", locked=locked)
    assert met.log.numbers("terms") == [1, 2], "a start that is refused takes no term"
    assert begun == "batch" or len(met.log.intents()) == 2

    newest.write_text(whole)
    assert met.start("third", locked=locked).term.redo == Redo(1, {"cores": "second"}, 1, since=2)


def test_a_damaged_term_does_not_matter_where_no_epoch_waits(tmp_path: Path) -> None:
    met = Met(tmp_path)
    running = met.start("first").term
    met.begin(0)
    met.commit(1, running.number)
    (tmp_path / "terms" / "000000000001.json").write_text("{}")

    assert met.start("next").term.redo is None
