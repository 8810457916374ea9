"""Every state type, through epochs, splits, merges, snapshots, crashes and restores, equals Python's own."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from random_history import Kind, PerKey, kind_of, run_histories

from ferryman import Aggregating, Counter, Deque, Graph, List, Map, Operator, Queue, Reducing, Set, Value
from ferryman.errors import InvalidConfiguration, StateMisused
from ferryman.testing import Harness


@dataclass
class Mean:
    """An accumulator."""

    type = list[float]

    def create(self) -> list[float]:
        return [0.0, 0.0]

    def add(self, kept: list[float], value: float) -> list[float]:
        return [kept[0] + value, kept[1] + 1]

    def merge(self, one: list[float], other: list[float]) -> list[float]:
        return [one[0] + other[0], one[1] + other[1]]

    def result(self, kept: list[float]) -> float | None:
        return kept[0] / kept[1] if kept[1] else None


# For each type: the state, what can be done to it as (name, what Ferryman does, what Python's own does), how to look
# at it, and what Python begins with.
TYPES: dict[str, Any] = {
    "List": (
        List(int),
        {
            "append": (lambda s, x: s.append(x), lambda m, x: m.append(x)),
            "extend": (lambda s, x: s.extend([x, x + 1]), lambda m, x: m.extend([x, x + 1])),
            "replace": (lambda s, x: s.replace(range(x)), lambda m, x: m.__setitem__(slice(None), range(x))),
            "clear": (lambda s, x: s.clear(), lambda m, x: m.clear()),
        },
        lambda s: (list(s), len(s), bool(s)),
        list,
    ),
    "Deque": (
        Deque(int, 4),
        {
            "append": (lambda s, x: s.append(x), lambda m, x: m.append(x)),
            "extend": (lambda s, x: s.extend(range(x)), lambda m, x: m.extend(range(x))),
            "popleft": (lambda s, x: s.popleft() if s else None, lambda m, x: m.popleft() if m else None),
            "clear": (lambda s, x: s.clear(), lambda m, x: m.clear()),
        },
        lambda s: (list(s), len(s), bool(s)),
        lambda: deque(maxlen=4),
    ),
    "Map": (
        Map(int, list[dict[str, int]]),
        {
            "set": (lambda s, x: s.__setitem__(x, [{"n": x}]), lambda m, x: m.__setitem__(x, [{"n": x}])),
            "remove": (lambda s, x: s.pop(x, None), lambda m, x: m.pop(x, None)),
            "get": (lambda s, x: s.get(x), lambda m, x: m.get(x)),
            "has": (lambda s, x: x in s, lambda m, x: x in m),
            "clear": (lambda s, x: s.clear(), lambda m, x: m.clear()),
        },
        lambda s: (sorted(s.items()), len(s), bool(s)),
        dict,
    ),
    "Graph": (
        Graph(int, float),
        {
            "connect": (lambda s, x: s.__setitem__(x, x / 2), lambda m, x: m.__setitem__(x, x / 2)),
            "cut": (lambda s, x: s.pop(x, None), lambda m, x: m.pop(x, None)),
        },
        lambda s: (sorted(s.items()), len(s), bool(s)),
        dict,
    ),
    "Set": (
        Set(str),
        {
            "add": (lambda s, x: s.add(str(x)), lambda m, x: m.add(str(x))),
            "discard": (lambda s, x: s.discard(str(x)), lambda m, x: m.discard(str(x))),
            "has": (lambda s, x: str(x) in s, lambda m, x: str(x) in m),
            "clear": (lambda s, x: s.clear(), lambda m, x: m.clear()),
        },
        lambda s: (sorted(s), len(s)),
        set,
    ),
    "Counter": (
        Counter(int),
        {
            "count": (
                lambda s, x: s.__setitem__(x, s[x] + 1),
                lambda m, x: m.__setitem__(x, m.get(x, 0) + 1),
            ),
            "forget": (lambda s, x: s.pop(x, None) and None, lambda m, x: m.pop(x, None) and None),
        },
        lambda s: (sorted(s.items()), len(s)),
        dict,
    ),
    "Queue": (
        Queue(int, str),
        {
            "push": (
                lambda s, x: s.push(x, f"item {x}"),
                lambda m, x: (m.append((x, f"item {x}")), m.sort(key=lambda pair: pair[0]), None)[-1],
            ),
            "pop": (lambda s, x: s.pop() if s else None, lambda m, x: m.pop(0) if m else None),
            "peek": (lambda s, x: s.peek(), lambda m, x: m[0] if m else None),
            "until": (
                lambda s, x: s.until(x),
                lambda m, x: [m.pop(0) for _ in range(sum(pair[0] <= x for pair in m))],
            ),
        },
        lambda s: (list(s), len(s)),
        list,
    ),
    "Reducing": (
        Reducing(int, max),
        {
            "add": (lambda s, x: s.add(x), lambda m, x: m.append(max([x, *m])) or m.__setitem__(slice(None), m[-1:])),
            "clear": (lambda s, x: s.clear(), lambda m, x: m.clear()),
        },
        lambda s: s.result if not isinstance(s, list) else (s[0] if s else None),
        list,
    ),
    "Aggregating": (
        Aggregating(Mean()),
        {"add": (lambda s, x: s.add(x), lambda m, x: m.append(x))},
        lambda s: s.result if not isinstance(s, list) else (sum(s) / len(s) if s else None),
        list,
    ),
}


def kind(name: str) -> Kind:
    state, operations, look, begin = TYPES[name]
    model = PerKey({what: timeless(own) for what, (_, own) in operations.items()}, lambda m, _: look(m), begin)
    ours = {what: of_kept(does) for what, (does, _) in operations.items()}
    return kind_of(state, ours, lambda operator: look(operator.kept), lambda: copy.deepcopy(model))


def timeless(does: Any) -> Any:
    return lambda kept, x, now_ms: does(kept, x)


def of_kept(does: Any) -> Any:
    return lambda operator, x: does(operator.kept, x)


@pytest.mark.parametrize("store", [None, "rocksdb"])
@pytest.mark.parametrize("name", list(TYPES))
def test_a_random_history_equals_pythons_own(name: str, store: str | None) -> None:
    run_histories(kind(name), store=store, examples=4 if store else 10)


@pytest.mark.parametrize(
    ("state", "one", "other", "merged"),
    [
        (List(int), [1], [2, 3], [1, 2, 3]),
        (Deque(int, 2), [1, 2], [3], [2, 3]),
        (Set(int), {1, 2}, {2, 3}, {1, 2, 3}),
        (Counter(str), {"a": 1}, {"a": 2, "b": 1}, {"a": 3, "b": 1}),
        (Map(str, int, merge=max), {"a": 1}, {"a": 2}, {"a": 2}),
        (Map(str, int), {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        (Queue(int, str), [(1, "a"), (3, "c")], [(2, "b")], [(1, "a"), (2, "b"), (3, "c")]),
        (Reducing(int, max), 3, 5, 5),
        (Reducing(int, max), 3, None, 3),
        (Aggregating(Mean()), [1.0, 1.0], [4.0, 2.0], [5.0, 3.0]),
    ],
)
def test_two_parts_of_a_state_merge(state: Any, one: Any, other: Any, merged: Any) -> None:
    assert state.merge(one, other) == merged


def test_a_state_that_cannot_merge_says_so() -> None:
    with pytest.raises(InvalidConfiguration, match=r"a Map has no rule for it\. Give it one \(merge=\.\.\.\)"):
        Map(str, int).merge({"a": 1}, {"a": 2})


@pytest.mark.parametrize("kind", ["list", "map", "value"])
def test_a_value_changed_in_place_is_an_error_even_if_it_is_read_again(kind: str) -> None:
    class Changes(Operator):
        list = List(dict[str, int])
        map = Map(str, dict[str, int])
        value = Value(dict[str, int], {}, ttl=1000)
        output = "key string, n long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            if row.x:
                self.list.append({"a": 1})
                self.map["one"] = {"a": 1}
                self.value = {"a": 1}
            else:
                self.read()["a"] = 2
            yield key, self.read()["a"]

        def read(self) -> Any:
            return {"list": lambda: self.list[0], "map": lambda: self.map["one"], "value": lambda: self.value}[kind]()

    with Harness(lambda s: s.key_by("key").process(Changes), "key string, x long", now_ms=0) as harness:
        assert harness.epoch([("a", 1)]) == [("a", 1)]
        with pytest.raises(StateMisused, match=f"key 'a', state '{kind}': a value that was read was changed in place"):
            harness.epoch([("a", 0)])
