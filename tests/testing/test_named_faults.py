"""A fault in what a user declares or gives is told with the operator and the state it is of."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import Map, Operator, PerInstance, Set
from ferryman.errors import InvalidConfiguration, OperatorFailed, UnhashableKey
from ferryman.testing import Harness

INPUT = "key string, x long"


class Declares(StatefulProcessor):
    """Declares a state, and does something else in `init` or `close`."""

    def __init__(self, does: Any, at_end: bool = False) -> None:
        self.does = does
        self.at_end = at_end

    def init(self, handle: Any) -> None:
        self.kept = handle.getValueState("kept", "n long")
        self.handle = handle
        if not self.at_end:
            self.does(self)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        return iter(())

    def close(self) -> None:
        if self.at_end:
            self.does(self)


def declares(does: Any, **options: Any) -> Any:
    return lambda s: s.groupBy("key").transformWithState(Declares(does, **options), INPUT, "Update", "ProcessingTime")


def fails(self: Any) -> None:
    raise OSError("no such file")


def operates(**states: Any) -> Any:
    def process(self: Any, key: Any, row: Any) -> Iterator[Any]:
        if "total" in states:
            self.total.value += row.x
        return iter(())

    made = type("Operates", (Operator,), {"output": INPUT, "process": process, **states})
    return lambda stream: stream.key_by("key").process(made)


@dataclass(frozen=True)
class Place:
    x: int


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (declares(fails), OperatorFailed, r"'Declares' raised OSError: no such file in `init`.*so far: kept.*Fix"),
        (declares(fails, at_end=True), OperatorFailed, r"'Declares' raised OSError: no such file in `close`.*Fix"),
        (declares(lambda self: self.kept.get()), InvalidConfiguration, r"'Declares': .*used state 'kept' while no key"),
        (
            declares(lambda self: self.handle.registerTimer(1)),
            InvalidConfiguration,
            r"'Declares': .*used registerTimer while no key",
        ),
        (
            declares(lambda self: self.handle.getMapState("deep", "k array<long>", "n long")),
            UnhashableKey,
            r"operator 'Declares', state 'deep', its own key: Cannot use k \(list.*Use booleans",
        ),
        (operates(deep=Map(Place, int)), UnhashableKey, r"operator 'Operates', state 'deep', its own key: Cannot use"),
        (operates(deep=Set(list[int])), UnhashableKey, r"operator 'Operates', state 'deep', its own key: Cannot use"),
    ],
)
def test_what_is_declared_wrongly_is_named(build: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        Harness(build, INPUT)


def refuses(*_: Any) -> Any:
    raise ValueError("cannot")


@pytest.mark.parametrize(
    ("what", "total"),
    [
        ("create", PerInstance(int, refuses, merge=operator.add)),
        ("merge", PerInstance(int, int, merge=refuses, split=lambda value, n: [value] + [0] * (n - 1))),
        ("split", PerInstance(int, int, merge=operator.add, split=refuses)),
    ],
)
def test_what_makes_the_state_of_an_instance_is_named_when_it_fails(what: str, total: Any) -> None:
    with Harness(operates(total=total), INPUT) as harness:
        if what == "merge":
            harness.epoch([("a", 1)])
        says = f"operator 'Operates', state 'total': its `{what}` raised ValueError: cannot in epoch"
        with pytest.raises(OperatorFailed, match=says):
            harness.epoch([("a", 1)])
