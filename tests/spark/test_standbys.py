"""Who stands by for whom: pure, from a routing table and where the instances are."""

from __future__ import annotations

from ferryman._model.records import Pin, RoutingTable
from ferryman._spark.hosts import Place
from ferryman._spark.replicas import standbys


def places(*hosts: str) -> dict[int, Place]:
    return {number: Place(host, f"at-{host}") for number, host in enumerate(hosts)}


def told(table: RoutingTable, at: dict[int, Place], count: int) -> dict[tuple[str, str], tuple[int, ...]]:
    return {(lane.source, lane.target): lane.groups for lane in standbys(table, at, count)}


def test_all_instances_of_a_host_have_the_same_standby() -> None:
    assert told(RoutingTable.even(1, 8, 4), places("b", "a", "b", "a"), 1) == {
        ("at-b", "at-a"): (0, 1, 4, 5),
        ("at-a", "at-b"): (2, 3, 6, 7),
    }


def test_every_group_is_on_as_many_other_hosts_as_asked_for() -> None:
    table, at = RoutingTable.even(1, 12, 4), places("a", "b", "c", "d")

    for count in range(4):
        targets: dict[int, set[str]] = {group: set() for group in range(12)}
        for lane in standbys(table, at, count):
            for group in lane.groups:
                assert lane.source == at[table.owner[group]].location
                targets[group].add(lane.target)
        assert {len(one) for one in targets.values()} == {count}


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
    after = told(RoutingTable(2, 4, (0, 1, 3, 3)), {**places("a", "b", "c", "d"), 2: Place("d", "at-d")}, 1)

    assert before[("at-a", "at-b")] == after[("at-a", "at-b")] == (0,)
    assert before[("at-b", "at-c")] == after[("at-b", "at-d")] == (1,)
