"""Sites: key groups stay in theirs while the load is even enough, and go to the nearest when it is not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferryman._migrate.instance_numbers import numbers
from ferryman._migrate.placement import WITHIN, Load
from ferryman._migrate.planning import moved_to, pinned_to, rebalanced, rescaled
from ferryman._model.errors import InvalidPlan, NothingMoves
from ferryman._model.routing import RoutingTable
from ferryman._routing.sites import Site, SiteMap, site_faults

CLOUD, EDGE, FAR = Site("cloud", ["c*"]), Site("edge", "e*", 10), Site("far", ["f1", "f2"], 50)
SITES = (CLOUD, EDGE, FAR)


@st.composite
def placed_tables(draw: st.DrawFn) -> tuple[RoutingTable, list[int], SiteMap]:
    instances = draw(st.integers(1, 6))
    groups = draw(st.integers(instances, 40))
    owner = tuple(draw(st.lists(st.integers(0, instances - 1), min_size=groups, max_size=groups)))
    load = draw(st.lists(st.integers(1, 60), min_size=groups, max_size=groups))
    hosts = draw(st.lists(st.sampled_from(["c1", "c2", "e1", "f1", "x"]), min_size=instances, max_size=instances))
    return RoutingTable(1, instances, owner), load, SiteMap(tuple(hosts), SITES)


def inside(places: SiteMap, instances: int) -> dict[str, list[int]]:
    """Give the instances of every site."""
    found: dict[str, list[int]] = {}
    for instance in range(instances):
        found.setdefault(places.site(instance).name, []).append(instance)
    return found


def enough(load: list[int], instances: int) -> float:
    return sum(load) / instances * (1 + WITHIN)


@given(placed_tables())
def test_nothing_leaves_a_site_where_every_site_can_be_evened_out_by_itself(drawn) -> None:
    before, load, places = drawn
    after = rebalanced(before, load, places)

    crossed = [
        g for g, (a, b) in enumerate(zip(before.owner, after.owner, strict=True)) if places.site(a) != places.site(b)
    ]
    # The model: whoever keeps moving within a site gets to its mean and one more group at the worst.
    worst = Fraction(0)
    for instances in inside(places, before.instances).values():
        mine = [load[group] for group, owner in enumerate(before.owner) if owner in instances]
        worst = max(worst, Fraction(sum(mine), len(instances)) + max(mine, default=0))
    if float(worst) * 1.002 <= enough(load, before.instances):
        assert crossed == []
    totals = np.bincount(after.owner, load, after.instances)
    fullest = int(np.argmax(totals))
    if after.owner.count(fullest) > 1:
        # Where the sites alone cannot do it, groups cross until it is even enough, up to the size of a group.
        # Planning counts a thousandth of the mean for every group on top of its load.
        assert totals.max() <= max(enough(load, before.instances) * 1.002, totals.min() + max(load) * 1.01 + 1)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 90))
def test_the_nearest_site_that_has_room_takes_what_is_too_much(near, middle, far, groups) -> None:
    instances = near + middle + far
    groups += 20 * instances
    hosts = ("c1",) * near + ("e1",) * middle + ("f1",) * far
    places = SiteMap(hosts, SITES)
    # Everything is on the edge, but for a group of each of the others.
    owner = [*range(instances), *(near + number % middle for number in range(groups - instances))]
    before = RoutingTable(1, instances, tuple(owner))
    after = rebalanced(before, [1] * groups, places)

    sizes = np.bincount(after.owner, minlength=instances)
    limit = enough([1] * groups, instances)
    assert sizes.max() <= limit + 1
    if sizes[near + middle :].max() > 1:
        # Some went far: then the cloud, which is nearer, has no room for another that would help.
        assert sizes[:near].min() >= sizes.max() - 1
    # No more cross than have to for the load to be even enough.
    assert sizes[near : near + middle].min() >= int(limit) - 1


@given(placed_tables(), st.data())
def test_when_instances_go_their_groups_stay_in_their_site_if_that_has_others(drawn, data) -> None:
    before, load, places = drawn
    if before.instances == 1:
        return
    after = rescaled(before, data.draw(st.integers(1, before.instances - 1)), load, places)
    left = inside(places, after.instances)

    stays = all(places.site(instance).name in left for instance in range(after.instances, before.instances))
    means = [
        Fraction(sum(load[g] for g, owner in enumerate(before.owner) if places.site(owner).name == name), len(some))
        for name, some in left.items()
    ]
    if stays and float(max(means) + max(load)) * 1.002 <= enough(load, after.instances):
        assert [places.site(owner) for owner in before.owner] == [places.site(owner) for owner in after.owner]


@given(placed_tables())
def test_without_sites_places_change_nothing(drawn) -> None:
    before, load, places = drawn

    assert rebalanced(before, load, SiteMap(places.hosts)) == rebalanced(before, load)
    everywhere = (Site("everywhere", "*"),)
    assert rebalanced(before, load, SiteMap(places.hosts, everywhere)) == rebalanced(before, load)


def test_sites_that_are_not_said_to_be_apart_are_sites_all_the_same() -> None:
    places = SiteMap(("a", "a", "b", "b"), (Site("one", "a"), Site("two", "b")))
    before = RoutingTable(1, 4, (0,) * 10 + (2,) * 10)
    after = rebalanced(before, at=places)

    assert [owner // 2 for owner in after.owner] == [0] * 10 + [1] * 10
    assert sorted(after.owner.count(instance) for instance in range(4)) == [5, 5, 5, 5]


@given(placed_tables(), st.data())
def test_groups_told_to_go_to_a_site_or_a_host_are_spread_over_its_instances(drawn, data) -> None:
    before, load, places = drawn
    to = data.draw(
        st.sampled_from([*places.hosts, *(places.site(instance).name or "x" for instance in range(before.instances))])
    )
    some = data.draw(st.sets(st.integers(0, len(load) - 1), min_size=1))
    there = places.at(to)
    bears = Load(load).of(before)
    try:
        after = moved_to(before, some, to, Load(load), places)
    except NothingMoves:
        assert {before.owner[group] for group in some} <= set(there)
        return

    for group, (old, new) in enumerate(zip(before.owner, after.owner, strict=True)):
        assert new == old if group not in some or old in there else new in there
    # The model: one after the other, to who has least then.
    model = {instance: bears[instance] for instance in there}
    for group in sorted(some, key=lambda number: (-load[number], number)):
        if before.owner[group] not in there:
            model[min(there, key=lambda instance: (model[instance], instance))] += load[group]
    came = {
        instance: bears[instance] + sum(load[g] for g in some if after.owner[g] == instance != before.owner[g])
        for instance in there
    }
    assert came == model


def test_keys_told_to_go_to_a_site_are_pinned_there_and_those_there_stay() -> None:
    places = SiteMap(("c1", "e1", "e2"), SITES)
    table = RoutingTable.even(1, 6, 3)
    after = pinned_to(table, {0: "a", 1: "b", 2: "c"}, "edge", Load([1.0] * 6), places)

    assert {pin.key: pin.instance for pin in after.pins} == {"a": 1, "b": 2}
    assert after.owner_of(2) == 1


def test_what_is_not_there_is_refused_with_what_is() -> None:
    places, table = SiteMap(("c1", "e1", "c1"), SITES), RoutingTable.even(1, 6, 3)

    def to(target: object) -> RoutingTable:
        return moved_to(table, [0], target, Load([1.0] * 6), places)  # type: ignore[arg-type]

    with pytest.raises(
        InvalidPlan,
        match=r"there is no host or site 'mars'. There are the hosts c1 \(instances 0, 2\), e1 \(instance 1\) and "
        r"the sites cloud \(instances 0, 2\), edge \(instance 1\), far \(no instance\)",
    ):
        to("mars")
    with pytest.raises(InvalidPlan, match="site 'far' has no instance now"):
        to("far")
    with pytest.raises(InvalidPlan, match="known after the first epoch"):
        moved_to(table, [0], "edge", Load([1.0] * 6), SiteMap((), SITES))
    for strange in (True, 1.5, None):
        with pytest.raises(InvalidPlan, match="give the number of an instance, or the name of a host or a site"):
            to(strange)
    with pytest.raises(InvalidPlan, match="instance -1 does not exist"):
        to(-1)
    assert to("1").owner[0] == to(1).owner[0] == 1


def test_all_that_is_wrong_with_sites_is_said_at_once() -> None:
    assert site_faults([CLOUD, EDGE]) == []
    assert len(site_faults("cloud")) == 1
    faults = site_faults([Site("7", "a"), Site("a", []), Site("b", "b", -1), Site("b", [""], float("nan")), "c"])

    said = "\n".join(faults)
    for what in (
        "name='7'",
        "hosts=[]",
        "distance=-1",
        "hosts=['']",
        "distance=nan",
        "'c' is no site",
        "'b' is declared 2",
    ):
        assert what in said
    assert len(faults) == 7


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), st.integers(1, 9))
def test_other_instances_are_expected_where_spark_puts_them_and_numbered_to_stay(were, instances) -> None:
    expected = SiteMap(tuple(were)).with_instances(instances)

    are = list(expected.hosts[:instances])
    counts = [are.count(host) for host in set(were)]
    assert max(counts) - min(counts) <= 1 or instances == len(were)
    stays = sum(min(are.count(host), were[:instances].count(host)) for host in set(were))
    assert sum(a == b for a, b in zip(are, were, strict=False)) == stays
    shuffled = sorted(are)
    numbered = numbers(were, shuffled)
    assert sorted(numbered) == list(range(instances))
    assert sum(shuffled[new] == old for new, old in zip(numbered, were, strict=False)) == stays
