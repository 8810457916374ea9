"""What a stream may be grouped by, and in which modes, on Spark and on Ferryman."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from processor.kind import Telling
from pyspark.sql import Row

from ferryman._spark.api.stream import Stream
from ferryman._spark.plan.schema import declared_struct
from ferryman.errors import InvalidConfiguration, MissingKey


class Counting(Telling):
    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.seen.update(((self.seen.get() or (0,))[0] + len(list(rows)),))
        yield self.say(key, self.seen.get())


def test_a_column_by_its_place_and_a_mode_that_says_nothing(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, value long")
    beside.give([("a", 1), ("b", 2)], [("a", 3)])

    def build(df: Any) -> Any:
        return df.groupBy(1).transformWithState(Counting(), "what string", "Complete", "None")

    same(beside.on_ferryman(build), beside.on_spark(build))


def stream() -> Stream:
    return Stream(None, declared_struct("sensor string, place struct<room:string>, value long", "input"))


def test_a_place_that_is_not_there_is_refused() -> None:
    for place in (0, -1, 4):
        with pytest.raises(InvalidConfiguration, match=f"groupBy got {place}"):
            stream().groupBy(place)


def test_a_field_of_a_struct_is_refused_with_the_line_to_write() -> None:
    with pytest.raises(InvalidConfiguration, match=r'F.col\("place.room"\).alias\("room"\)\).groupBy\("room"\)'):
        stream().groupBy("place.room")
    with pytest.raises(MissingKey):
        stream().groupBy("value.room")


def test_a_function_cannot_be_in_complete_mode() -> None:
    with pytest.raises(InvalidConfiguration, match="outputMode='complete': give 'Append', 'Update'"):
        stream().groupBy("sensor").applyInPandasWithState(print, "what string", "n long", "complete", "NoTimeout")
