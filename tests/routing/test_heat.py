"""Hot keys: found, isolated when they stay hot and it helps, put back when they have cooled, and never to and fro."""

from __future__ import annotations

from typing import Any

from ferryman._model.records import RoutingTable
from ferryman._routing.heat import Heat
from ferryman._routing.planning import MOST_PINS, pinned

GROUPS = 16


def receipt(hot: dict[int, int], others: int = 10) -> list[dict[str, Any]]:
    """Tell of an epoch: so many rows of every group, and more of some keys."""
    load = {str(group): others for group in range(GROUPS)}
    for hash, rows in hot.items():
        load[str(hash % GROUPS)] = load[str(hash % GROUPS)] + rows
    heavy = [{"hash": hash, "key": f"k{hash}", "rows": rows} for hash, rows in hot.items()]
    return [{"load": load, "heavy": heavy, "busy_ms": 10.0}]


def lived(heat: Heat, table: RoutingTable, hot: dict[int, int], epochs: int) -> tuple[RoutingTable, list[str]]:
    """Let epochs pass, and do what is wished for."""
    wishes = []
    for _ in range(epochs):
        heat.count(receipt(hot), table)
        wish = heat.wish(table)
        if wish is not None:
            wishes.append(wish[0])
            table = wish[1]
    return table, wishes


def test_a_key_that_stays_hot_is_isolated_once_and_put_back_when_it_has_cooled() -> None:
    heat, before = Heat(GROUPS), RoutingTable.even(1, GROUPS, 4)
    table, wishes = lived(heat, before, {5: 400}, 4)
    assert wishes == []
    (hot,) = heat.hot_keys(table)
    assert (hot.key, hot.instance, hot.pinned) == ("k5", before.owner[5], False)
    assert 390 < hot.rows < 410
    assert 0.7 < hot.share < 0.72

    table, wishes = lived(heat, table, {5: 400}, 60)
    assert wishes == ["isolate"]
    (pin,) = table.pins
    assert (pin.hash, pin.key, pin.hot) == (5, "k5", True)
    assert table.owner.count(pin.instance) == 1, "it has an instance of its own"
    assert heat.hot_keys(table)[0].pinned

    table, wishes = lived(heat, table, {5: 1}, 100)
    assert wishes == ["put back"]
    assert table.pins == ()
    assert max(table.owner.count(one) for one in range(4)) == 4, "the others are spread again"
    assert heat.hot_keys(table) == []


def test_a_key_that_is_hot_now_and_then_stays_where_it_is() -> None:
    heat, table = Heat(GROUPS), RoutingTable.even(1, GROUPS, 4)
    wishes = []
    for _ in range(10):
        for hot, epochs in (({5: 400}, 1), ({}, 8)):
            table, some = lived(heat, table, hot, epochs)
            wishes += some

    assert wishes == []


def test_a_key_between_hot_and_cool_stays_pinned() -> None:
    heat = Heat(GROUPS)
    table, wishes = lived(heat, RoutingTable.even(1, GROUPS, 4), {5: 400}, 10)
    assert wishes == ["isolate"]
    # Of 180 rows 20: less than half of the fair share of 45, more than a quarter of it.
    _, wishes = lived(heat, table, {5: 20}, 200)

    assert wishes == []


def test_where_nothing_can_be_gained_nothing_moves() -> None:
    heat, alone = Heat(GROUPS), RoutingTable.even(1, GROUPS, 1)
    assert lived(heat, alone, {5: 400}, 30) == (alone, [])
    # It has an instance for itself already.
    owner = tuple(0 if group == 5 else 1 + group % 3 for group in range(GROUPS))
    assert lived(Heat(GROUPS), RoutingTable(1, 4, owner), {5: 400}, 30)[1] == []


def test_what_a_user_has_pinned_is_never_put_back() -> None:
    table = pinned(RoutingTable.even(1, GROUPS, 4), {5: "k5"}, 3)
    assert lived(Heat(GROUPS), table, {5: 1}, 100) == (table, [])


def test_a_hot_key_stays_where_no_more_keys_can_be_pinned() -> None:
    table = pinned(RoutingTable.even(1, GROUPS, 4), {16 * one + 1600: f"k{one}" for one in range(MOST_PINS)}, 3)
    assert lived(Heat(GROUPS), table, {5: 400}, 30) == (table, [])


def test_several_hot_keys_get_an_instance_each() -> None:
    table, wishes = lived(Heat(GROUPS), RoutingTable.even(1, GROUPS, 4), {1: 300, 2: 300, 17: 300}, 60)

    assert set(wishes) == {"isolate"}
    assert len({table.owner_of(hash) for hash in (1, 2, 17)}) == 3, "1 and 17 are even of one key group"


def test_silence_neither_heats_nor_cools() -> None:
    heat, table = Heat(GROUPS), RoutingTable.even(1, GROUPS, 4)
    table, _ = lived(heat, table, {5: 400}, 10)
    for _ in range(200):
        heat.count([{"load": {}, "heavy": [], "busy_ms": 1.0}], table)
        assert heat.wish(table) is None


def test_a_row_costs_more_where_all_is_slow() -> None:
    heat, table = Heat(4), RoutingTable(1, 2, (0, 0, 1, 1))
    for _ in range(50):
        slow = {"load": {"0": 30, "1": 10}, "heavy": [], "busy_ms": 80.0}
        fast = {"load": {"2": 30, "3": 10}, "heavy": [], "busy_ms": 20.0}
        heat.count([slow, fast], table)

    rows, busy = heat.load(table), heat.load(table, busy=True)
    assert [round(one / heat.epochs) for one in rows.groups] == [30, 10, 30, 10]
    assert [round(one / heat.epochs) for one in busy.groups] == [60, 20, 15, 5]
    assert [round(one / heat.epochs) for one in busy.of(table)] == [80, 20]


def test_a_pinned_key_is_as_slow_as_who_works_on_it() -> None:
    table = pinned(RoutingTable(1, 2, (0, 1)), {2: "k2"}, 1)
    heat = Heat(2)
    for _ in range(50):
        here = {"load": {"0": 20}, "heavy": [], "busy_ms": 10.0}
        there = {"load": {"0": 30, "1": 10}, "heavy": [{"hash": 2, "key": "k2", "rows": 30}], "busy_ms": 80.0}
        heat.count([here, there], table)

    busy = heat.load(table, busy=True)
    assert [round(one / heat.epochs) for one in busy.groups] == [10, 20]
    assert round(busy.keys[2] / heat.epochs) == 60
    assert [round(one / heat.epochs) for one in busy.of(table)] == [10, 80]
