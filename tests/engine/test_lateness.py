"""How far event time has come in rows that are parts of one source."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ferryman import Operator
from ferryman._engine.lateness import watermarks_seen
from ferryman._spark.api.pipeline import operators_of
from ferryman._spark.api.stream import Operated, Stream
from ferryman._spark.api.watermark_names import name_watermarks
from ferryman._spark.plan.schema import declared_struct


class Seen(Operator):
    output = "key long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        yield (key,)


def source() -> Stream:
    return Stream(None, declared_struct("key long, time timestamp", "input"))


def seen(stream: Stream, times: list[tuple[int | None, int | None]]) -> dict[str, int]:
    """Give the watermarks that an operator on a union of two reports, given the time of each row in either."""
    operator = stream.key_by("key").process(Seen)
    assert isinstance(operator, Operated)
    name_watermarks(operators_of([operator]))
    kind = pa.timestamp("us", "UTC")
    columns: dict[str, Any] = {"key": pa.array([1] * len(times))}
    for number in (0, 1):
        given = [None if row[number] is None else at(row[number]) for row in times]
        columns[f"_time.{number}"] = pa.array(given, kind)
    return watermarks_seen(operator.spec, pa.table(columns))


def at(second: int | None) -> datetime.datetime:
    assert second is not None
    return datetime.datetime.fromtimestamp(second, datetime.timezone.utc)


@pytest.mark.parametrize("times", [[(100, None), (None, 50)], [(50, None), (None, 100)]])
def test_a_watermark_of_a_stream_that_was_parted_is_that_of_all_its_rows(times: Any) -> None:
    declared = source().with_watermark("time", "10 seconds")
    assert seen(declared.union(declared), times) == {"time": 90_000}


def test_parts_of_one_source_with_watermarks_of_their_own_do_not_share_a_name() -> None:
    rows = source()
    waits = rows.with_watermark("time", "10 seconds"), rows.with_watermark("time", "1 hour")
    assert seen(waits[0].union(waits[1]), [(100, None), (None, 50)]) == {
        "time@Seen": 90_000,
        "time@Seen#2": 50_000 - 3_600_000,
    }
