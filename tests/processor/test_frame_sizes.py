"""A key's rows come in frames of the size that Spark's settings say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

ROWS, BYTES = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"


class Sizes(StatefulProcessor):
    """Tell how many rows each frame has, also of those that are left unread."""

    def init(self, handle: Any) -> None:
        self.first = handle.getListState("first", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        told = [str((len(frame), frame["v"].tolist(), frame.index.tolist())) for frame in rows]
        told += [f"first {value[0]}" for value in self.first.get()]
        yield pd.DataFrame({"k": key[0], "told": told})

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.first.appendValue((len(initialState),))

    def close(self) -> None:
        pass


@pytest.fixture
def beside(spark: Any, tmp_path: Path) -> Iterator[Beside]:
    made = Beside(spark, tmp_path, "k string, v long")
    made.give([("a", number) for number in range(7)] + [("b", 1), ("c", 2), ("c", 3), ("c", 4)], [("a", 9)])
    before = {name: spark.conf.get(name) for name in (ROWS, BYTES)}
    yield made
    for name, value in before.items():
        spark.conf.set(name, value)


def sizes(df: Any, **more: Any) -> Any:
    return df.groupBy("k").transformWithStateInPandas(Sizes(), "k string, told string", "Update", "None", **more)


@pytest.mark.parametrize("rows", [3, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (7, 0))])
def test_no_frame_has_more_rows_than_spark_would_give_it(beside: Beside, rows: int) -> None:
    beside.spark.conf.set(ROWS, rows)
    same(beside.on_ferryman(sizes), beside.on_spark(sizes))


def test_the_initial_state_comes_in_such_frames_too(beside: Beside) -> None:
    beside.spark.conf.set(ROWS, 3)
    initial = beside.spark.createDataFrame([("x", number) for number in range(8)], "k string, n long")

    def build(df: Any) -> Any:
        return sizes(df, initialState=initial.groupBy("k"))

    beside.give([("x", 1)])
    same(beside.on_ferryman(build), beside.on_spark(build))


def test_a_function_gets_such_frames_too(beside: Beside) -> None:
    beside.spark.conf.set(ROWS, 3)

    def tell(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        import pandas as pd

        yield pd.DataFrame({"k": key[0], "told": [str(len(frame)) for frame in frames]})

    def build(df: Any) -> Any:
        return df.groupBy("k").applyInPandasWithState(tell, "k string, told string", "n long", "update", "NoTimeout")

    # Spark fills a batch with the rows of several keys, as they happen to lie in a partition: a key may be cut earlier.
    ours = beside.on_ferryman(build)
    assert sorted(ours) == [("a", "1"), ("a", "1"), ("a", "3"), ("a", "3"), ("b", "1"), ("c", "3")]
    assert all(int(size) <= 3 for _, size in beside.on_spark(build))


def test_the_limit_in_bytes_is_kept_too(beside: Beside) -> None:
    # Of seven rows of some 30 bytes.
    beside.spark.conf.set(BYTES, "64b")
    told = beside.on_ferryman(sizes)
    counts = [eval(text)[0] for key, text in told if key == "a"]
    assert sum(counts) == 8
    assert max(counts) < 7, told
