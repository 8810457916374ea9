"""A job on a clock of the user's own, which jumps forward a year and back, in a run and across a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from readings import Readings

from ferryman import Operator, Value
from ferryman.errors import InvalidConfiguration

NOW = 1_700_000_000_000
YEAR = 365 * 86_400_000


class Calls(Operator):
    """Have a call a second after each row, and remember the last row for two seconds."""

    last = Value(int, 0, ttl=2000)
    output = "key string, what string, id long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        yield key, "row", self.last
        self.last = row.id
        self.call_at(self.now_ms + 1000)

    def due(self, key: Any, at_ms: int) -> Iterator[Any]:
        yield key, "due", self.last


class Hands:
    """A clock whose hands the test sets."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def running(job: Readings, clock: Callable[[], int]) -> Any:
    stream = job.stream(clock=clock).key_by("key").process(Calls)
    return job.start(stream, trigger=None)


def put(job: Readings, number: int) -> None:
    job.put(number, [{"key": "k", "id": number, "value": 0.0}])


def seen(job: Readings) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in job.sink.rows()]


def test_a_job_goes_by_its_own_clock_through_jumps_and_restarts(
    spark: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job = Readings(spark, tmp_path, epochs=0)
    put(job, 1)
    clock = Hands(NOW)
    first = running(job, clock)
    assert first.wait_for(lambda: len(seen(job)) == 1, timeout=120)
    clock.ms = NOW + YEAR
    assert first.wait_for(lambda: ("k", "due", 0) in seen(job), timeout=60)
    first.stop()
    clock.ms = NOW + 5000
    with caplog.at_level(logging.WARNING, "ferryman"):
        second = running(job, clock)
        put(job, 2)
        assert second.wait_for(lambda: ("k", "row", 0) in seen(job)[2:], timeout=60)
        clock.ms += 1000
        assert second.wait_for(lambda: ("k", "due", 2) in seen(job), timeout=60), "no timer for a year"
        second.stop()

    back = [epoch.back_ms for epoch in second.progress() if epoch.back_ms]
    assert back == [YEAR - 5000], "said once, and seen in the progress"
    assert len([record for record in caplog.records if "time follows it back" in record.getMessage()]) == 1
    assert second.progress()[-1].time_ms == NOW + 6000
    # Spark's log does not have this time: it was written down before the epoch.
    assert job.log.intent().time_ms == NOW + 6000


def test_a_clock_that_gives_no_whole_number_is_named(spark: Any, tmp_path: Any) -> None:
    job = Readings(spark, tmp_path, epochs=1)

    job.fails(
        InvalidConfiguration,
        "gave 1.5. Let it give a whole number",
        stream=job.stream(clock=lambda: 1.5).key_by("key").process(Calls),
        committed=0,
    )
    with pytest.raises(InvalidConfiguration, match="clock=5: give a function"):
        job.ferry(clock=5)
