"""What a job costs of late; and hot keys: isolated when they stay hot and it helps, put back when they have cooled."""

from __future__ import annotations

from ferryman._migrate.hot_keys import hot_keys, wish
from ferryman._migrate.load_history import LoadHistory
from ferryman._migrate.planning import MOST_PINS, pinned
from ferryman._model.manifest import Manifest
from ferryman._model.receipt import HeavyKey, Receipt
from ferryman._model.routing import RoutingTable

GROUPS = 16


def told(load: dict[int, int], busy_ms: float, heavy: tuple[HeavyKey, ...] = ()) -> Receipt:
    return Receipt(operator="A", epoch=1, instance=0, load=load, busy_ms=busy_ms, heavy=heavy)


def receipt(hot: dict[int, int], others: int = 10) -> list[Receipt]:
    """Tell of an epoch: so many rows of every group, and more of some keys."""
    load = dict.fromkeys(range(GROUPS), others)
    for hash, rows in hot.items():
        load[hash % GROUPS] += rows
    heavy = tuple(HeavyKey(hash, f"k{hash}", rows) for hash, rows in hot.items())
    return [told(load, 10.0, heavy)]


def manifest(table: RoutingTable, epoch: int = 1) -> Manifest:
    return Manifest(epoch=epoch, batch=epoch, silent=False, time_ms=0, routing=table, operators={}, tables={})


def lived(
    history: LoadHistory, table: RoutingTable, hot: dict[int, int], epochs: int
) -> tuple[RoutingTable, list[str]]:
    """Let epochs pass, and do what is wished for."""
    wishes = []
    for _ in range(epochs):
        history.record(manifest(table), receipt(hot))
        wished = wish(history, table)
        if wished is not None:
            wishes.append(wished[0])
            table = wished[1]
    return table, wishes


def test_a_key_that_stays_hot_is_isolated_once_and_put_back_when_it_has_cooled() -> None:
    history, before = LoadHistory(GROUPS), RoutingTable.even(1, GROUPS, 4)
    table, wishes = lived(history, before, {5: 400}, 4)
    assert wishes == []
    (hot,) = hot_keys(history, table)
    assert (hot.key, hot.instance, hot.pinned) == ("k5", before.owner[5], False)
    assert 390 < hot.rows < 410
    assert 0.7 < hot.share < 0.72

    table, wishes = lived(history, table, {5: 400}, 60)
    assert wishes == ["isolate"]
    (pin,) = table.pins
    assert (pin.hash, pin.key, pin.hot) == (5, "k5", True)
    assert table.owner.count(pin.instance) == 1, "it has an instance of its own"
    assert hot_keys(history, table)[0].pinned

    table, wishes = lived(history, table, {5: 1}, 100)
    assert wishes == ["put back"]
    assert table.pins == ()
    assert max(table.owner.count(instance) for instance in range(4)) == 4, "the others are spread again"
    assert hot_keys(history, table) == []


def test_a_key_that_is_hot_now_and_then_stays_where_it_is() -> None:
    history, table = LoadHistory(GROUPS), RoutingTable.even(1, GROUPS, 4)
    wishes = []
    for _ in range(10):
        for hot, epochs in (({5: 400}, 1), ({}, 8)):
            table, some = lived(history, table, hot, epochs)
            wishes += some

    assert wishes == []


def test_a_key_between_hot_and_cool_stays_pinned() -> None:
    history = LoadHistory(GROUPS)
    table, wishes = lived(history, RoutingTable.even(1, GROUPS, 4), {5: 400}, 10)
    assert wishes == ["isolate"]
    # Of 180 rows 20: less than half of the fair share of 45, more than a quarter of it.
    _, wishes = lived(history, table, {5: 20}, 200)

    assert wishes == []


def test_where_nothing_can_be_gained_nothing_moves() -> None:
    history, alone = LoadHistory(GROUPS), RoutingTable.even(1, GROUPS, 1)
    assert lived(history, alone, {5: 400}, 30) == (alone, [])
    # It has an instance for itself already.
    owner = tuple(0 if group == 5 else 1 + group % 3 for group in range(GROUPS))
    assert lived(LoadHistory(GROUPS), RoutingTable(1, 4, owner), {5: 400}, 30)[1] == []


def test_what_a_user_has_pinned_is_never_put_back() -> None:
    table = pinned(RoutingTable.even(1, GROUPS, 4), {5: "k5"}, 3)
    assert lived(LoadHistory(GROUPS), table, {5: 1}, 100) == (table, [])


def test_a_hot_key_stays_where_no_more_keys_can_be_pinned() -> None:
    table = pinned(
        RoutingTable.even(1, GROUPS, 4), {16 * number + 1600: f"k{number}" for number in range(MOST_PINS)}, 3
    )
    assert lived(LoadHistory(GROUPS), table, {5: 400}, 30) == (table, [])


def test_several_hot_keys_get_an_instance_each() -> None:
    table, wishes = lived(LoadHistory(GROUPS), RoutingTable.even(1, GROUPS, 4), {1: 300, 2: 300, 17: 300}, 60)

    assert set(wishes) == {"isolate"}
    assert len({table.owner_of(hash) for hash in (1, 2, 17)}) == 3, "1 and 17 are even of one key group"


def test_silence_neither_heats_nor_cools() -> None:
    history, table = LoadHistory(GROUPS), RoutingTable.even(1, GROUPS, 4)
    table, _ = lived(history, table, {5: 400}, 10)
    for _ in range(200):
        history.record(manifest(table), [told({}, 1.0)])
        assert wish(history, table) is None


def test_a_row_costs_more_where_all_is_slow() -> None:
    history, table = LoadHistory(4), RoutingTable(1, 2, (0, 0, 1, 1))
    for _ in range(50):
        slow = told({0: 30, 1: 10}, 80.0)
        fast = told({2: 30, 3: 10}, 20.0)
        history.record(manifest(table), [slow, fast])

    rows, busy = history.load(table), history.load(table, busy=True)
    assert [round(load / history.epochs) for load in rows.groups] == [30, 10, 30, 10]
    assert [round(load / history.epochs) for load in busy.groups] == [60, 20, 15, 5]
    assert [round(load / history.epochs) for load in busy.of(table)] == [80, 20]


def test_a_pinned_key_is_as_slow_as_who_works_on_it() -> None:
    table = pinned(RoutingTable(1, 2, (0, 1)), {2: "k2"}, 1)
    history = LoadHistory(2)
    for _ in range(50):
        here = told({0: 20}, 10.0)
        there = told({0: 30, 1: 10}, 80.0, (HeavyKey(2, "k2", 30),))
        history.record(manifest(table), [here, there])

    busy = history.load(table, busy=True)
    assert [round(load / history.epochs) for load in busy.groups] == [10, 20]
    assert round(busy.keys[2] / history.epochs) == 60
    assert [round(load / history.epochs) for load in busy.of(table)] == [10, 80]


def test_the_epoch_that_switches_counts_for_the_table_it_ran_with() -> None:
    before, history = RoutingTable.even(1, GROUPS, 4), LoadHistory(GROUPS)
    after = pinned(before, {5: "k5"}, 3, hot=True)
    # Of 180 rows 20: less than a quarter of a fair share of two instances, more than that of four.
    for _ in range(50):
        history.record(manifest(before), receipt({5: 20}))
    assert history.cool_for == {}, "nothing is pinned as it was hot"

    history.record(manifest(after), receipt({5: 1}))
    for _ in range(30):
        history.record(manifest(after), receipt({5: 1}))
    assert set(history.cool_for) == {5}
    history.record(manifest(before, 2), receipt({5: 1}))
    assert history.cool_for == {}


def test_what_state_has_grown_is_remembered_by_epoch_and_over_all_tasks() -> None:
    history, table = LoadHistory(GROUPS), RoutingTable.even(1, GROUPS, 4)
    some = Receipt(operator="A", epoch=7, instance=0, host="a", grown={1: 10, 2: -5})
    more = Receipt(operator="B", epoch=7, instance=1, host="b", grown={2: 7})
    history.record(manifest(table, 7), [some, more])

    assert (history.epoch, history.grown) == (7, {7: {1: 10, 2: 2}})
    assert history.hosts == ("a", "b")
