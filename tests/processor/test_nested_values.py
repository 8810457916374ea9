"""Values of nested types in a processor's state: any sequence makes an array, and no part is bent to its type."""

from __future__ import annotations

import array
import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman.errors import OutputMismatch
from ferryman.testing import Harness

INPUT = "key string, x string"


class Sets(StatefulProcessor):
    """Sets its state to a value in the first epoch, and says what it reads, twice."""

    def __init__(self, schema: str, value: Any) -> None:
        self.schema = schema
        self.value = value

    def init(self, handle: Any) -> None:
        self.kept = handle.getValueState("kept", self.schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if not self.kept.exists():
            self.kept.update((self.value,))
        yield Row(key=key[0], x=repr(self.kept.get()[0]))

    def close(self) -> None:
        pass


def build(schema: str, value: Any) -> Any:
    return lambda stream: stream.groupBy("key").transformWithState(Sets(schema, value), INPUT, "Update", "None")


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        ("v array<long>", (1, 2), [1, 2]),
        ("v array<string>", ("a", None), ["a", None]),
        ("v array<double>", array.array("d", [1.5]), [1.5]),
        ("v array<array<long>>", ((1,), [2.0]), [[1], [2]]),
        ("v map<string, array<long>>", {"a": (1,)}, {"a": [1]}),
        ("v struct<a: array<long>, b: string>", ((1,), "b"), Row(a=[1], b="b")),
        ("v struct<a: array<long>, b: string>", {"a": (1,)}, Row(a=[1], b=None)),
    ],
)
def test_any_sequence_is_an_array(schema: str, value: Any, read: Any) -> None:
    with Harness(build(schema, value), INPUT) as harness:
        assert [harness.epoch([("a", "")]) for _ in range(2)][1] == [("a", repr(read))]


def test_it_is_read_in_its_own_epoch_as_later() -> None:
    with Harness(build("v array<long>", (1, 2)), INPUT) as harness:
        assert [harness.epoch([("a", "")]) for _ in range(2)] == [[("a", "[1, 2]")]] * 2


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        ("v map<double, long>", {1: 1}, {1.0: 1}),
        ("v map<string, map<double, long>>", {"a": {1: 1}}, {"a": {1.0: 1}}),
        ("v array<map<long, long>>", [{1.0: 1}], [{1: 1}]),
        ("v map<date, long>", {datetime.datetime(2024, 1, 1, 5): 1}, {datetime.date(2024, 1, 1): 1}),
        ("v map<decimal(5,1), long>", {Decimal("1.25"): 1}, {Decimal("1.3"): 1}),
        ("v map<struct<a: double>, long>", {(1,): 1}, {Row(a=1.0): 1}),
        ("v map<float, long>", {0.1: 1}, {0.10000000149011612: 1}),
        ("v array<float>", [2**24, 0.1], [16777216.0, 0.10000000149011612]),
    ],
)
def test_a_part_is_read_as_one_of_its_type_in_its_own_epoch_as_later(schema: str, value: Any, read: Any) -> None:
    with Harness(build(schema, value), INPUT) as harness:
        assert [harness.epoch([("a", "")]) for _ in range(2)] == [[("a", repr(read))]] * 2


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("v array<float>", [2**24 + 1]),
        ("v struct<a: float>", (2**24 + 1,)),
        ("v map<string, float>", {"a": 2**24 + 1}),
        ("v map<float, long>", {2**24 + 1: 1}),
        ("v array<double>", [2**53 + 1]),
        ("v array<float>", [10**400]),
        ("v map<decimal(5,1), long>", {Decimal("1.25"): 1, Decimal("1.26"): 2}),
        ("v map<date, long>", {datetime.datetime(2024, 1, 1, hour): 1 for hour in (1, 2)}),
        ("v array<string>", ["a", 1]),
        ("v array<array<string>>", [["a"], [True]]),
        ("v map<string, string>", {"a": 1}),
        ("v map<string, long>", {1: 1}),
        ("v struct<a: long, b: string>", (1, 2)),
        ("v struct<a: long, b: string>", {"a": 1, "b": 2}),
        ("v array<long>", [1.5]),
        ("v array<string>", "text"),
        ("v struct<a: long, b: string>", (1,)),
    ],
)
def test_a_part_of_another_type_is_refused_with_its_key(schema: str, value: Any) -> None:
    with (
        Harness(build(schema, value), INPUT) as harness,
        pytest.raises(OutputMismatch, match=r"operator 'Sets', epoch 1, key .*'a'.*: state 'kept': field 'v' is decl"),
    ):
        harness.epoch([("a", "")])
