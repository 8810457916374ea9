"""A value per instance: it goes where the key groups go, is merged there, and split if it can be."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import strategies as st
from random_history import Kind, run_histories

from ferryman import Operator, PerInstance, Value
from ferryman._testing.local_executor import hashes_of
from ferryman.testing import Crash, Harness


def halves(value: int, parts: int) -> list[int]:
    return [value // parts + (number < value % parts) for number in range(parts)]


class Whole(Operator):
    n = Value(int, 0)
    seen = PerInstance(int, int, merge=operator.add)
    output = "key string, seen long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.n += 1
        self.seen.value += 1
        yield key, self.seen.value


class Split(Whole):
    seen = PerInstance(int, int, merge=operator.add, split=halves)


def total(harness: Harness, name: str) -> int:
    return sum(row["_value"]["part"] for row in harness.state(f"{name}.seen"))


@pytest.mark.parametrize("kind", [Whole, Split])
def test_it_follows_the_key_groups(kind: type[Operator]) -> None:
    with Harness(lambda s: s.key_by("key").process(kind), "key string", groups=8) as harness:
        keys = [(f"k{number}",) for number in range(30)]
        assert max(seen for _, seen in harness.epoch(keys)) == 30
        for number, instances in enumerate([3, 1, 8, 2, 2, 1], 2):
            harness.rescale(instances)
            if number % 2:
                harness.restart()
                harness.snapshot()
            harness.epoch(keys)
            with pytest.raises(Crash):
                harness.epoch(keys, crash=True)
            assert total(harness, kind.__name__) == 30 * number
        harness.epoch()
        assert max(seen for _, seen in harness.epoch(keys)) == 30 * 8


class Parts:
    """A part per key group; an instance has those of its groups in one."""

    def __init__(self, kind: type[Operator]) -> None:
        self.kind = kind
        self.parts: dict[int, int] = {}

    def epoch(self, done: list[Any], harness: Harness) -> list[Any]:
        routing, told = harness._routing, []
        for instance in range(routing.instances):
            groups = [group for group, owner in enumerate(routing.owner) if owner == instance]
            value = sum(self.parts.pop(group, 0) for group in groups)
            mine = sum(routing.group(int(hashes_of([row])[0])) in groups for row in done)
            # In which order the keys come is not said.
            told += [("", value + number) for number in range(1, mine + 1)]
            value += mine
            parts = [value] if self.kind is Whole else halves(value, len(groups))
            self.parts.update(zip(groups, parts, strict=False))
        return told

    def check(self, harness: Harness) -> None:
        rows = harness.state("Counted.seen")
        assert {row["_group"]: row["_value"]["part"] for row in rows} == self.parts


@pytest.mark.parametrize("store", [None, "rocksdb"])
@pytest.mark.parametrize("kind", [Whole, Split])
def test_a_random_history_equals_a_part_per_group(kind: type[Operator], store: str | None) -> None:
    class Counted(kind):  # type: ignore[misc, valid-type]
        def process(self, key: Any, row: Any) -> Iterator[Any]:
            return (("", seen) for _, seen in super().process(key, row))

    keys = st.sampled_from([f"k{number}" for number in range(8)])
    run_histories(
        Kind(lambda s: s.key_by("key").process(Counted), "key string", st.tuples(keys), lambda: Parts(kind)),
        store=store,
        examples=4 if store else 10,
    )


def test_what_can_be_split_is_shared_among_new_instances() -> None:
    with Harness(lambda s: s.key_by("key").process(Split), "key string", groups=8) as harness:
        harness.epoch([(f"k{number}",) for number in range(80)])
        harness.rescale(4)
        # Each of the four begins with a quarter.
        first = {}
        for key, seen in harness.epoch([(f"k{number}",) for number in range(80)]):
            first.setdefault(seen, key)
        assert min(first) == 21


def test_an_epoch_that_does_not_change_it_writes_nothing() -> None:
    class Idle(Operator):
        n = Value(int, 0)
        seen = PerInstance(int, int, merge=operator.add)
        output = "key string, seen long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self.n += 1
            self.seen.value += row.x
            yield key, self.seen.value

    with Harness(lambda s: s.key_by("key").process(Idle), "key string, x long") as harness:
        harness.epoch([("a", 5)])
        harness.epoch([("a", 0)])
        assert harness.checkpoint.manifest(1).tables["Idle.seen"]
        assert not harness.checkpoint.manifest(2).tables["Idle.seen"]
