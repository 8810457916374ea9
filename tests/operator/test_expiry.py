"""Time to live: what was not written for so long is gone, of every type of state, whatever else happens."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from random_history import PerKey, kind_of, run_histories

from ferryman import BloomFilter, Counter, Deque, HyperLogLog, List, Map, Operator, Queue, Reducing, Set, Value
from ferryman.errors import InvalidConfiguration, StateMisused
from ferryman.testing import Harness

TTL = 1000
Kept = list[tuple[int, Any]]


def alive(kept: Kept, now_ms: int) -> Kept:
    return [item for item in kept if item[0] > now_ms]


def nothing(_: Any) -> None:
    """Leave out what an operation gives: how that is seen is enough."""


def without(kept: Kept, x: int) -> Kept:
    return [item for item in kept if item[1][0] != x]


def at(kept: Kept, x: int) -> Any:
    return next((item[1][1] for item in kept if item[1][0] == x), None)


# For each type: the state, what can be done to it as (what Ferryman does, what is kept after it), how to look at it,
# and how to look at what a model keeps. A model keeps (when it expires, what) in order, and has only what is alive.
FADING: dict[str, Any] = {
    "Value": (
        Value(int, 0, ttl=TTL),
        {
            "set": (lambda o, x: setattr(o, "kept", x + 1), lambda m, x, until: [(until, x + 1)]),
            "forget": (lambda o, x: setattr(o, "kept", None), lambda m, x, until: []),
        },
        lambda o: o.kept,
        lambda m: m[0][1] if m else 0,
    ),
    "List": (
        List(int, ttl=TTL),
        {
            "append": (lambda o, x: o.kept.append(x), lambda m, x, until: [*m, (until, x)]),
            "extend": (lambda o, x: o.kept.extend(range(x)), lambda m, x, until: [*m, *((until, i) for i in range(x))]),
            "replace": (lambda o, x: o.kept.replace(range(x)), lambda m, x, until: [(until, i) for i in range(x)]),
            "clear": (lambda o, x: o.kept.clear(), lambda m, x, until: []),
        },
        lambda o: (list(o.kept), len(o.kept), bool(o.kept)),
        lambda m: ([value for _, value in m], len(m), bool(m)),
    ),
    "Deque": (
        Deque(int, 3, ttl=TTL),
        {
            "append": (lambda o, x: o.kept.append(x), lambda m, x, until: [*m, (until, x)][-3:]),
            "extend": (
                lambda o, x: o.kept.extend(range(x)),
                lambda m, x, until: [*m, *((until, i) for i in range(x))][-3:],
            ),
            "popleft": (lambda o, x: nothing(o.kept.popleft() if o.kept else None), lambda m, x, until: m[1:]),
        },
        lambda o: (list(o.kept), len(o.kept), bool(o.kept)),
        lambda m: ([value for _, value in m], len(m), bool(m)),
    ),
    "Map": (
        Map(int, int, ttl=TTL),
        {
            "set": (
                lambda o, x: o.kept.__setitem__(x, x * 2),
                lambda m, x, until: [*without(m, x), (until, (x, x * 2))],
            ),
            "remove": (lambda o, x: nothing(o.kept.pop(x, None)), lambda m, x, until: without(m, x)),
            "clear": (lambda o, x: o.kept.clear(), lambda m, x, until: []),
        },
        lambda o: (sorted(o.kept.items()), len(o.kept), bool(o.kept), 3 in o.kept),
        lambda m: (sorted(entry for _, entry in m), len(m), bool(m), at(m, 3) is not None),
    ),
    "Set": (
        Set(int, ttl=TTL),
        {
            "add": (lambda o, x: o.kept.add(x), lambda m, x, until: [*without(m, x), (until, (x,))]),
            "discard": (lambda o, x: o.kept.discard(x), lambda m, x, until: without(m, x)),
        },
        lambda o: (sorted(o.kept), len(o.kept)),
        lambda m: (sorted(member[0] for _, member in m), len(m)),
    ),
    "Counter": (
        Counter(int, ttl=TTL),
        {
            "count": (
                lambda o, x: o.kept.__setitem__(x, o.kept[x] + 1),
                lambda m, x, until: [*without(m, x), (until, (x, (at(m, x) or 0) + 1))],
            ),
            "update": (
                lambda o, x: o.kept.update({x: 2}),
                lambda m, x, until: [*without(m, x), (until, (x, (at(m, x) or 0) + 2))],
            ),
            "forget": (lambda o, x: nothing(o.kept.pop(x, None)), lambda m, x, until: without(m, x)),
        },
        lambda o: (sorted(o.kept.items()), o.kept.total()),
        lambda m: (sorted(entry for _, entry in m), sum(n for _, (_, n) in m)),
    ),
    "Queue": (
        Queue(int, str, ttl=TTL),
        {
            "push": (
                lambda o, x: o.kept.push(x, f"item {x}"),
                lambda m, x, until: sorted([*m, (until, (x, f"item {x}"))], key=lambda item: item[1][0]),
            ),
            "pop": (lambda o, x: nothing(o.kept.pop() if o.kept else None), lambda m, x, until: m[1:]),
            "until": (
                lambda o, x: nothing(o.kept.until(x)),
                lambda m, x, until: [item for item in m if item[1][0] > x],
            ),
        },
        lambda o: (list(o.kept), len(o.kept), o.kept.peek()),
        lambda m: ([item for _, item in m], len(m), m[0][1] if m else None),
    ),
    "Reducing": (
        Reducing(int, max, ttl=TTL),
        {
            "add": (lambda o, x: o.kept.add(x), lambda m, x, until: [(until, max([x, *(value for _, value in m)]))]),
            "clear": (lambda o, x: o.kept.clear(), lambda m, x, until: []),
        },
        lambda o: o.kept.result,
        lambda m: m[0][1] if m else None,
    ),
    # As a whole: every value that is added lets all live on.
    "BloomFilter": (
        BloomFilter(1000, ttl=TTL),
        {
            "add": (lambda o, x: o.kept.add(x), lambda m, x, until: [*((until, value) for _, value in m), (until, x)]),
            "clear": (lambda o, x: o.kept.clear(), lambda m, x, until: []),
        },
        lambda o: [x for x in range(6) if x in o.kept],
        lambda m: sorted({value for _, value in m}),
    ),
    "HyperLogLog": (
        HyperLogLog(ttl=TTL),
        {"add": (lambda o, x: o.kept.add(x), lambda m, x, until: [*((until, value) for _, value in m), (until, x)])},
        lambda o: round(o.kept.estimate()),
        lambda m: len({value for _, value in m}),
    ),
}


def own(after: Any) -> Any:
    """Make an operation of a model, on a list in place, of what is kept after it."""

    def does(kept: Kept, x: int, now_ms: int) -> None:
        kept[:] = after(alive(kept, now_ms), x, now_ms + TTL)

    return does


@pytest.mark.parametrize("store", [None, "rocksdb"])
@pytest.mark.parametrize("name", list(FADING))
def test_a_random_history_equals_a_list_with_times(name: str, store: str | None) -> None:
    state, operations, look, seen = FADING[name]
    operations = {**operations, "look": (lambda o, x: None, lambda m, x, until: m)}

    def model() -> PerKey:
        does = {what: own(after) for what, (_, after) in operations.items()}
        return PerKey(does, lambda kept, now_ms: seen(alive(kept, now_ms)), list)

    kind = kind_of(state, {what: does for what, (does, _) in operations.items()}, look, model)
    run_histories(kind, store=store, examples=2 if store else 8)


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


@pytest.mark.parametrize("kind", [lambda ttl: List(float, ttl=ttl), lambda ttl: Value(int, 0, ttl=ttl)])
@pytest.mark.parametrize(
    ("ttl", "hint"),
    [
        ("3 days", r"ttl='3 days': give milliseconds above 0 \(259200000\), or leave it out"),
        (datetime.timedelta(minutes=1), r"give milliseconds above 0 \(60000\)"),
        ("a while", "give milliseconds above 0, or"),
        ([1000], "give milliseconds above 0, or"),
        (True, "give milliseconds above 0, or"),
        (0.5, "give milliseconds above 0, or"),
        (0, "give milliseconds above 0, or"),
    ],
)
def test_a_ttl_that_is_no_number_of_milliseconds_is_refused_with_what_to_write(kind, ttl, hint) -> None:
    with pytest.raises(InvalidConfiguration, match=hint):
        kind(ttl)


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


def test_a_synopsis_with_a_ttl_lives_on_when_what_is_added_leaves_it_as_it_is() -> None:
    class Knows(Operator):
        seen = BloomFilter(100, ttl=TTL)
        output = "key string, there boolean"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            if row.x:
                self.seen.add(row.x)
            yield key, 1 in self.seen

    with Harness(lambda s: s.key_by("key").process(Knows), "key string, x long", now_ms=0) as harness:
        found = []
        for now_ms, x in [(0, 1), (700, 1), (1100, 0), (1699, 0), (1700, 0)]:
            harness.now_ms = now_ms
            found += [there for _, there in harness.epoch([("a", x)])]
        assert found == [True, True, True, True, False]


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
