"""A value per instance: it goes where the key groups go, is merged there, and split if it can be."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import pytest

from ferryman import Operator, PerInstance, Value
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
        assert "Idle.seen" not in harness.checkpoint.manifest(2).tables
