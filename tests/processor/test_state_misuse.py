"""The edges of a processor's states: no time to live, empty lists, floats of 32 bits, as Spark has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman.errors import InvalidConfiguration, OperatorFailed
from ferryman.testing import Harness

INPUT = "key string, value double"
OUTPUT = "key string, found string"


def processed(stream: Any, processor: StatefulProcessor, mode: str = "None") -> Any:
    return stream.groupBy("key").transformWithState(processor, OUTPUT, "Update", mode)


class Lasting(StatefulProcessor):
    """All kinds of state, with a time to live of 0, and with floats that 32 bits do not hold."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "f float, d double, n int", ttlDurationMs=0)
        self.list = handle.getListState("list", "f float", ttlDurationMs=0)
        self.map = handle.getMapState("map", "f float", "f float", ttlDurationMs=0)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield Row(key=key[0], found=f"before {self.found()}")
            self.value.update((row.value, row.value, 1))
            self.list.appendValue((row.value,))
            self.map.updateValue((row.value,), (row.value,))
            yield Row(key=key[0], found=f"after {self.found()}")

    def found(self) -> str:
        value = self.value.get()
        entries = sorted((tuple(key), tuple(kept)) for key, kept in self.map.iterator())
        return str((value and tuple(value), [tuple(item) for item in self.list.get()], entries))

    def close(self) -> None:
        pass


def test_a_time_to_live_of_0_is_none_and_floats_are_rounded_at_once(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([("a", 0.1), ("a", 1 / 3)], [("a", 0.1), ("b", -0.7)])

    def build(df: Any) -> Any:
        return processed(df, Lasting())

    same(beside.on_ferryman(build), beside.on_spark(build))


def test_a_time_to_live_below_0_is_refused() -> None:
    class Negative(Lasting):
        def init(self, handle: Any) -> None:
            handle.getValueState("value", "n long", ttlDurationMs=-1)

    with pytest.raises(InvalidConfiguration, match="time to live of -1 ms"):
        Harness(lambda stream: processed(stream, Negative(), "ProcessingTime"), INPUT)


class Nested(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "a array<float>, m map<string, float>, s struct<f float, n int>")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield Row(key=key[0], found=repr(self.value.get()))
            self.value.update(([row.value, None], {"x": row.value}, (row.value, 3)))
            yield Row(key=key[0], found=repr(self.value.get()))

    def close(self) -> None:
        pass


def test_floats_inside_of_others_are_rounded_at_once_too() -> None:
    with Harness(lambda stream: processed(stream, Nested()), INPUT) as harness:
        (_, now) = harness.epoch([("a", 0.1)])
        assert "0.10000000149011612" in now[1]
        assert harness.epoch([("a", 0.1)])[0] == now


class Emptying(StatefulProcessor):
    """Give an empty list to a method of a list."""

    def __init__(self, method: str) -> None:
        self.method = method

    def init(self, handle: Any) -> None:
        self.list = handle.getListState("list", "f double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        getattr(self.list, self.method)([])
        return iter(())

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("method", "hint"), [("put", "Call clear"), ("appendList", "with something to add")])
def test_an_empty_list_is_refused_as_by_spark(spark: Any, tmp_path: Path, method: str, hint: str) -> None:
    def build(df: Any) -> Any:
        return processed(df, Emptying(method))

    beside = Beside(spark, tmp_path, INPUT)
    beside.give([("a", 1.0)])
    with pytest.raises(StreamingQueryException, match="EMPTY_LIST_VALUE"):
        beside.on_spark(build)
    with (
        Harness(build, INPUT) as harness,
        pytest.raises(OperatorFailed, match=f"state 'list': {method} got an empty list.* {hint}"),
    ):
        harness.epoch([("a", 1.0)])


class Looking(StatefulProcessor):
    """Give a method of a map a key that is no tuple."""

    def __init__(self, method: str) -> None:
        self.method = method

    def init(self, handle: Any) -> None:
        self.map = handle.getMapState("map", "room string", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        more = [(1,)] if self.method == "updateValue" else []
        getattr(self.map, self.method)("kitchen", *more)
        return iter(())

    def close(self) -> None:
        pass


@pytest.mark.parametrize("method", ["getValue", "containsKey", "updateValue", "removeKey"])
def test_the_key_of_a_map_is_a_tuple_and_the_error_says_how_to_write_it(method: str) -> None:
    with (
        Harness(lambda stream: processed(stream, Looking(method)), INPUT) as harness,
        pytest.raises(OperatorFailed, match=rf"state 'map': {method} got 'kitchen'.*Write {method}\(\('kitchen',\)"),
    ):
        harness.epoch([("a", 1.0)])


class Whole(StatefulProcessor):
    """Write whole numbers where others are declared."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "d double, f float, l long, e decimal(10,2)")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        list(rows)
        self.value.update((1, 2, 3.0, 4))
        yield Row(key=key[0], found=repr(self.value.get()))

    def close(self) -> None:
        pass


def test_a_number_of_another_type_is_kept_where_spark_keeps_null(spark: Any, tmp_path: Path) -> None:
    def build(df: Any) -> Any:
        return processed(df, Whole())

    beside = Beside(spark, tmp_path, INPUT)
    beside.give([("a", 1.0)], [("a", 1.0)])
    assert set(beside.on_spark(build)) == {("a", "(None, None, None, None)")}
    assert set(beside.on_ferryman(build)) == {("a", "(1.0, 2.0, 3, Decimal('4.00'))")}
