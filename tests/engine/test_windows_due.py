"""When windows are looked for next, and how rows are counted that are late for them."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from ferryman import aggregates as a
from ferryman._engine.control import Control
from ferryman._engine.windows_due import next_window
from ferryman._spark.api.stream import Operated, Stream
from ferryman._spark.plan.schema import declared_struct
from ferryman.testing import Harness

INPUT = "key long, time timestamp, _rows string"


def at(second: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(second, datetime.timezone.utc)


def test_while_groups_wait_windows_are_looked_for_again_as_soon_as_they_are_there() -> None:
    source = Stream(None, declared_struct(INPUT, "input")).with_watermark("time", "1 second")
    sessions = source.key_by("key").session("time", "10 seconds").aggregate("Sessions", n=a.count())
    assert isinstance(sessions, Operated)
    now = Control(
        epoch=7,
        run_id="run",
        checkpoint="checkpoint",
        fsync=False,
        home=None,
        owner=(0,),
        tokens=(1,),
        newest=None,
        newest_same_routing=True,
        watermark_ms=50_000,
        due_ms=40_000,
    )
    assert next_window(sessions.spec, now, looked=True, made_us=None) == 60_000
    waits = dataclasses.replace(now, held=frozenset({3}))
    assert next_window(sessions.spec, waits, looked=True, made_us=None) == 40_000


def test_late_rows_are_counted_whatever_their_columns_are_called() -> None:
    def build(stream: Any) -> Any:
        return stream.with_watermark("time", "0 seconds").key_by("key").aggregate("Last", last=a.last("_rows"))

    with Harness(build, INPUT) as harness:
        for second in (10, 20):
            harness.epoch([(1, at(second), "a")])
        assert harness.epoch([(1, at(5), "b"), (1, at(4), None)]) == []
        latest = harness.checkpoint.latest()
        assert latest is not None
        assert latest.operators["Last"].late == 2
