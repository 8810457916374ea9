"""Planning: balanced, with as few moves as balance needs, and nothing that does not exist."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferryman._model.errors import InvalidPlan
from ferryman._model.records import RoutingTable
from ferryman._routing.planning import Move, moved, moves, rebalanced, rescaled


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
