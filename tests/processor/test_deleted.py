"""`deleteIfExists` of what the same `init` declares, and what may not be done with a state that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman.errors import OperatorFailed
from ferryman.testing import Harness

INPUT = "k string, v long"
OUTPUT = "k string, n long"


class Counting(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n = (self.count.get() or (0,))[0] + len(list(rows))
        self.count.update((n,))
        yield Row(k=key[0], n=n)

    def close(self) -> None:
        pass


class DeclaredAndDeleted(Counting):
    """Declare states as ever, and delete those that an earlier version needed."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.old = handle.getValueState("old", "n long")
        self.older = handle.getListState("older", "n long")
        self.oldest = handle.getMapState("oldest", "n long", "n long")
        for name in ("old", "older", "oldest"):
            handle.deleteIfExists(name)


class Using(DeclaredAndDeleted):
    def __init__(self, use: Any) -> None:
        self.use = use

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.use(self)
        yield Row(k=key[0], n=0)


def build(processor: StatefulProcessor) -> Any:
    return lambda df: df.groupBy("k").transformWithState(processor, OUTPUT, "Update", "None")


def test_a_state_declared_and_deleted_in_one_init_is_no_hindrance(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([("a", 1), ("b", 1)], [("a", 2)])
    same(beside.on_ferryman(build(DeclaredAndDeleted())), beside.on_spark(build(DeclaredAndDeleted())))


@pytest.mark.parametrize(
    ("use", "state"),
    [
        (lambda self: self.old.get(), "old"),
        (lambda self: self.older.appendValue((1,)), "older"),
        (lambda self: self.oldest.containsKey((1,)), "oldest"),
    ],
    ids=["value", "list", "map"],
)
def test_it_cannot_be_used_and_the_error_names_it(use: Any, state: str) -> None:
    with (
        Harness(build(Using(use)), INPUT) as harness,
        pytest.raises(OperatorFailed, match=f"state '{state}' was deleted in `init`"),
    ):
        harness.epoch([("a", 1)])


def test_nothing_is_deleted_outside_of_init() -> None:
    with (
        Harness(build(Using(lambda self: self.handle.deleteIfExists("count"))), INPUT) as harness,
        pytest.raises(OperatorFailed, match=r"deleteIfExists.*'count'.* in `init`"),
    ):
        harness.epoch([("a", 1)])
