"""What a plan takes between hosts: a group comes to every host that owns a key of it, and leaves those that do not."""

from __future__ import annotations

from dataclasses import replace

from ferryman._migrate.lanes import Lane, Lanes, along_of, fitted, lanes_of
from ferryman._migrate.layout import InstanceHost
from ferryman._migrate.plan import Plan
from ferryman._migrate.planning import Move, moved, pinned, rescaled, unpinned
from ferryman._migrate.rehosting import rehosted
from ferryman._migrate.strategies import STRATEGIES
from ferryman._model.routing import Pin, RoutingTable
from ferryman._routing.sites import Site, SiteMap


def hosts(*names: str) -> dict[int, InstanceHost]:
    return {number: InstanceHost(name, f"at {name}") for number, name in enumerate(names)}


# Instances 0 and 1 are on host a, 2 on b, 3 on c.
HOSTS = hosts(*"aabc")
EVEN = RoutingTable.even(1, 4, 4)


def travel(before: RoutingTable, after: RoutingTable) -> Lanes:
    return lanes_of(Plan.of(before, after, STRATEGIES["live"]), HOSTS, HOSTS)


def test_a_key_takes_its_group_to_another_host_and_leaves_it_where_it_was() -> None:
    assert travel(EVEN, pinned(EVEN, {4: "k"}, 2)) == Lanes((Lane("at a", "at b", (0,)),), {})


def test_between_instances_of_one_host_nothing_travels() -> None:
    assert travel(EVEN, pinned(EVEN, {4: "k"}, 1)) == Lanes((), {})


def test_a_key_that_goes_back_leaves_a_group_that_is_of_no_use() -> None:
    before = pinned(EVEN, {4: "k"}, 2)

    assert travel(before, unpinned(before, [4])) == Lanes((), {"at b": (0,)})


def test_a_group_stays_where_a_key_of_it_is_pinned() -> None:
    before = replace(EVEN, pins=(Pin(4, 0, "k"),))
    after = moved(before, {0: 3})

    assert travel(before, after) == Lanes((Lane("at a", "at c", (0,)),), {})


def test_a_group_goes_to_several_hosts_at_once() -> None:
    after = pinned(pinned(EVEN, {4: "k"}, 2), {8: "l"}, 3)
    found = travel(EVEN, after)

    assert sorted(lane.target for lane in found.used) == ["at b", "at c"]
    assert all(lane.groups == (0,) and lane.source == "at a" for lane in found.used)


def test_instances_that_go_to_other_hosts_take_their_groups_and_the_keys_pinned_to_them_along() -> None:
    before = replace(EVEN, pins=(Pin(4, 3, "k"),))
    names = [{number: at.host for number, at in found.items()} for found in (HOSTS, hosts(*"aaba"))]
    plan = rehosted(before, *names, frozenset("ab"), STRATEGIES["live"])
    assert plan.moves == (Move(0, 0, 0), Move(3, 3, 3))

    fits = fitted(plan, lambda table, _: table, HOSTS, hosts(*"aaba"))
    # Group 0 is on host a already, for the instance that owns all of it but the key.
    assert fits.moves == (Move(3, 3, 3),)
    assert lanes_of(fits, HOSTS, hosts(*"aaba")) == Lanes((Lane("at c", "at a", (3,)),), {"at c": (0, 3)})
    assert fits.after == replace(before, version=2)


def test_what_was_lost_comes_from_its_host_while_that_is_only_about_to_go() -> None:
    plan = replace(Plan.of_lost(EVEN, EVEN, {2, 3}), kept={2: "at x"})

    assert lanes_of(plan, HOSTS, HOSTS).used == (Lane("at x", "at b", (2,)), Lane("", "at c", (3,)))


def test_where_there_is_one_host_nothing_travels() -> None:
    after = pinned(EVEN, {4: "k"}, 2)
    plan = Plan(before=EVEN, after=after, strategy=STRATEGIES["live"], steps=((),))

    assert lanes_of(plan, {}, {}) == Lanes((), {})


def test_a_group_that_keeps_its_instance_moves_along_when_that_comes_to_another_host() -> None:
    before, after = RoutingTable(1, 2, (0, 1, 0)), RoutingTable(2, 1, (0, 0, 0))
    were = hosts("a", "b")
    plan = Plan(before=before, after=after, strategy=STRATEGIES["push"], steps=())

    assert along_of(plan, were, hosts("b")) == (Move(0, 0, 0), Move(2, 0, 0))
    assert along_of(plan, were, hosts("a")) == ()


def test_a_rescale_is_planned_anew_when_the_hosts_of_its_instances_are_known() -> None:
    before, sites = RoutingTable(3, 2, (0,) * 6 + (1,) * 6), (Site("cloud", "c*"), Site("edge", "e*", 9))

    def choose(table: RoutingTable, at: SiteMap) -> RoutingTable:
        return rescaled(table, 4, None, at.with_instances(4))

    # A guess would have been one new instance on each host; both are in the cloud, and are numbered before the others.
    plan = Plan.of(before, choose(before, SiteMap(("c1", "e1"), sites)), STRATEGIES["live"])
    were, are = ["c1", "e1"], ["c2", "c3", "c1", "e1"]
    after = fitted(plan, choose, hosts(*were), hosts(*are), sites).after

    assert [after.owner.count(instance) for instance in range(4)] == [3, 3, 3, 3]
    left = [group for group in range(6, 12) if are[after.owner[group]] != "e1"]
    assert len(left) == 3, "only what is too much for the edge leaves it"
    assert all(are[after.owner[group]].startswith("c") for group in range(6))


def test_a_plan_that_keeps_its_instances_or_its_one_host_fits_as_it_is() -> None:
    plan = Plan.of(EVEN, moved(EVEN, {0: 3}), STRATEGIES["live"])
    wider = Plan.of(EVEN, rescaled(EVEN, 3), STRATEGIES["live"])

    assert fitted(plan, lambda table, at: table, HOSTS, HOSTS) is plan
    assert fitted(wider, lambda table, at: table, {}, {}) is wider
