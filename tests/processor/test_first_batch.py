"""Before any row was seen the watermark is at 1970, as Spark has it: what is due by then is due in the first batch."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class AtOnce(StatefulProcessor):
    """Ask for calls around the watermark."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        watermark = timerValues.getCurrentWatermarkInMs()
        for at in (watermark - 1, watermark, watermark + 1):
            self.handle.registerTimer(at)
        yield Row(k=key[0], what=f"{len(list(rows))} rows at {watermark}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(
            k=key[0], what=f"timer {expiredTimerInfo.getExpiryTimeInMs()} at {timerValues.getCurrentWatermarkInMs()}"
        )

    def close(self) -> None:
        pass


def at(seconds: float) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([[("a", at(60))], [("a", at(90)), ("b", at(91))], [("c", at(200))]], id="a timer at 0"),
        pytest.param([[("a", None)], [("b", at(60))], [("b", at(90))]], id="no time at first", marks=pytest.mark.slow),
        pytest.param(
            [[("a", at(-100)), ("z", at(0))], [("b", at(-90))], [("c", at(30))], [("d", at(1)), ("e", at(60))]],
            id="before 1970",
        ),
    ],
)
def test_the_watermark_begins_at_1970(spark: Any, tmp_path: Path, batches: list[Any]) -> None:
    beside = Beside(spark, tmp_path, "k string, time timestamp")
    beside.give(*batches)

    def build(df: Any) -> Any:
        return (
            df.withWatermark("time", "5 seconds")
            .groupBy("k")
            .transformWithState(AtOnce(), "k string, what string", "Append", "EventTime")
        )

    same(beside.on_ferryman(build), beside.on_spark(build, "append"))
