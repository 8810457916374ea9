"""MQTT as a stream: every message that the broker was told is received comes once per offset, in its order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mqtt_broker import PASSWORD, USER, Broker, Publisher, broker
from pyspark.sql import DataFrame, SparkSession
from until import until

from ferryman import Ferry, Operator, sinks
from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._serve.ingest.mqtt_receiver import SCHEMA
from ferryman.errors import InvalidConfiguration, JobFailed, SourceRefused, SourceRowsGone
from ferryman.sources import mqtt

MIB = 1 << 20


class Passed(Operator):
    output = "topic string, offset long, n long, repeats long"

    def process(self, key, row):  # type: ignore[no-untyped-def]
        yield key, row.offset, int(row.payload), row.repeats


class Calls:
    """Keep the rows of each call, in order; fail once, in the second call."""

    def __init__(self, *, fail: bool = False) -> None:
        self.rows: dict[int, list[Any]] = {}
        self.given_up: list[Any] | None = None
        self._fail = fail

    def __call__(self, frame: DataFrame, number: int) -> None:
        rows = [tuple(row) for row in frame.collect()]
        if self._fail and number == 1 and self.given_up is None:
            self.given_up = rows
            raise ConnectionError("away")
        assert number not in self.rows
        self.rows[number] = rows

    @property
    def all(self) -> list[Any]:
        return [row for number in sorted(self.rows) for row in self.rows[number]]


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[Broker]:
    with broker() as running:
        yield running


@pytest.fixture
def publisher(mosquitto: Broker) -> Iterator[Publisher]:
    publisher = Publisher(mosquitto)
    yield publisher
    publisher.end()


@pytest.fixture(autouse=True)
def ended(spark: SparkSession) -> Iterator[None]:
    """Stop what a test that fails has left."""
    yield
    for query in spark.streams.active:
        query.stop()


def messages(spark: SparkSession, server: Broker, path: Path, **more: Any) -> DataFrame:
    given = {"topics": "fleet/#", "username": USER, "password": PASSWORD, "log": path / "log", **more}
    return mqtt(spark, server.server, **given)


def start(frame: DataFrame, path: Path, calls: Calls) -> Any:
    stream = Ferry(frame.sparkSession, path / "checkpoint", idle=None).stream(frame).key_by("topic").process(Passed)
    return stream.write(sinks.foreach(calls)).start("messages", instances=2)


def test_messages_come_in_order_through_a_failure_and_a_restart(
    spark: SparkSession, tmp_path: Path, mosquitto: Broker, publisher: Publisher
) -> None:
    calls = Calls(fail=True)
    job = start(messages(spark, mosquitto, tmp_path, rows_per_epoch=50), tmp_path, calls)
    sent = iter(range(10_000))

    def some(condition: Any) -> bool:
        """Send until something holds: the session begins with the first connection."""
        publisher.publish((str(next(sent)) for _ in range(20)), "fleet/a")
        publisher.publish((str(next(sent)) for _ in range(20)), "fleet/b")
        return bool(condition())

    until(lambda: some(lambda: calls.given_up or not job.active), "the second epoch has failed", every=0.2)
    with pytest.raises(JobFailed, match="away"):
        job.wait()
    # Nobody receives, and the broker keeps them.
    some(lambda: True)
    job = start(messages(spark, mosquitto, tmp_path, rows_per_epoch=50), tmp_path, calls)
    last = next(sent)
    publisher.publish([str(last)], "fleet/b")
    until(lambda: any(n == last for _, _, n, _ in calls.all), "all have come")
    job.stop()

    assert calls.rows[1] == calls.given_up
    offsets = [offset for _, offset, _, _ in calls.all]
    assert sorted(offsets) == list(range(len(offsets)))
    for topic in ("fleet/a", "fleet/b"):
        numbers = [n for of, _, n, repeats in calls.all if of == topic and repeats is None]
        assert numbers == sorted(set(numbers))
    first = min(n for _, _, n, _ in calls.all)
    assert {n for _, _, n, _ in calls.all} == set(range(first, last + 1))
    # The receiver has ended with the job.
    IngestLog(tmp_path / "log", SCHEMA, patience_s=10).close()


def test_a_log_is_trimmed_as_epochs_commit_and_takes_more_than_it_has_room_for(
    spark: SparkSession, tmp_path: Path, mosquitto: Broker, publisher: Publisher
) -> None:
    calls = Calls()
    frame = messages(spark, mosquitto, tmp_path, max_bytes=MIB, keep_bytes=0)
    job = start(frame, tmp_path, calls)
    padding = " " * 10_000
    until(lambda: publisher.publish(["1"]) or calls.rows, "the job receives", every=0.2)
    publisher.publish(f"{padding}{number}" for number in range(2, 302))
    until(lambda: any(n == 301 for _, _, n, _ in calls.all), "three times as much has come")
    numbers = [n for _, _, n, _ in calls.all if n > 1]
    assert numbers == list(range(2, 302))
    assert sum(path.stat().st_size for path in (tmp_path / "log").iterdir()) <= MIB + 4096
    job.stop()


def test_wrong_credentials_end_the_job_with_what_to_do(spark: SparkSession, tmp_path: Path, mosquitto: Broker) -> None:
    job = start(messages(spark, mosquitto, tmp_path, password="wrong"), tmp_path, Calls())
    with pytest.raises(SourceRefused, match="username= and password="):
        job.wait()


@pytest.mark.slow
def test_a_log_that_was_replaced_is_refused(
    spark: SparkSession, tmp_path: Path, mosquitto: Broker, publisher: Publisher
) -> None:
    calls = Calls()
    job = start(messages(spark, mosquitto, tmp_path), tmp_path, calls)
    until(lambda: publisher.publish(["1"]) or calls.rows, "the job receives", every=0.2)
    job.stop()
    (tmp_path / "log").rename(tmp_path / "away")
    job = start(messages(spark, mosquitto, tmp_path), tmp_path, calls)
    with pytest.raises(SourceRowsGone, match="start with a new checkpoint"):
        job.wait()


def test_options_are_looked_at_before_spark_has_them(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="topics"):
        mqtt(spark, "localhost:1883", topics=[], log=tmp_path)
    with pytest.raises(InvalidConfiguration, match="host:port"):
        mqtt(spark, "localhost", topics="#", log=tmp_path)
    with pytest.raises(InvalidConfiguration, match="max_bytes"):
        mqtt(spark, "localhost:1883", topics="#", log=tmp_path, max_bytes=10)


def test_a_password_is_shown_to_nobody(spark: SparkSession, tmp_path: Path) -> None:
    frame = mqtt(spark, "localhost:1883", topics="#", log=tmp_path, username="me", password="hidden-well")
    assert "hidden-well" not in frame._jdf.queryExecution().toString()
