"""What a lost host makes a coordinator do: much is restored beside the stream, and given back; little is for tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ferryman._migrate.lanes import lanes_of
from ferryman._migrate.layout import InstanceHost
from ferryman._migrate.lost_hosts import BYTES_PER_S, LONG_S, Lent, lost_instances, recovery
from ferryman._migrate.planning import moved, pinned
from ferryman._model.errors import NothingMoves
from ferryman._model.routing import RoutingTable

EVEN = RoutingTable.even(1, 16, 4)
HEAVY = [LONG_S * BYTES_PER_S] * 16


def test_an_instance_is_lost_if_its_host_is_nobodys_any_more() -> None:
    assert lost_instances(("a", "b", "c"), {0: "a", 1: "b", 2: "c"}) == frozenset()
    assert lost_instances(("a", "b", "c", "b"), {0: "a", 1: "c", 2: "c", 3: "a"}) == {1, 3}
    # Names that Spark has for hosts, and those they have for themselves.
    assert lost_instances(("ip-1", "ip-2"), {0: "a", 1: "b"}) == frozenset()
    assert lost_instances((), {0: "a"}) == frozenset()


def test_little_state_is_left_to_the_tasks() -> None:
    assert recovery(EVEN, {1}, [1e6] * 16) is None
    assert recovery(EVEN, set(), HEAVY) is None


def test_what_was_lost_is_spread_over_all_others_and_nothing_else_moves() -> None:
    plan = recovery(RoutingTable.even(1, 16, 4), {1}, HEAVY)

    assert plan is not None
    assert plan.lost == {4, 5, 6, 7}
    assert {move.group for move in plan.moves} == plan.lost
    assert Counter(plan.after.owner[group] for group in plan.lost) == {0: 1, 1: 1, 2: 1, 3: 1}
    assert [owner for group, owner in enumerate(plan.after.owner) if group not in plan.lost] == [0] * 4 + [2] * 4 + [
        3
    ] * 4


def test_it_comes_to_its_new_owners_from_the_checkpoint() -> None:
    plan = recovery(EVEN, {1}, HEAVY)
    # Instance 1 is on host c meanwhile.
    at = {number: InstanceHost(host, f"at {host}") for number, host in enumerate("accd")}

    assert plan is not None
    lanes = lanes_of(plan, at, at)
    assert {(lane.source, lane.target) for lane in lanes.used} == {("", "at a"), ("", "at c"), ("", "at d")}
    assert sorted(group for lane in lanes.used for group in lane.groups) == [4, 5, 6, 7]
    assert lanes.left == {}


def test_the_group_of_a_pinned_key_is_left_to_the_tasks() -> None:
    plan = recovery(pinned(EVEN, {4: "k"}, 3), {1}, HEAVY)

    assert plan is not None
    assert plan.lost == {5, 6, 7}
    assert plan.after.owner[4] == 1


def test_when_there_are_as_many_hosts_again_all_have_what_was_theirs() -> None:
    plan = recovery(EVEN, {1}, HEAVY)
    assert plan is not None
    lent = Lent().after(plan, 4)

    assert lent.hosts == 4
    assert lent.given_back(plan.after).owner == EVEN.owner
    with pytest.raises(NothingMoves):
        lent.given_back(EVEN)
    # What has gone elsewhere meanwhile stays there.
    (group, *_) = (group for group in plan.lost if plan.after.owner[group] == 0)
    assert lent.given_back(moved(plan.after, {group: 3})).owner[group] == 3


def test_what_is_lost_twice_is_given_back_to_the_first() -> None:
    first = recovery(EVEN, {1}, HEAVY)
    assert first is not None
    second = recovery(first.after, {0}, HEAVY)
    assert second is not None
    lent = Lent().after(first, 4).after(second, 3)

    assert lent.hosts == 4
    assert lent.given_back(second.after).owner == EVEN.owner


def test_fewer_instances_than_before_get_nothing_back() -> None:
    plan = recovery(EVEN, {3}, HEAVY)
    assert plan is not None

    with pytest.raises(NothingMoves):
        Lent().after(plan, 4).given_back(replace(plan.after, instances=3))
