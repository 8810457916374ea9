"""Planning: balanced, with as few moves as balance needs, and nothing that does not exist."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferryman._migrate.instance_numbers import relabelled
from ferryman._migrate.placement import Load
from ferryman._migrate.planning import Move, isolated, moved, moves, pinned, rebalanced, rescaled, unpinned
from ferryman._model.errors import InvalidPlan
from ferryman._model.routing import Pin, RoutingTable
from ferryman._routing.owners import routed


@st.composite
def tables(draw: st.DrawFn) -> RoutingTable:
    groups = draw(st.integers(1, 80))
    instances = draw(st.integers(1, groups))
    owner = draw(st.lists(st.integers(0, instances - 1), min_size=groups, max_size=groups))
    return RoutingTable(draw(st.integers(1, 9)), instances, tuple(owner))


def sizes(table: RoutingTable) -> list[int]:
    return np.bincount(table.owner, minlength=table.instances).tolist()


@given(tables(), st.data())
def test_a_rescale_balances_with_the_fewest_moves(before: RoutingTable, data: st.DataObject) -> None:
    groups = len(before.owner)
    wanted = data.draw(st.integers(1, groups).filter(lambda n: n != before.instances)) if groups > 1 else None
    if wanted is None:
        return
    after = rescaled(before, wanted)

    assert after.version == before.version + 1
    assert max(sizes(after)) - min(sizes(after)) <= 1
    # The fewest: the fullest instances keep the larger shares, and no instance gives more than its excess.
    have = sorted(([*sizes(before), *[0] * wanted])[:wanted], reverse=True)
    shares = [groups // wanted + (place < groups % wanted) for place in range(wanted)]
    kept = sum(min(a, b) for a, b in zip(have, shares, strict=True))
    assert len(moves(before, after)) == groups - kept


@given(tables(), st.data())
def test_measured_load_is_balanced_up_to_the_largest_group(before: RoutingTable, data: st.DataObject) -> None:
    groups = len(before.owner)
    load = data.draw(st.lists(st.integers(0, 1000), min_size=groups, max_size=groups))
    after = rebalanced(before, load)

    totals = np.bincount(after.owner, load, after.instances)
    before_totals = np.bincount(before.owner, load, before.instances)
    assert totals.max() <= before_totals.max() + max(load) * 0.01 + groups
    if sum(load) and after != before:
        # No instance is above the mean by more than its own largest group, or it has one group only.
        fullest = int(np.argmax(totals))
        mine = [load[group] for group in range(groups) if after.owner[group] == fullest]
        assert len(mine) == 1 or totals.max() - totals.min() <= min(mine) + max(load) * 0.01 + groups


def test_a_load_that_is_even_enough_moves_nothing() -> None:
    table = RoutingTable.even(3, 8, 2)

    assert rebalanced(table, [10, 10, 10, 10, 10, 10, 10, 11]) is table
    assert rebalanced(table) is table


def test_one_hot_group_gets_an_instance_of_its_own() -> None:
    table = RoutingTable.even(1, 8, 2)
    after = rebalanced(table, [1000, 1, 1, 1, 1, 1, 1, 1])

    hot = after.owner[0]
    assert [group for group, owner in enumerate(after.owner) if owner == hot] == [0]


def test_particular_groups_go_where_they_are_told() -> None:
    before = RoutingTable.even(1, 4, 2)
    after = moved(before, {0: 1, 2: 1})

    assert after.owner == (1, 0, 1, 1)
    assert moves(before, after) == (Move(0, 0, 1),)


@pytest.mark.parametrize("wanted", [0, -1, 9])
def test_a_number_of_instances_that_cannot_be_is_refused(wanted: int) -> None:
    with pytest.raises(InvalidPlan, match="from 1 to 8"):
        rescaled(RoutingTable.even(1, 8, 2), wanted)


def test_what_is_already_so_is_refused() -> None:
    table = RoutingTable.even(1, 8, 2)

    with pytest.raises(InvalidPlan, match="2 instances already"):
        rescaled(table, 2)
    with pytest.raises(InvalidPlan, match="nothing moves"):
        moved(table, {0: 0})


def test_what_does_not_exist_is_refused() -> None:
    table = RoutingTable.even(1, 8, 2)

    with pytest.raises(InvalidPlan, match="key group 8 does not exist"):
        moved(table, {8: 0})
    with pytest.raises(InvalidPlan, match="instance 2 does not exist"):
        moved(table, {0: 2})


@st.composite
def pinned_tables(draw: st.DrawFn) -> RoutingTable:
    table = draw(tables())
    hashes = draw(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=6, unique=True))
    pins = [Pin(hash, draw(st.integers(0, table.instances - 1)), f"k{hash}", draw(st.booleans())) for hash in hashes]
    return replace(table, pins=tuple(sorted(pins)))


def loads(data: st.DataObject, table: RoutingTable) -> Load:
    rows = st.integers(0, 1000)
    groups = data.draw(st.lists(rows, min_size=len(table.owner), max_size=len(table.owner)))
    return Load(groups, {pin.hash: data.draw(rows) for pin in table.pins})


def owners(table: RoutingTable) -> dict[int, int]:
    return {pin.hash: table.owner_of(pin.hash) for pin in table.pins}


@given(pinned_tables(), st.data())
def test_whatever_is_planned_every_pin_is_to_an_instance_that_is_there_and_moves_tell_all(
    before: RoutingTable, data: st.DataObject
) -> None:
    load = loads(data, before)
    wanted = data.draw(st.integers(1, len(before.owner)))
    after = rebalanced(before, load) if wanted == before.instances else rescaled(before, wanted, load)

    assert all(0 <= owner < after.instances for owner in (*after.owner, *owners(after).values()))
    # A pin that can stay does; one to an instance that goes is no more.
    assert after.pins == tuple(pin for pin in before.pins if pin.instance < after.instances)
    listed = moves(before, after)
    assert len(set(listed)) == len(listed)
    went = {move.key: move for move in listed if move.key}
    for pin in before.pins:
        assert (pin.key in went) == (before.owner_of(pin.hash) != after.owner_of(pin.hash))
    assert {move.group for move in listed if not move.key} == {
        group for group, (old, new) in enumerate(zip(before.owner, after.owner, strict=True)) if old != new
    }
    assert RoutingTable.parse(after.json()) == after


@given(pinned_tables(), st.data())
def test_keys_move_alone_and_back(before: RoutingTable, data: st.DataObject) -> None:
    hash = data.draw(st.integers(-(1 << 63), (1 << 63) - 1).filter(lambda drawn: drawn not in before.pinned))
    home = before.owner[hash % len(before.owner)]
    to = data.draw(st.integers(0, before.instances - 1))
    if to == home:
        with pytest.raises(InvalidPlan, match="nothing moves"):
            pinned(before, {hash: "k"}, to)
        return
    after = pinned(before, {hash: "k"}, to)

    assert after.owner == before.owner
    assert after.owner_of(hash) == to
    assert moves(before, after) == (Move(hash % len(before.owner), home, to, "k", pins=True),)
    assert {home, to} <= after.workers()[hash % len(before.owner)]
    back = pinned(after, {hash: "k"}, home)
    assert back.pins == unpinned(after, [hash]).pins == before.pins
    assert moves(after, back) == (Move(hash % len(before.owner), to, home, "k"),)


def test_a_rebalance_counts_pinned_keys_where_they_are() -> None:
    table = replace(RoutingTable.even(1, 8, 2), pins=(Pin(1, 1, "hot"),))
    load = Load([10] * 8, {1: 40})
    after = rebalanced(table, load)

    assert load.of(table).tolist() == [40, 80]
    assert load.of(after).tolist() == [60, 60]
    assert len(moves(table, after)) == 2


def test_a_hot_key_stays_and_others_leave_it_alone() -> None:
    table = RoutingTable.even(1, 8, 2)
    after = isolated(table, 9, "hot", Load([10] * 8, {9: 200}))

    assert after.pins == (Pin(9, 0, "hot", hot=True),)
    # An instance keeps a group, or it could not keep what an operator has per instance.
    assert after.owner.count(0) == 1
    assert not [move for move in moves(table, after) if move.key]


def test_two_hot_keys_of_one_instance_get_one_each() -> None:
    table = isolated(RoutingTable.even(1, 8, 2), 1, "a", Load([10] * 8, {1: 200}))
    hash = next(hash for hash in range(8) if table.owner_of(hash) == 0 and hash != 1)
    after = isolated(table, hash, "b", Load([10] * 8, {1: 200, hash: 200}))

    assert sorted(owners(after).values()) == [0, 1]
    assert Load([10] * 8, {1: 200, hash: 200}).of(after).max() < 260


def test_numbers_that_change_change_for_pins_too() -> None:
    table = RoutingTable(2, 3, (0, 1, 2), (Pin(0, 2, "k"),))

    assert relabelled(table, ["a", "b"], ["b", "b", "a"]) == RoutingTable(2, 3, (2, 0, 1), (Pin(0, 1, "k"),))


def test_more_pins_than_a_row_can_be_compared_with_are_refused() -> None:
    table = RoutingTable.even(1, 8, 2)

    with pytest.raises(InvalidPlan, match=r"1001 pinned keys.*job\.unpin"):
        pinned(table, {hash * 8: str(hash) for hash in range(1001)}, 1)
    with pytest.raises(InvalidPlan, match="instance 5 does not exist"):
        pinned(table, {0: "k"}, 5)
    with pytest.raises(InvalidPlan, match="none of these keys is pinned"):
        unpinned(table, [0])


@given(pinned_tables(), st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=40))
def test_keys_are_routed_as_the_table_says(table: RoutingTable, hashes: list[int]) -> None:
    hashes += [pin.hash for pin in table.pins]

    found = routed(np.array(hashes, np.int64), np.array(table.owner), table.pinned)

    assert found.tolist() == [table.owner_of(hash) for hash in hashes]
