"""State that an operator keeps from one call to the next: it is of the key at hand, or an error says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import HyperLogLog, List, Operator, Value
from ferryman.errors import StateMisused
from ferryman.testing import Harness

INPUT = "key string, x string"


def test_a_method_kept_from_an_earlier_call_works_on_the_key_at_hand() -> None:
    class Distinct(Operator):
        users = HyperLogLog()
        output = "key string, n long"

        def __init__(self) -> None:
            self._add: Any = None
            self._estimate: Any = None

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self._add = self._add or self.users.add
            self._estimate = self._estimate or self.users.estimate
            self._add(row.x)
            yield key, round(self._estimate())

    with Harness(lambda s: s.key_by("key").process(Distinct), INPUT) as harness:
        assert harness.epoch([("a", "1"), ("b", "2"), ("b", "3")]) == [("a", 1), ("b", 1), ("b", 2)]
        assert sorted(harness.epoch([("a", "4"), ("b", "2")])) == [("a", 2), ("b", 2)]


@pytest.mark.parametrize("more", [{}, {"others": List(int)}], ids=["values", "more than values"])
def test_a_value_kept_from_an_earlier_call_cannot_be_changed_for_another_key(more: Any) -> None:
    def process(self: Any, key: Any, row: Any) -> Iterator[Any]:
        if not hasattr(self, "_cached"):
            self._cached = self.items
        self._cached.append(row.x)
        yield key, row.x

    attributes = {"output": INPUT, "process": process, "items": Value(list[str], []), **more}
    kind = type("Caching", (Operator,), attributes)
    with (
        Harness(lambda s: s.key_by("key").process(kind), INPUT) as harness,
        pytest.raises(StateMisused, match=r"'Caching', epoch 1, state 'items': its value of key 'a' was kept in self"),
    ):
        harness.epoch([("a", "1"), ("b", "2")])


def test_a_value_in_a_second_attribute_that_is_set_for_every_key_is_fine() -> None:
    class Working(Operator):
        items = Value(list[str], [])
        output = "key string, n long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self._at_hand = self.items
            self._at_hand.append(row.x)
            yield key, len(self.items)

    with Harness(lambda s: s.key_by("key").process(Working), INPUT) as harness:
        assert harness.epoch([("a", "1"), ("b", "2"), ("b", "3")]) == [("a", 1), ("b", 1), ("b", 2)]


class Using(StatefulProcessor):
    """Uses a state in `init` or in `close`."""

    def __init__(self, kind: str, call: str) -> None:
        self.kind = kind
        self.call = call

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("of_value", "n long")
        self.list = handle.getListState("of_list", "n long")
        self.map = handle.getMapState("of_map", "k long", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.used = True
        yield Row(key=key[0], x="")

    def close(self) -> None:
        if hasattr(self, "used"):
            arguments = {"update": [(1,)], "appendValue": [(1,)], "getValue": [(1,)], "updateValue": [(1,), (1,)]}
            given = getattr(getattr(self, self.kind), self.call)(*arguments.get(self.call, []))
            if self.kind == "list" and self.call == "get":
                # As on Spark, nothing is read before the first value is asked for.
                next(given)


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        *[("value", call) for call in ("exists", "get", "update", "clear")],
        *[("list", call) for call in ("exists", "get", "appendValue", "clear")],
        *[("map", call) for call in ("exists", "getValue", "updateValue", "clear")],
    ],
)
def test_a_state_used_while_no_key_is_at_hand_is_named(kind: str, call: str) -> None:
    def build(stream: Any) -> Any:
        return stream.groupBy("key").transformWithState(Using(kind, call), INPUT, "Update", "None")

    with (
        Harness(build, INPUT) as harness,
        pytest.raises(StateMisused, match=f"'Using', epoch 1, state 'of_{kind}': it was used while no key is at hand"),
    ):
        harness.epoch([("a", "1")])


def test_a_value_that_is_changed_when_its_key_is_called_again_is_fine() -> None:
    class Recalled(Operator):
        items = Value(list[str], [])
        output = "key string, n long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self._items = self.items
            self.items.append(row.x)
            self.call_at(self.now_ms)
            yield key, len(self.items)

        def due(self, key: Any, time_ms: int) -> Iterator[Any]:
            self.items.append("due")
            yield key, len(self.items)

    with Harness(lambda s: s.key_by("key").process(Recalled), INPUT) as harness:
        assert harness.epoch([("a", "1"), ("b", "2")]) == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
