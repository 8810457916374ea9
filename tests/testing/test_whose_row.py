"""A row that does not fit is an error that names the key it was given for, and its epoch is not committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import List, Operator, Value, side
from ferryman.errors import OutputMismatch
from ferryman.testing import Harness

ROWS = [("a", 1), ("b", 2), ("c", 3), ("b", 4)]


class Giving(StatefulProcessor):
    def __init__(self, give: Callable[[str], Any]) -> None:
        self.give = give

    def init(self, handle: Any) -> None:
        handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        yield self.give(key[0])

    def close(self) -> None:
        pass


def refused(build: Callable[[Any], Any], *says: str) -> None:
    with Harness(build, "key string, x long") as harness:
        with pytest.raises(OutputMismatch) as error:
            harness.epoch(ROWS)
        for words in (*says, "epoch 1", "The epoch was not committed"):
            assert words in str(error.value)
        assert harness.epochs == 0


@pytest.mark.parametrize("wrong", [Row(key="b", n="many"), Row(other=1), ("b", 1)], ids=repr)
def test_a_row_of_a_processor(wrong: Any) -> None:
    def build(stream: Any) -> Any:
        processor = Giving(lambda key: wrong if key == "b" else Row(key=key, n=1))
        return stream.groupBy("key").transformWithState(processor, "key string, n long", "Update", "None")

    refused(build, "operator 'Giving'", "for key ('b',)")


@pytest.mark.parametrize("wrong", [{"key": ["b"], "n": ["many"]}, {"key": ["b"]}], ids=repr)
def test_a_frame_of_a_processor(wrong: Any) -> None:
    def build(stream: Any) -> Any:
        processor = Giving(lambda key: pd.DataFrame(wrong if key == "b" else {"key": [key], "n": [1]}))
        return stream.groupBy("key").transformWithStateInPandas(processor, "key string, n long", "Update", "None")

    refused(build, "operator 'Giving'", "for key ('b',)")


@pytest.mark.parametrize("state", [Value(int, 0), List(int)], ids=["values", "more state"])
@pytest.mark.parametrize(
    "wrong",
    [("x", 1, 2), ("x", "many"), side("odd", ("x", "many")), side("no", ())],
    ids=["too long", "another type", "another type aside", "no such side"],
)
def test_a_row_of_an_operator(state: Any, wrong: Any) -> None:
    class Op(Operator):
        output = "key string, n long"
        sides: ClassVar[Any] = {"odd": "key string, n long"}
        kept = state

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            yield wrong if row.x == 4 else (key, row.x)

    refused(lambda stream: stream.key_by("key").process(Op), "operator 'Op'", "for key 'b'")
