"""Orders: each against the definition of what it is good for, by trying all permutations."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferryman._migrate.orders import ORDERS, Cargo, by_arrival, by_backlog, demand, johnson
from ferryman._migrate.strategies import strategy
from ferryman._model.errors import InvalidPlan

CARGO = st.lists(
    st.builds(
        Cargo,
        group=st.integers(0, 99),
        bytes=st.integers(1, 50),
        backlog=st.integers(0, 20),
        arrived=st.floats(0, 10),
        demanded=st.floats(0, 10),
        copy_s=st.integers(1, 20).map(float),
        work_s=st.integers(0, 20).map(float),
    ),
    max_size=6,
    unique_by=lambda item: item.group,
)


def makespan(cargo: list[Cargo]) -> float:
    copied = done = 0.0
    for item in cargo:
        copied += item.copy_s
        done = max(done, copied) + item.work_s
    return done


def waiting(cargo: list[Cargo]) -> float:
    copied = total = 0.0
    for item in cargo:
        copied += item.bytes
        total += copied * item.backlog
    return total


@settings(deadline=None, max_examples=60)
@given(CARGO)
def test_johnson_ends_soonest(cargo: list[Cargo]) -> None:
    assert makespan(johnson(cargo)) == min(makespan(list(order)) for order in permutations(cargo))


@settings(deadline=None, max_examples=60)
@given(CARGO)
def test_backlog_over_size_lets_rows_wait_least(cargo: list[Cargo]) -> None:
    assert waiting(by_backlog(cargo)) == min(waiting(list(order)) for order in permutations(cargo))


@pytest.mark.parametrize("name", ORDERS)
@given(cargo=CARGO)
def test_every_order_keeps_everything_and_does_not_depend_on_how_it_is_given(name: str, cargo: list[Cargo]) -> None:
    ordered = ORDERS[name](cargo)

    assert sorted(item.group for item in ordered) == sorted(item.group for item in cargo)
    assert ORDERS[name](reversed(cargo)) == ordered


def test_what_was_asked_for_comes_first() -> None:
    some = [Cargo(group=0), Cargo(group=1, demanded=2.0, arrived=9.0), Cargo(group=2, demanded=1.0, arrived=10.0)]

    assert [item.group for item in demand(some)] == [2, 1, 0]
    assert [item.group for item in by_arrival(some)] == [1, 2, 0]


@pytest.mark.parametrize("name", ["pull", "push:fast", "push:", ":size"])
def test_a_strategy_or_order_that_does_not_exist_is_refused_with_those_that_do(name: str) -> None:
    with pytest.raises(InvalidPlan, match="one of"):
        strategy(name)
