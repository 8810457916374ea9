"""A processor that hands the watermark on must not give rows that are behind it: Spark refuses that, and so do we."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside
from processor.test_processor import at
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman.errors import InvalidConfiguration, LateOutput
from ferryman.testing import Harness

INPUT = "sensor string, back long, time timestamp"
OUTPUT = "sensor string, at timestamp"


class Back(StatefulProcessor):
    """Give each row with a time that is some seconds back, or none."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        import datetime

        for row in rows:
            yield Row(sensor=key[0], at=None if row.back is None else row.time - datetime.timedelta(seconds=row.back))

    def close(self) -> None:
        pass


class PandasBack(Back):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        for frame in rows:
            yield pd.DataFrame({"sensor": key[0], "at": frame["time"] - pd.to_timedelta(frame["back"], unit="s")})


class Seen(StatefulProcessor):
    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield Row(sensor=key[0], at=max(row["at"] for row in rows))

    def close(self) -> None:
        pass


def chained(stream: Any, column: str = "at", *, pandas: bool = False, then: bool = True) -> Any:
    mark = stream.withWatermark
    grouped = mark("time", "5 seconds").groupBy("sensor")
    if pandas:
        made = grouped.transformWithStateInPandas(
            PandasBack(), OUTPUT, "Append", "EventTime", eventTimeColumnName=column
        )
    else:
        made = grouped.transformWithState(Back(), OUTPUT, "Append", "EventTime", eventTimeColumnName=column)
    return made.groupBy("sensor").transformWithState(Seen(), OUTPUT, "Append", "EventTime") if then else made


# In the third batch rows up to second 15 are late: the watermark of the second one.
IN_TIME = [[("a", 0, at(20))], [("a", 0, at(40)), ("b", 4, at(20))], [("a", 24, at(40))]]
BEHIND = [("a", 0, at(40)), ("b", 25, at(40))]


@pytest.mark.parametrize("pandas", [False, True])
def test_a_row_behind_the_watermark_is_refused_with_its_key(pandas: bool) -> None:
    with Harness(lambda stream: chained(stream, pandas=pandas), INPUT, instances=2) as harness:
        given = [sorted(harness.epoch(rows)) for rows in IN_TIME[:2]]
        assert given == [[("a", at(20))], [("a", at(40)), ("b", at(16))]]
        with pytest.raises(
            LateOutput, match=r"'(Pandas)?Back', epoch 3: for key \('b',\) it gave a row with 'at' 2024"
        ):
            harness.epoch(BEHIND)
        assert harness.epoch(IN_TIME[2]) == [("a", at(16))]


def test_it_is_so_without_another_operator_and_a_row_without_a_time_is_none_of_them() -> None:
    with Harness(lambda stream: chained(stream, then=False), INPUT) as harness:
        for rows in IN_TIME[:2]:
            harness.epoch(rows)
        assert harness.epoch([("a", None, at(40))]) == [("a", None)]
        with pytest.raises(LateOutput, match="eventTimeColumnName"):
            harness.epoch(BEHIND)


def test_without_a_name_for_the_column_any_time_may_come_out() -> None:
    with Harness(lambda stream: chained(stream, "", then=False), INPUT) as harness:
        for rows in IN_TIME[:2]:
            harness.epoch(rows)
        assert sorted(harness.epoch(BEHIND)) == [("a", at(40)), ("b", at(15))]


def test_a_column_that_is_no_time_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="'sensor' is of type string, and event time is a timestamp"):
        Harness(lambda stream: chained(stream, "sensor"), INPUT)


def test_spark_refuses_the_same_row(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give(*IN_TIME[:2], BEHIND)
    with pytest.raises(StreamingQueryException, match="EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED"):
        beside.on_spark(lambda df: chained(df, then=False), "append")
