"""What is known of groups that are to be copied, and the orders that follow from it."""

from __future__ import annotations

import pytest

from ferryman._migrate.freight import Freight
from ferryman._migrate.orders import ORDERS
from ferryman._model.records import DeltaRef, HeldRows, Manifest, RoutingTable


def manifest(epoch: int, *held: dict[int, int]) -> Manifest:
    files = [
        HeldRows(DeltaRef("f", 0, sum(one.values()), 1, ""), epoch, tuple(one), tuple(one.values())) for one in held
    ]
    routing = RoutingTable.even(1, 4, 2)
    return Manifest(epoch, epoch, False, epoch * 1000, routing, {}, {}, held={"A": tuple(files)} if files else {})


def test_the_backlog_is_what_is_held_and_what_the_next_epoch_brings() -> None:
    freight = Freight()
    freight.note(manifest(5, {1: 30}, {1: 5, 2: 1}))

    one, two, three = freight.cargo([1, 2, 3], [0.0, 2.0, 0.0, 7.0])

    assert (one.backlog, two.backlog, three.backlog) == (37, 1, 7)
    assert (one.arrived, three.arrived) == (5.0, float("inf"))


def test_the_first_row_counts_from_when_it_came_until_the_group_has_no_rows_that_wait() -> None:
    freight = Freight()
    freight.note(manifest(5, {1: 1}))
    freight.note(manifest(6, {1: 3, 2: 1}))
    assert [one.arrived for one in freight.cargo([1, 2], [0.0] * 4)] == [5.0, 6.0]

    freight.note(manifest(7))
    freight.note(manifest(8, {1: 1}))

    assert freight.waiting == {1}
    assert freight.cargo([1], [0.0] * 4)[0].arrived == 8.0


def test_times_follow_from_sizes_the_line_and_what_rows_took() -> None:
    freight = Freight()
    freight.weigh([100.0, 300.0, 0.0, 0.0])
    freight.count([{"rows": 90, "busy_ms": 900.0}, {"rows": 10, "busy_ms": 100.0}, {"rows": 0, "busy_ms": 50.0}])
    freight.note(manifest(1, {1: 20}))

    (one,) = freight.cargo([1], [0.0] * 4, bytes_per_s=100.0)
    assert (one.bytes, one.copy_s, one.work_s) == (300, 3.0, pytest.approx(0.2))

    freight.weigh([0.0, 2e6, 0.0, 0.0])
    freight.carried(4_000_000, 2.0)
    assert freight.cargo([1], [0.0] * 4)[0].copy_s == 1.0, "as fast as the last one was"
    freight.carried(10, 2.0)
    assert freight.cargo([1], [0.0] * 4)[0].copy_s == 1.0, "what is that small tells nothing"


def test_skewed_backlogs_and_sizes_decide_the_order() -> None:
    freight = Freight()
    # A large group with many rows, a small one with many, a small one with few, a large one with few.
    freight.weigh([1000.0, 10.0, 10.0, 1000.0])
    freight.count([{"rows": 1000, "busy_ms": 1000.0}])
    freight.note(manifest(1, {0: 5000, 1: 5000, 2: 5, 3: 5}))

    def order(name: str) -> list[int]:
        return [one.group for one in ORDERS[name](freight.cargo(range(4), [0.0] * 4, bytes_per_s=1000.0))]

    # What is copied faster than processed first, quickest copy first; the rest by its work.
    assert order("johnson") == [1, 0, 2, 3]
    assert order("backlog") == [1, 0, 2, 3]
    assert order("size") == [1, 2, 0, 3]

    freight.note(manifest(2, {0: 5000, 1: 5000, 2: 5, 3: 9000}))
    assert order("johnson") == [1, 3, 0, 2], "rows that came since change what is left"


def test_before_anything_is_known_groups_go_by_their_rows_of_late() -> None:
    cargo = Freight().cargo(range(3), [1.0, 9.0, 5.0])

    assert [one.group for one in ORDERS["backlog"](cargo)] == [1, 2, 0]
