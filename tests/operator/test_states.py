"""Every state type, through epochs, splits, merges, snapshots, crashes and restores, equals Python's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ferryman import Aggregating, Counter, Deque, Graph, List, Map, Operator, Queue, Reducing, Set, Value
from ferryman.errors import InvalidConfiguration, StateMisused
from ferryman.testing import Crash, Harness

KEYS = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(0, 5)


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


def operator_of(name: str) -> type[Operator]:
    state, operations, look, _ = TYPES[name]

    class Does(Operator):
        kept = state
        touched = Value(int, 0)
        output = "key string, found string"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self.touched += 1
            gave = operations[row.what][0](self.kept, row.x)
            yield key, repr((gave, look(self.kept), self.touched))

    return Does


def machine_of(name: str, store: str | None) -> type[RuleBasedStateMachine]:
    _, operations, look, begin = TYPES[name]

    class History(RuleBasedStateMachine):
        @initialize()
        def start(self) -> None:
            self.harness = Harness(
                lambda stream: stream.key_by("key").process(operator_of(name)),
                "key string, what string, x long",
                instances=2,
                groups=4,
                store=store,
            )
            self.models: dict[int, dict[str, Any]] = {0: {}}
            self.model: dict[str, Any] = {}

        @rule(
            done=st.lists(st.tuples(KEYS, st.sampled_from(sorted(operations)), SMALL), max_size=6),
            crash=st.sampled_from([False, False, False, True]),
        )
        def epoch(self, done: list[tuple[str, str, int]], crash: bool) -> None:
            before = copied(self.model)
            expected = []
            for key, what, x in done:
                kept, touched = self.model.setdefault(key, [begin(), 0])
                self.model[key][1] = touched + 1
                gave = operations[what][1](kept, x)
                expected.append((key, repr((gave, look(kept), touched + 1))))
            if crash:
                with pytest.raises(Crash):
                    self.harness.epoch(done, crash=True)
                self.model = before
                return
            assert sorted(self.harness.epoch(done)) == sorted(expected)
            self.models[self.harness.epochs] = copied(self.model)

        @rule(instances=st.integers(1, 4))
        def rescale(self, instances: int) -> None:
            self.harness.rescale(instances)

        @rule()
        def restart(self) -> None:
            self.harness.restart()

        @rule()
        def snapshot(self) -> None:
            self.harness.snapshot()

        @rule(data=st.data())
        def rewind(self, data: st.DataObject) -> None:
            epoch = data.draw(st.integers(0, self.harness.epochs))
            self.harness.rewind(epoch)
            self.model = copied(self.models[epoch])

        @invariant()
        def no_key_is_lost(self) -> None:
            if hasattr(self, "harness"):
                keys = [row["key"] for row in self.harness.state("Does")]
                assert keys == sorted(self.model)

        def teardown(self) -> None:
            if hasattr(self, "harness"):
                self.harness.close()

    return History


def copied(model: dict[str, Any]) -> dict[str, Any]:
    return {key: [kept.copy(), touched] for key, (kept, touched) in model.items()}


@pytest.mark.parametrize("store", [None, "rocksdb"])
@pytest.mark.parametrize("name", list(TYPES))
def test_a_random_history_equals_pythons_own(name: str, store: str | None) -> None:
    run_state_machine_as_test(
        machine_of(name, store),
        settings=settings(
            max_examples=8 if store else 25,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


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


@pytest.mark.parametrize("kind", ["list", "map", "set", "counter", "queue", "value", "plain"])
def test_what_is_not_written_again_expires(kind: str) -> None:
    class Fades(Operator):
        list = List(int, ttl=1000)
        map = Map(int, int, ttl=1000)
        set = Set(int, ttl=1000)
        counter = Counter(int, ttl=1000)
        queue = Queue(int, int, ttl=1000)
        value = Reducing(int, max, ttl=1000)
        plain = Value(int, 0, ttl=1000)
        output = "key string, found string"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            if row.x:
                self.list.append(row.x)
                self.map[row.x] = row.x
                self.set.add(row.x)
                self.counter[row.x] += 1
                self.queue.push(row.x, row.x)
                self.value.add(row.x)
                self.plain = row.x
            found = {
                "list": [*self.list],
                "map": [*self.map],
                "set": [*self.set],
                "counter": [*self.counter],
                "queue": [order for order, _ in self.queue],
                "plain": [self.plain] if self.plain else [],
                "value": [] if self.value.result is None else [self.value.result],
            }
            yield key, repr(found[kind])

    with Harness(lambda s: s.key_by("key").process(Fades), "key string, x long", now_ms=0, instances=2) as harness:
        assert harness.epoch([("a", 1)]) == [("a", "[1]")]
        harness.now_ms = 600
        later = "[2]" if kind in ("value", "plain") else "[1, 2]"
        assert harness.epoch([("a", 2)]) == [("a", later)]
        harness.now_ms = 1100
        assert harness.epoch([("a", 0)]) == [("a", "[2]")]
        harness.restart()
        harness.now_ms = 1600
        assert harness.epoch([("a", 0)]) == [("a", "[]")]
        harness.tick(5000)
        tables = harness.checkpoint.job_card().tables
        assert {name: harness.state(name) for name in tables} == {name: [] for name in tables}


def test_a_value_with_a_ttl_lives_on_when_it_is_set_to_what_it_is() -> None:
    class Pulse(Operator):
        beat = Value(int, 0, ttl=1000)
        n = Value(int, 0)
        output = "key string, beat long, n long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self.n += 1
            if row.x >= 0:
                self.beat = row.x
            yield key, self.beat, self.n

    with Harness(lambda s: s.key_by("key").process(Pulse), "key string, x long", now_ms=0) as harness:
        assert harness.epoch([("a", 7)]) == [("a", 7, 1)]
        harness.now_ms = 900
        assert harness.epoch([("a", 7)]) == [("a", 7, 2)]
        harness.now_ms = 1800
        assert harness.epoch([("a", -1)]) == [("a", 7, 3)]
        harness.now_ms = 1900
        assert harness.epoch([("a", -1)]) == [("a", 0, 4)], "it was set for the last time at 900"


def test_a_value_with_a_ttl_that_is_changed_in_place_is_an_error() -> None:
    class Grows(Operator):
        some = Value(list[int], [], ttl=1000)
        output = "key string, n long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            if row.x:
                self.some = [*self.some, row.x]
            else:
                self.some.append(1)
            yield key, len(self.some)

    with Harness(lambda s: s.key_by("key").process(Grows), "key string, x long", now_ms=0) as harness:
        assert harness.epoch([("a", 1), ("a", 2)]) == [("a", 1), ("a", 2)]
        with pytest.raises(StateMisused, match="key 'a', state 'some': a value that was read was changed in place"):
            harness.epoch([("a", 0)])


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
