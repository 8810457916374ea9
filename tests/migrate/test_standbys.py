"""Who stands by for whom, from a routing table and where the instances are; and what a plan keeps them from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from one_host import OneHost

from ferryman._migrate.layout import InstanceHost, Launch
from ferryman._migrate.options import ChangeOptions
from ferryman._migrate.standbys import Standbys, standby_lanes
from ferryman._migrate.state_hosts import StateHosts
from ferryman._model.card import JobCard
from ferryman._model.routing import Pin, RoutingTable


def places(*hosts: str) -> dict[int, InstanceHost]:
    return {number: InstanceHost(host, f"at-{host}") for number, host in enumerate(hosts)}


def told(table: RoutingTable, at: dict[int, InstanceHost], count: int) -> dict[tuple[str, str], tuple[int, ...]]:
    return {(lane.source, lane.target): lane.groups for lane in standby_lanes(table, at, count)}


def test_all_instances_of_a_host_have_the_same_standby() -> None:
    assert told(RoutingTable.even(1, 8, 4), places("b", "a", "b", "a"), 1) == {
        ("at-b", "at-a"): (0, 1, 4, 5),
        ("at-a", "at-b"): (2, 3, 6, 7),
    }


def test_every_group_is_on_as_many_other_hosts_as_asked_for() -> None:
    table, at = RoutingTable.even(1, 12, 4), places("a", "b", "c", "d")

    for count in range(4):
        targets: dict[int, set[str]] = {group: set() for group in range(12)}
        for lane in standby_lanes(table, at, count):
            for group in lane.groups:
                assert lane.source == at[table.owner[group]].location
                targets[group].add(lane.target)
        assert {len(hosts) for hosts in targets.values()} == {count}


def test_there_are_no_more_standbys_than_other_hosts() -> None:
    assert told(RoutingTable.even(1, 2, 2), places("a", "b"), 5) == {
        ("at-a", "at-b"): (0,),
        ("at-b", "at-a"): (1,),
    }
    assert told(RoutingTable.even(1, 2, 2), places("a", "a"), 1) == {}
    assert told(RoutingTable.even(1, 2, 2), {}, 1) == {}


def test_who_owns_a_pinned_key_of_a_group_has_it_already() -> None:
    table = RoutingTable(1, 2, (0, 1), (Pin(0, 1, "k"),))

    assert told(table, places("a", "b"), 1) == {("at-b", "at-a"): (1,)}


def test_a_host_that_is_lost_changes_nothing_for_those_that_do_not_rest_on_it() -> None:
    table = RoutingTable.even(1, 4, 4)
    before = told(table, places("a", "b", "c", "d"), 1)
    after = told(RoutingTable(2, 4, (0, 1, 3, 3)), {**places("a", "b", "c", "d"), 2: InstanceHost("d", "at-d")}, 1)

    assert before[("at-a", "at-b")] == after[("at-a", "at-b")] == (0,)
    assert before[("at-b", "at-c")] == after[("at-b", "at-d")] == (1,)


class Asked(StateHosts):
    """State hosts that write down what they are asked for, and stop where a test wants to do something meanwhile."""

    def __init__(self) -> None:
        super().__init__(Launch.of("checkpoint", "run", JobCard("1", "job", 4, {}), ChangeOptions()), {})
        self.asked: list[str] = []
        self.at, self.go_on = threading.Event(), threading.Event()
        self.stops_at = ""

    def locate(self, *layouts: Any) -> list[dict[int, InstanceHost]]:
        self._ask("locate")
        return [places("a", "b", "c", "d") for _ in layouts]

    def bring(self, target: str, groups: tuple[int, ...], *rest: Any, **more: Any) -> Iterator[dict[str, int]]:
        self._ask(f"bring {target}")
        yield from ()

    def drop(self, location: str, groups: tuple[int, ...]) -> None:
        self._ask(f"drop {location} {groups}")

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what == self.stops_at:
            self.at.set()
            assert self.go_on.wait(10)


class Rounds:
    """Standbys whose epochs come when a test wants them."""

    def __init__(self, hosts: Asked) -> None:
        self.changed = threading.Condition()
        self.epoch, self.disturbed, self.closed, self.waits = 0, False, False, 0
        self.layout = OneHost(RoutingTable.even(1, 4, 4))
        self.standbys = Standbys(hosts, self.await_epoch, lambda: self.disturbed)
        self.standbys.keep(1)

    def await_epoch(self, seen: int) -> tuple[OneHost, int] | None:
        with self.changed:
            self.waits += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.closed or (self.epoch > seen and not self.disturbed))
            return None if self.closed else (self.layout, self.epoch)

    def change(self, **to: Any) -> None:
        with self.changed:
            self.__dict__.update(to)
            self.changed.notify_all()


def test_a_plan_that_begins_while_hosts_are_looked_for_finds_nothing_dropped_and_nothing_brought() -> None:
    hosts = Asked()
    rounds = Rounds(hosts)
    rounds.change(epoch=1)
    rounds.standbys.pause()
    with rounds.changed:
        assert rounds.changed.wait_for(lambda: rounds.waits == 2, 10), "the first round is over"
    # What the host has to forget in the next round is what the plan brings there.
    hosts.stops_at, hosts.asked = "locate", []
    rounds.change(epoch=2, layout=OneHost(RoutingTable(2, 4, (1, 2, 3, 0))))
    assert hosts.at.wait(10)

    rounds.change(disturbed=True)
    waits = threading.Thread(target=rounds.standbys.pause)
    waits.start()
    waits.join(0.1)
    assert waits.is_alive(), "the round under way may still ask"
    hosts.go_on.set()
    waits.join(10)

    assert not waits.is_alive()
    rounds.change(closed=True)
    rounds.standbys.join()
    assert hosts.asked == ["locate"]


def test_a_plan_that_begins_between_two_lanes_keeps_the_next_from_being_brought() -> None:
    hosts = Asked()
    rounds = Rounds(hosts)
    hosts.stops_at = "bring at-b"
    rounds.change(epoch=1)
    assert hosts.at.wait(10)

    rounds.change(disturbed=True)
    hosts.go_on.set()
    rounds.standbys.pause()
    rounds.change(closed=True)
    rounds.standbys.join()

    assert hosts.asked == ["locate", "bring at-b"]
    assert rounds.standbys.epoch is None
