"""What is known of groups that are to be copied, and the orders that follow from it."""

from __future__ import annotations

import pytest

from ferryman._migrate.backlog import Backlog
from ferryman._migrate.line_speed import LineSpeed
from ferryman._migrate.load_history import LoadHistory
from ferryman._migrate.orders import ORDERS
from ferryman._model.delta import DeltaRef
from ferryman._model.held_rows import HeldRows
from ferryman._model.manifest import Manifest
from ferryman._model.receipt import Receipt
from ferryman._model.routing import RoutingTable

LINE = 200e6


def told(rows: int, busy_ms: float, group: int = 0) -> Receipt:
    load = {group: rows} if rows else {}
    return Receipt(operator="A", epoch=1, instance=0, rows=rows, busy_ms=busy_ms, load=load)


def manifest(epoch: int, *held: dict[int, int]) -> Manifest:
    files = [
        HeldRows(DeltaRef("f", 0, sum(rows.values()), 1, ""), epoch, tuple(rows), tuple(rows.values())) for rows in held
    ]
    routing = RoutingTable.even(1, 4, 2)
    return Manifest(
        epoch=epoch,
        batch=epoch,
        silent=False,
        time_ms=epoch * 1000,
        routing=routing,
        operators={},
        tables={},
        held={"A": tuple(files)} if files else {},
    )


def test_the_backlog_is_what_is_held_and_what_the_next_epoch_brings() -> None:
    history = LoadHistory(4, manifest(4))
    history.record(manifest(5, {1: 30}, {1: 5, 2: 1}), [told(2, 1.0, 1), told(7, 1.0, 3)])

    one, two, three = history.cargo([1, 2, 3], [1.0] * 4, LINE)

    assert (one.backlog, two.backlog, three.backlog) == (37, 1, 7)
    assert (one.arrived, three.arrived) == (5.0, float("inf"))


def test_the_first_row_counts_from_when_it_came_until_the_group_has_no_rows_that_wait() -> None:
    backlog = Backlog().after(manifest(5, {1: 1})).after(manifest(6, {1: 3, 2: 1}))
    assert backlog.since == {1: 5.0, 2: 6.0}

    backlog = backlog.after(manifest(7)).after(manifest(8, {1: 1}))

    assert backlog.groups == {1}
    assert backlog.since == {1: 8.0}


def test_rows_that_wait_when_a_job_starts_are_known() -> None:
    assert LoadHistory(4, manifest(5, {1: 3})).backlog == Backlog({1: 3}, {1: 5.0})


def test_times_follow_from_sizes_the_line_and_what_rows_took() -> None:
    history = LoadHistory(4)
    history.record(manifest(1, {1: 20}), [told(90, 900.0), told(10, 100.0), told(0, 50.0)])

    (one,) = history.cargo([1], [100.0, 300.0, 0.0, 0.0], bytes_per_s=100.0)

    assert (one.bytes, one.copy_s, one.work_s) == (300, 3.0, pytest.approx(0.2))


def test_a_line_is_as_fast_as_what_it_last_carried_unless_that_tells_nothing() -> None:
    history = LoadHistory(4)

    def copy_s(line: LineSpeed) -> float:
        (one,) = history.cargo([1], [0.0, 2e6, 0.0, 0.0], bytes_per_s=line.bytes_per_s)
        return one.copy_s

    seen = LineSpeed().after(4_000_000, 2.0)

    assert copy_s(LineSpeed()) == 0.01, "before anybody has seen it"
    assert copy_s(seen) == 1.0, "as fast as the last one was"
    assert copy_s(seen.after(8_000_000, 2.0)) == 0.5
    assert seen.after(1 << 20, 1.0) == LineSpeed(1 << 20)
    assert seen.after((1 << 20) - 1, 1.0) == seen, "what is that small tells nothing"
    assert seen.after(4_000_000, 0.0) == seen, "nor does what took no time"


def test_skewed_backlogs_and_sizes_decide_the_order() -> None:
    history = LoadHistory(5)
    # A large group with many rows, a small one with many, a small one with few, a large one with few.
    sizes = [1000.0, 10.0, 10.0, 1000.0]
    history.record(manifest(1, {0: 5000, 1: 5000, 2: 5, 3: 5}), [told(1000, 1000.0, group=4)])

    def order(name: str) -> list[int]:
        return [item.group for item in ORDERS[name](history.cargo(range(4), sizes, bytes_per_s=1000.0))]

    # What is copied faster than processed first, quickest copy first; the rest by its work.
    assert order("johnson") == [1, 0, 2, 3]
    assert order("backlog") == [1, 0, 2, 3]
    assert order("size") == [1, 2, 0, 3]

    history.record(manifest(2, {0: 5000, 1: 5000, 2: 5, 3: 9000}), ())
    assert order("johnson") == [1, 3, 0, 2], "rows that came since change what is left"


def test_where_copies_take_no_time_the_most_rows_come_first() -> None:
    history = LoadHistory(4, manifest(1, {0: 9, 1: 5, 2: 7, 3: 1}))

    cargo = history.cargo(range(4), [900.0, 500.0, 700.0, 100.0], bytes_per_s=1e8)

    assert [item.group for item in ORDERS["johnson"](cargo)] == [0, 2, 1, 3]


def test_before_anything_is_known_groups_go_by_their_rows_of_late() -> None:
    history = LoadHistory(3)
    history.record(manifest(1), [told(1, 1.0, 0), told(9, 1.0, 1), told(5, 1.0, 2)])

    assert [item.group for item in ORDERS["backlog"](history.cargo(range(3), [1.0] * 3, LINE))] == [1, 2, 0]
