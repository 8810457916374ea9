"""What a processor or function may be, and what of Spark it may use: as far as Spark goes, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from processor.kind import Telling
from pyspark import TaskContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row

from ferryman._spark.api.stream import Stream
from ferryman._spark.plan.schema import declared_struct
from ferryman.errors import InvalidConfiguration
from ferryman.testing import Harness

INPUT = "k string, n long"
BATCHES = [[("a", 1), ("b", 2), ("a", 3)], [("b", 4)], [("c", 5)]]


@pytest.fixture
def beside(spark: Any, tmp_path: Path) -> Beside:
    made = Beside(spark, tmp_path, INPUT)
    made.give(*BATCHES)
    return made


def processed(stream: Any, processor: Any) -> Any:
    return stream.groupBy("k").transformWithState(processor, "what string", "Update", "None")


class Plain:
    """A processor that is derived from nothing: Spark asks for the methods alone."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.seen.update(((self.seen.get() or (0,))[0] + len(list(rows)),))
        yield Row(what=f"{key} {self.seen.get()}")

    def close(self) -> None:
        pass


def test_a_class_of_ones_own_with_the_methods_will_do(spark: Any, tmp_path: Path) -> None:
    # Not watched: that derives from the class of the processor.
    beside = Beside(spark, tmp_path, INPUT)
    beside.give(*BATCHES)
    rows: dict[str, list[Any]] = {"spark": [], "ferryman": []}
    query = processed(beside.stream(), Plain()).writeStream.outputMode("update").foreachBatch(
        lambda frame, _: rows["spark"].extend(map(tuple, frame.collect()))
    ).option("checkpointLocation", str(tmp_path / "spark")).trigger(availableNow=True).start()  # fmt: skip
    query.awaitTermination()
    with Harness(lambda stream: processed(stream, Plain()), INPUT) as harness:
        for batch in BATCHES:
            rows["ferryman"] += map(tuple, harness.epoch(batch))
    same(rows["ferryman"], rows["spark"])


@pytest.mark.parametrize(
    ("odd", "says"),
    [(Plain, "not the class"), (object(), "init, handleInputRows, close"), (lambda: None, "init, handleInputRows")],
    ids=["class", "object", "function"],
)
def test_what_has_not_the_methods_is_refused_at_the_call(odd: Any, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        processed(Stream(None, declared_struct(INPUT, "input")), odd)


def test_a_function_may_use_broadcast_variables_and_accumulators(beside: Beside) -> None:
    context = beside.spark.sparkContext
    names = context.broadcast({"a": "anna", "b": "ben"})
    count = context.accumulator(0)

    def called(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        import pandas as pd

        rows = sum(map(len, frames))
        count.add(rows)
        yield pd.DataFrame({"what": [f"{names.value.get(key[0])} {rows}"]})

    def build(stream: Any) -> Any:
        return stream.groupBy("k").applyInPandasWithState(called, "what string", "n long", "update", "NoTimeout")

    ours = beside.on_ferryman(build)
    assert count.value == 5
    assert ("anna 2",) in ours
    same(ours, beside.on_spark(build))
    assert count.value == 10


class Named(Telling):
    def __init__(self, names: Any, count: Any) -> None:
        self.names, self.count = names, count

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.count.add(len(list(rows)))
        context = TaskContext.get()
        yield self.say(self.names.value.get(key[0]), context is not None and context.attemptNumber())


def test_a_processor_may_use_them_as_well(beside: Beside) -> None:
    """Where Spark cannot: its driver calls `init` in a process that has no broadcast variables."""
    context = beside.spark.sparkContext
    names, count = context.broadcast({"a": "anna"}), context.accumulator(0)
    rows = beside.on_ferryman(lambda stream: processed(stream, Named(names, count)))
    assert sorted(rows) == [("None 0",), ("None 0",), ("None 0",), ("anna 0",)]
    assert count.value == 5


class Deleting(Telling):
    """Use states that were deleted, and go on."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n long")
        self.list = handle.getListState("list", "n long")
        self.map = handle.getMapState("map", "n long", "n long")
        for name in ("value", "list", "map"):
            handle.deleteIfExists(name)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for use in (
            self.value.exists,
            self.value.get,
            lambda: self.value.update((1,)),
            self.value.clear,
            self.list.exists,
            lambda: self.list.appendValue((1,)),
            self.map.exists,
            lambda: self.map.getValue((1,)),
        ):
            try:
                yield self.say(use())
            except PySparkRuntimeError as error:
                yield self.say(type(error).__name__)


def test_the_error_of_a_deleted_state_can_be_caught_as_sparks(beside: Beside) -> None:
    def build(stream: Any) -> Any:
        return processed(stream, Deleting())

    same(beside.on_ferryman(build), beside.on_spark(build))
