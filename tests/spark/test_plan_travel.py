"""What a plan takes between hosts: a group comes to every host that owns a key of it, and leaves those that do not."""

from __future__ import annotations

from dataclasses import replace

from ferryman._migrate.machine import Plan
from ferryman._migrate.strategies import STRATEGIES, steps_of
from ferryman._model.records import Pin, RoutingTable
from ferryman._routing.planning import Move, moved, moves, pinned, unpinned
from ferryman._spark.hosts import Place
from ferryman._spark.travel import Lane, Travel, along_of, travel_of

# Instances 0 and 1 are on host a, 2 on b, 3 on c.
PLACES = {one: Place(host, f"at {host}") for one, host in enumerate("aabc")}
EVEN = RoutingTable.even(1, 4, 4)


def travel(before: RoutingTable, after: RoutingTable) -> Travel:
    live = STRATEGIES["live"]
    return travel_of(Plan(before, after, live, steps_of(moves(before, after), live)), PLACES, PLACES)


def test_a_key_takes_its_group_to_another_host_and_leaves_it_where_it_was() -> None:
    assert travel(EVEN, pinned(EVEN, {4: "k"}, 2)) == Travel((Lane("at a", "at b", (0,)),), {})


def test_between_instances_of_one_host_nothing_travels() -> None:
    assert travel(EVEN, pinned(EVEN, {4: "k"}, 1)) == Travel((), {})


def test_a_key_that_goes_back_leaves_a_group_that_is_of_no_use() -> None:
    before = pinned(EVEN, {4: "k"}, 2)

    assert travel(before, unpinned(before, [4])) == Travel((), {"at b": (0,)})


def test_a_group_stays_where_a_key_of_it_is_pinned() -> None:
    before = replace(EVEN, pins=(Pin(4, 0, "k"),))
    after = moved(before, {0: 3})

    assert travel(before, after) == Travel((Lane("at a", "at c", (0,)),), {})


def test_a_group_goes_to_several_hosts_at_once() -> None:
    after = pinned(pinned(EVEN, {4: "k"}, 2), {8: "l"}, 3)
    found = travel(EVEN, after)

    assert sorted(lane.target for lane in found.lanes) == ["at b", "at c"]
    assert all(lane.groups == (0,) and lane.source == "at a" for lane in found.lanes)


def test_where_there_is_one_host_nothing_travels() -> None:
    after = pinned(EVEN, {4: "k"}, 2)
    plan = Plan(EVEN, after, STRATEGIES["live"], ((),))

    assert travel_of(plan, {}, {}) == Travel((), {})


def test_a_group_that_keeps_its_instance_moves_along_when_that_comes_to_another_host() -> None:
    before, after = RoutingTable(1, 2, (0, 1, 0)), RoutingTable(2, 1, (0, 0, 0))
    were = {0: Place("a", "at a"), 1: Place("b", "at b")}
    plan = Plan(before, after, STRATEGIES["push"], ())

    assert along_of(plan, were, {0: Place("b", "at b")}) == (Move(0, 0, 0), Move(2, 0, 0))
    assert along_of(plan, were, {0: Place("a", "at a")}) == ()
