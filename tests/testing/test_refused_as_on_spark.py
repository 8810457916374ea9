"""What a start of a job refuses, the harness refuses as well: a declaration is compared in one place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ferryman import List, Operator, Value
from ferryman.errors import InvalidConfiguration, OperatorsChanged
from ferryman.testing import Harness

INPUT = "key string, x long"


class Sums(Operator):
    n = Value(int, 0)
    output = "key string, x long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.n += row.x
        yield key, self.n


class Listed(Sums):
    items = List(int)


def called(*names: str, of: type[Operator] = Sums) -> Any:
    def build(stream: Any) -> Any:
        for name in names:
            stream = stream.key_by("key").process(of, name=name)
        return stream

    return build


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (["first"], "holds state of the operators 'second', which the job no longer has. To drop state, start on"),
        (["first", "third"], "If 'second' is now called 'third', pass name='second' to keep its state."),
    ],
)
def test_an_operator_that_is_gone_is_refused(after: list[str], says: str) -> None:
    with Harness(called("first", "second"), INPUT) as harness:
        harness.epoch([("a", 1)])

        with pytest.raises(OperatorsChanged) as refused:
            harness.redeclare(called(*after))

        assert says in str(refused.value)
        assert harness.epoch([("a", 1)]) == [("a", 3)], "what was there goes on"


def test_an_operator_may_be_added() -> None:
    with Harness(called("first"), INPUT) as harness:
        harness.epoch([("a", 1)])
        harness.redeclare(called("first", "second"))

        assert harness.epoch([("a", 1)]) == [("a", 2)]


def test_a_state_of_two_operators_is_refused() -> None:
    def build(stream: Any) -> Any:
        return stream.key_by("key").process(Listed, name="orders").key_by("key").process(Sums, name="orders.items")

    with pytest.raises(InvalidConfiguration, match=r"two operators keep state called 'orders\.items'"):
        Harness(build, INPUT)


def test_two_operators_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"two operators are called 'orders'\. Give one .*name="):
        Harness(called("orders", "orders"), INPUT)
