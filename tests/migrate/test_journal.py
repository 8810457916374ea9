"""What happens to plans of a real coordinator is written down, and leads to the same machine when it is told again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from one_host import OneHost

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._migrate import coordinator as coordinators
from ferryman._migrate import journal as journals
from ferryman._migrate.coordinator import Coordinator
from ferryman._migrate.journal import Journal
from ferryman._migrate.layout import Launch
from ferryman._migrate.machine import Migration, Phase, replay
from ferryman._migrate.options import ChangeOptions
from ferryman._migrate.plan import Plan
from ferryman._migrate.plan_events import Arrived, EpochBegan, EpochEnded, GivenUp, Prepared
from ferryman._migrate.planning import moved, rescaled
from ferryman._migrate.reconfiguration import Preview, Reconfiguration
from ferryman._migrate.strategies import STRATEGIES
from ferryman._model.card import JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.held_rows import HeldRows
from ferryman._model.manifest import Manifest
from ferryman._model.receipt import HeavyKey, Receipt
from ferryman._model.routing import RoutingTable

GROUPS = 8
EVERY = pytest.mark.parametrize("how", [*STRATEGIES, "push:size"])


def groups_of(table: RoutingTable, instance: int) -> list[int]:
    return [group for group, owner in enumerate(table.owner) if owner == instance]


class Stream:
    """Epochs without Spark: they begin, rows of groups that wait are held, and some of them fail."""

    def __init__(self, place: str, *, isolate: bool = False, keeps_events: bool = True) -> None:
        self.hot: tuple[HeavyKey, ...] = ()
        self.wanted = threading.Event()
        self.latest: Manifest | None = None
        self.tables: list[RoutingTable] = []
        options = ChangeOptions(isolate=isolate)
        self.coordinator = Coordinator(
            OneHost(RoutingTable.even(1, GROUPS, 2)),
            Checkpoint(directory(place)),
            None,
            Launch.of(place, "run", JobCard("1", "job", GROUPS, {}), options),
            options,
            wake=self.wanted.set,
        )
        self.coordinator.keeps_events = keeps_events

    def epoch(self, *, commits: bool = True) -> None:
        with self.under_way(commits=commits):
            pass

    @contextmanager
    def under_way(self, *, commits: bool = True) -> Iterator[None]:
        layout, held = self.coordinator.begin()
        yield
        number = 1 + (self.latest.epoch if self.latest else 0)
        table = layout.routing
        if commits:
            groups = tuple(sorted(held))
            rows = HeldRows(DeltaRef("held", 0, len(groups), 1, ""), number, groups, (1,) * len(groups))
            waiting = {"A": (rows,)} if held else {}
            self.latest = Manifest(
                epoch=number,
                batch=number,
                silent=False,
                time_ms=number * 1000,
                routing=table,
                operators={},
                tables={},
                held=waiting,
            )
            self.tables.append(table)
        about = {"operator": "A", "epoch": number, "host": "here", "rows": 1}
        told = [
            Receipt(
                **about,
                instance=instance,
                load={group: 1100 if self.hot and not group else 100 for group in groups_of(table, instance)},
                heavy=self.hot if instance == table.owner[0] else (),
            )
            for instance in range(table.instances)
        ]
        self.coordinator.ended(layout, self.latest, committed=commits, receipts=told if commits else ())

    def until_over(self, change: Reconfiguration, *, fails: int = 0) -> None:
        for number in count(1):
            if change.wait(0.005) or change.over:
                return
            self.epoch(commits=not fails or number % fails != 0)


@pytest.fixture
def stream(tmp_path) -> Iterator[Stream]:
    stream = Stream(str(tmp_path / "c"))
    stream.epoch()
    yield stream
    stream.coordinator.release()


def assert_replayed(stream: Stream) -> None:
    for journal in stream.coordinator.journals():
        start, events = journal.events()
        assert replay(start, events) == journal.machine
        assert start == Migration.of(start.plan), "all of it was kept"


@EVERY
def test_every_strategy_can_be_told_again_whatever_epochs_fail(stream: Stream, how: str) -> None:
    for instances in (3, 2, 4):
        change = stream.coordinator.request("rescale", lambda table, at, n=instances: rescaled(table, n), how)
        stream.until_over(change, fails=3)

        assert change.phase == "done", change.reason
        assert stream.coordinator.table.instances == instances
    versions = [table.version for table in stream.tables]
    assert versions == sorted(versions)
    assert stream.wanted.is_set()
    assert_replayed(stream)


@EVERY
def test_what_is_given_up_can_be_told_again(stream: Stream, how: str) -> None:
    before = stream.coordinator.table
    change = stream.coordinator.request("move", lambda table, at: moved(table, {0: 1}), how)
    stream.coordinator.abort("asked to")
    stream.until_over(change)

    assert (change.phase, change.reason) == ("aborted", "asked to")
    assert stream.coordinator.table == before
    (journal,) = stream.coordinator.journals()
    assert GivenUp("asked to") in journal.events()[1]
    assert_replayed(stream)


@EVERY
def test_groups_that_need_not_be_copied_arrive_all_at_once(stream: Stream, how: str) -> None:
    change = stream.coordinator.request("rescale", lambda table, at: rescaled(table, 8), how)
    stream.until_over(change)

    (journal,) = stream.coordinator.journals()
    arrived = [event for event in journal.events()[1] if isinstance(event, Arrived)]
    moves = [move.group for step in journal.machine.plan.steps for move in step]
    assert sorted(group for event in arrived for group in event.groups) == sorted(moves)
    assert len(arrived) == len(journal.machine.plan.steps)


@pytest.mark.parametrize(("commits", "phase"), [(True, "done"), (False, "aborted")])
def test_an_epoch_that_is_under_way_when_the_job_ends_says_itself_how_it_ended(
    stream: Stream, commits: bool, phase: str
) -> None:
    change = stream.coordinator.request("move", lambda table, at: moved(table, {0: 1}), "push")
    (journal,) = stream.coordinator.journals()
    journal.wait_for(lambda: journal.machine.phase is Phase.SWITCH)
    with stream.under_way(commits=commits):
        stream.coordinator.close("the job has ended")
        assert not change.over, "the epoch decides"

    assert change.phase == phase
    ends = [event for event in journal.events()[1] if isinstance(event, EpochEnded)]
    assert ends == [EpochEnded(commits)]
    assert_replayed(stream)


def test_what_becomes_of_a_hot_key_is_thought_about_on_no_epochs_time(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thinking: list[str] = []
    wish = coordinators.wish

    def noted(*args: Any) -> Any:
        thinking.append(threading.current_thread().name)
        return wish(*args)

    monkeypatch.setattr(coordinators, "wish", noted)
    stream = Stream(str(tmp_path / "c"), isolate=True)
    for _ in range(3):
        stream.epoch()
    assert not thinking, "nothing is hot"

    stream.hot = (HeavyKey(0, "k", 1000),)
    for number in count(1):
        assert number < 1000, "it is hot, and nobody isolates it"
        stream.epoch()
        if stream.coordinator.history():
            break
        time.sleep(0.001)
    stream.until_over(stream.coordinator.history()[0])

    assert set(thinking) == {"ferryman-hot-keys"}
    assert [pin.key for pin in stream.coordinator.table.pins] == ["k"]
    stream.coordinator.release()


def test_the_load_of_the_epoch_that_switches_is_told_of_its_own_table(stream: Stream) -> None:
    change = stream.coordinator.request("rescale", lambda table, at: rescaled(table, 4), "live")
    stream.until_over(change)

    assert change.switched_epoch is not None
    assert (
        stream.coordinator.load_history.epoch
        == stream.tables.index(stream.coordinator.table) + 1
        == change.switched_epoch
    )
    assert len(stream.coordinator.load_history.hosts) == 4


def test_what_plans_were_told_is_forgotten_when_they_are_over_and_very_old_plans_too(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "_MOST_PLANS", 3)
    stream = Stream(str(tmp_path / "c"), keeps_events=False)
    for number in range(5):
        change = stream.coordinator.request("move", lambda table, at, to=number % 2: moved(table, {0: 1 - to}), "live")
        stream.until_over(change)

    found = stream.coordinator.journals()
    assert [journal.shown for journal in found] == stream.coordinator.history()
    assert len(found) == 3
    assert found[-1].shown is change
    assert [journal.events() for journal in found] == [(journal.machine, ()) for journal in found]
    stream.coordinator.release()


def test_a_journal_that_is_full_begins_later_and_leads_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "_MOST_EVENTS", 3)
    before = RoutingTable.even(1, GROUPS, 2)
    plan = Plan.of(before, moved(before, {0: 1}), STRATEGIES["live"])
    changed = threading.Condition()
    shown = Reconfiguration(
        kind="move",
        preview=Preview(instances=(2, 2), moves=(), bytes=0, load=(1.0, 1.0)),
        strategy="live",
        _changed=changed,
        _abort=lambda why: None,
    )
    journal = Journal(plan, shown, changed, lambda instruction: None)
    for _ in range(5):
        journal.tell(EpochBegan())
        journal.tell(EpochEnded(committed=True))
    journal.tell(Prepared(plan))

    start, events = journal.events()
    assert len(events) == 3
    assert replay(start, events) == journal.machine
    assert shown.phase == "copy"
