"""A processor that is started again with other schemas: what Spark lets pass with Avro passes, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman.errors import StateSchemaChanged
from ferryman.testing import Harness

INPUT = "k string, v long"
OUTPUT = "k string, found string"


class Keeping(StatefulProcessor):
    """Keep a value in every kind of state, and tell what was kept before."""

    def __init__(self, schema: str, value: Any, ttl_ms: int | None = None) -> None:
        self.schema = schema
        self.value = value
        self.ttl_ms = ttl_ms

    def init(self, handle: Any) -> None:
        self.one = handle.getValueState("one", self.schema, self.ttl_ms)
        self.some = handle.getListState("some", self.schema, self.ttl_ms)
        self.many = handle.getMapState("many", "n long", self.schema, self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        list(rows)
        yield Row(k=key[0], found=str((self.one.get(), list(self.some.get()), list(self.many.iterator()))))
        self.one.update(self.value)
        self.some.put([self.value])
        self.many.updateValue((1,), self.value)

    def close(self) -> None:
        pass


def build(processor: StatefulProcessor, mode: str = "None") -> Any:
    return lambda df: df.groupBy("k").transformWithState(processor, OUTPUT, "Update", mode)


CHANGES = [
    ("a long, b long", (1, 2), "a long", (3,)),
    ("a long, b long", (1, 2), "b long", (3,)),
    ("a long, b string", (1, "x"), "b string, a long", ("y", 2)),
    ("a int", (1,), "a long, b string", (2, "x")),
    ("a struct<x: long, y: long>, b long", ((1, 2), 3), "a struct<y: long>", ((4,),)),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} -> {change[2]}")
def test_a_schema_may_lose_fields_as_with_spark(change: Any) -> None:
    first, value, second, other = change
    with Harness(build(Keeping(first, value)), INPUT) as harness:
        harness.epoch([("a", 1)])
        harness.redeclare(build(Keeping(second, other)))
        ((_, found),) = harness.epoch([("a", 1)])
        old = {"a": value[0], "b": value[1] if len(value) > 1 else None}
        kept = [old[field.split()[0]] for field in _fields(second)]
        if isinstance(kept[0], tuple):
            kept[0] = Row(y=kept[0][1])
        assert found == str((tuple(kept), [tuple(kept)], [((1,), tuple(kept))]))
        harness.snapshot()
        harness.restart()
        assert "None" not in harness.epoch([("a", 1)])[0][1]


def _fields(schema: str) -> list[str]:
    return [schema] if "<" in schema else schema.split(", ")


def test_fields_that_are_left_out_are_gone_on_spark_as_here(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([("a", 1)])
    setting = "spark.sql.streaming.stateStore.encodingFormat"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "avro")
    try:
        found = []
        for schema, value in (("a long, b long", (1, 2)), ("b long", (3,)), ("b long, c string", (4, "x"))):
            beside.give([("a", 1)])
            found.append([engine(build(Keeping(schema, value))) for engine in (beside.on_ferryman, beside.on_spark)])
        for ours, theirs in found:
            same(ours, theirs)
    finally:
        spark.conf.set(setting, before)


@pytest.mark.parametrize(
    ("second", "other"), [("c long", (3,)), ("a long, c long", (3, 4)), ("a string, b long", ("x", 1))]
)
def test_what_may_be_a_new_name_or_does_not_fit_is_refused_with_what_a_processor_can_say(
    second: str, other: Any
) -> None:
    with Harness(build(Keeping("a long, b long", (1, 2))), INPUT) as harness:
        harness.epoch([("a", 1)])
        with pytest.raises(StateSchemaChanged, match="Leave the old field out in one start") as caught:
            harness.redeclare(build(Keeping(second, other)))
        assert "alias" not in caught.value.message
        assert "dropped" not in caught.value.message


def test_a_field_that_was_left_out_does_not_come_back_with_old_values() -> None:
    with Harness(build(Keeping("a long, b long", (1, 2))), INPUT) as harness:
        harness.epoch([("a", 1)])
        harness.redeclare(build(Keeping("a long", (3,))))
        harness.epoch([("b", 1)])
        with pytest.raises(StateSchemaChanged, match="was given up by an earlier start"):
            harness.redeclare(build(Keeping("a long, b long", (5, 6))))


def test_a_time_to_live_may_come_and_fields_go_at_once() -> None:
    with Harness(build(Keeping("a long, b long", (1, 2)), "ProcessingTime"), INPUT) as harness:
        harness.epoch([("a", 1)])
        harness.redeclare(build(Keeping("a long", (3,), ttl_ms=10_000), "ProcessingTime"))
        assert harness.epoch([("a", 1)])[0][1].startswith("((1,)")
        with pytest.raises(StateSchemaChanged, match="_expires"):
            harness.redeclare(build(Keeping("a long", (3,)), "ProcessingTime"))
