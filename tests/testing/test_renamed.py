"""Every type of state can be called otherwise with `alias`, and goes on with what was kept."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import pytest

from ferryman import (
    Counter,
    Deque,
    Graph,
    HyperLogLog,
    List,
    Map,
    Operator,
    PerInstance,
    Queue,
    Reducing,
    Reservoir,
    Set,
    TumblingWindow,
    Value,
)
from ferryman._log.check.verify import verify
from ferryman.errors import InvalidConfiguration, StateSchemaChanged
from ferryman.testing import Harness

INPUT = "key string, x long"

# For each type: how it is declared, what is done to it, and how it looks.
TYPES: dict[str, Any] = {
    "Value with a ttl": (
        lambda **a: Value(int, 0, ttl=1000, **a),
        lambda o, n, x: setattr(o, n, getattr(o, n) + x),
        lambda value: value,
    ),
    "List": (lambda **a: List(int, **a), lambda o, n, x: getattr(o, n).append(x), list),
    "List with a ttl": (lambda **a: List(int, ttl=1000, **a), lambda o, n, x: getattr(o, n).append(x), list),
    "Deque": (lambda **a: Deque(int, 3, **a), lambda o, n, x: getattr(o, n).append(x), list),
    "Map": (lambda **a: Map(int, int, **a), lambda o, n, x: getattr(o, n).update({x: x}), dict),
    "Graph": (lambda **a: Graph(int, int, **a), lambda o, n, x: getattr(o, n).update({x: x}), dict),
    "Set with a ttl": (lambda **a: Set(int, ttl=1000, **a), lambda o, n, x: getattr(o, n).add(x), sorted),
    "Counter": (lambda **a: Counter(int, **a), lambda o, n, x: getattr(o, n).update([x]), dict),
    "Queue": (lambda **a: Queue(int, int, **a), lambda o, n, x: getattr(o, n).push(x, x), list),
    "Reducing": (
        lambda **a: Reducing(int, operator.add, **a),
        lambda o, n, x: getattr(o, n).add(x),
        lambda state: state.result,
    ),
    "HyperLogLog with a ttl": (
        lambda **a: HyperLogLog(ttl=1000, **a),
        lambda o, n, x: getattr(o, n).add(x),
        lambda state: round(state.estimate()),
    ),
    "Reservoir": (
        lambda **a: Reservoir(int, 5, **a),
        lambda o, n, x: getattr(o, n).add(x),
        lambda state: state.sample(),
    ),
    "PerInstance": (
        lambda **a: PerInstance(int, int, merge=operator.add, **a),
        lambda o, n, x: setattr(getattr(o, n), "value", getattr(o, n).value + x),
        lambda state: state.value,
    ),
    "TumblingWindow": (
        lambda **a: TumblingWindow(1 << 50, Reducing(int, operator.add), **a),
        lambda o, n, x: getattr(o, n).add(o.now_ms, x),
        lambda state: [total for _, total in state.spans()],
    ),
}


def build(name: str, attribute: str, **options: Any) -> Any:
    make, does, look = TYPES[name]

    def process(self: Any, key: Any, row: Any) -> Iterator[Any]:
        if row.x:
            does(self, attribute, row.x)
        yield key, repr(look(getattr(self, attribute)))

    made = {"output": "key string, found string", "process": process, "n": Value(int, 0), attribute: make(**options)}
    return lambda stream: stream.key_by("key").process(type("Op", (Operator,), made))


@pytest.mark.parametrize("name", TYPES)
def test_it_goes_on_under_another_name(name: str) -> None:
    def found(rename: bool) -> list[Any]:
        with Harness(build(name, "old"), INPUT, instances=2, now_ms=0) as harness:
            rows = [harness.epoch([("a", 1), ("b", 2)])]
            if rename:
                harness.redeclare(build(name, "new", alias="old"))
            rows += [harness.epoch([("a", 3), ("b", 0)])]
            harness.snapshot()
            harness.restart()
            # What has a ttl and was not written since the first epoch is gone by now.
            harness.now_ms = 1100
            rows += [harness.epoch([("a", 0), ("b", 0)])]
            harness.tick(10_000)
            rows += [harness.epoch([("a", 4), ("b", 5)])]
            assert verify(harness.checkpoint).faults == ()
            return rows

    assert found(rename=True) == found(rename=False)


def test_windows_of_another_name_close() -> None:
    class Before(Operator):
        old = TumblingWindow(1000, Reducing(int, operator.add))
        output = "key string, total long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            getattr(self, "new" if hasattr(type(self), "new") else "old").add(self.now_ms, row.x)
            return iter(())

        def closed(self, key: Any, span: Any, result: int) -> Iterator[Any]:
            yield key, result

    renamed = {**vars(Before), "new": TumblingWindow(1000, Reducing(int, operator.add), alias="old")}
    del renamed["old"]
    after = type("Before", (Operator,), renamed)
    with Harness(lambda s: s.key_by("key").process(Before), INPUT, now_ms=0) as harness:
        harness.epoch([("a", 1)])
        harness.redeclare(lambda s: s.key_by("key").process(after))
        harness.epoch([("a", 2)])
        assert harness.tick(1000) == [("a", 3)]


def test_a_name_that_is_taken_is_refused() -> None:
    def process(self: Any, key: Any, row: Any) -> Iterator[Any]:
        return iter(())

    def two(**states: Any) -> Any:
        made = {"output": INPUT, "process": process, **states}
        return lambda stream: stream.key_by("key").process(type("Op", (Operator,), made))

    with pytest.raises(InvalidConfiguration, match="operator 'Op' keeps two states as 'old': one has that name"):
        Harness(two(old=List(str), new=List(int, alias="old")), INPUT)
    with Harness(two(old=List(int)), INPUT) as harness:
        harness.redeclare(two(new=List(int, alias="old")))
        # It is kept under its first name for good.
        with pytest.raises(StateSchemaChanged, match=r"state 'old': .* -> not there\n.*A new name needs alias"):
            harness.redeclare(two(new=List(int)))
