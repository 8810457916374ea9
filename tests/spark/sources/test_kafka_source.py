"""Rows out of Kafka, by Spark's own connector and against a real broker: in their order, once, also after kills."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_topics import Topics
from pyspark.sql import functions as F
from readings import SCHEMA, Trail, expected

from ferryman import Ferry, Operator, Value, side, sinks
from ferryman._engine.kafka_errors import kafka_error
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._os.faults import STEPS
from ferryman.errors import SourceRowsGone, SourceUnavailable

pytest.importorskip("confluent_kafka", reason="make install brings it")
pytestmark = pytest.mark.timeout(600)

DRIVE = Path(__file__).resolve().parents[2] / "faults" / "drive_kafka.py"
NUMBER = itertools.count()
ONCE = {"availableNow": True}


def rows(start: int, end: int) -> list[dict]:
    return [{"key": f"s-{number % 7}", "id": number, "value": number / 2} for number in range(start, end)]


def as_records(rows: list[dict]) -> list[tuple[str, str]]:
    return [(row["key"], json.dumps(row)) for row in rows]


def read(spark, topics: Topics, topic: str, **options):
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )


def parsed(frame):
    return frame.withColumn("row", F.from_json(F.col("value").cast("string"), SCHEMA)).select("row.*")


def ferry_of(spark, place: Path, **options) -> Ferry:
    return Ferry(spark, str(place / "checkpoint"), groups=8, idle=None, home=str(place / "home"), **options)


def trail(spark, place: Path, frame):
    """Run the job on what the topic has now; give its rows."""
    shown = sinks.memory()
    ferry_of(spark, place).stream(frame, "readings").key_by("key").process(Trail, name="Trail").write(shown).start(
        "readings", instances=2, trigger=ONCE
    ).wait()
    return sorted(tuple(row.values()) for row in shown.rows())


# -- order ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"minPartitions": "8"}], ids=["partitions", "parts-of-partitions"])
def test_rows_of_a_partition_stay_in_their_order_through_a_keyed_operator(
    with_connector, topics, topic, tmp_path, options
):
    topics.send(topic, as_records(rows(0, 500)))
    frame = read(with_connector, topics, topic, maxOffsetsPerTrigger=200, **options)

    assert trail(with_connector, tmp_path, parsed(frame)) == expected(rows(0, 500))[1]

    # And all of a partition, whose offsets are the order.
    places = frame.selectExpr("CAST(partition AS STRING) AS key", "offset AS id", "0.0D AS value")
    found = trail(with_connector, tmp_path / "places", places)
    sizes = {key: sum(place == key for place, _, _ in found) for key, _, _ in found}
    assert sum(sizes.values()) == 500
    assert found == expected({"key": key, "id": offset} for key, size in sizes.items() for offset in range(size))[1]


# -- kills ---------------------------------------------------------------------------------------------


def drive(topics: Topics, checkpoint: Path, source: str, target: str, *, cores: int = 2, fault: str = ""):
    return subprocess.Popen(
        [sys.executable, str(DRIVE), str(checkpoint), topics.servers, source, target, f"local[{cores}]"],
        env={**os.environ, "FERRYMAN_FAULT": fault},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def end(process) -> str:
    output, _ = process.communicate(timeout=240)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return output


def check_written(topics: Topics, target: str, rows: list[dict]) -> None:
    """Check that a reader of what is committed finds every row once, and those of a key in their order."""
    found = [tuple(json.loads(record.value()).values()) for record in topics.read(target)]
    assert sorted(found) == expected(rows)[1]
    for key in {key for key, _, _ in found}:
        counts = [n for place, n, _ in found if place == key]
        assert counts == list(range(1, len(counts) + 1))


@pytest.mark.slow
def test_an_epoch_whose_driver_was_killed_has_the_same_rows_again_and_they_are_in_kafka_once(topics, topic, tmp_path):
    checkpoint, target = tmp_path / "checkpoint", f"{topic}-out"
    topics.make(target, 2)
    topics.send(topic, as_records(rows(0, 150)))
    process = drive(topics, checkpoint, topic, target, fault="after-sink:2")
    output = end(process)
    assert process.returncode == -signal.SIGKILL, output
    assert Checkpoint(directory(str(checkpoint))).epochs() == [1]
    # Now there is more to read, by another number of tasks.
    topics.send(topic, as_records(rows(150, 200)))
    process = drive(topics, checkpoint, topic, target, cores=1)
    output = end(process)
    assert process.returncode == 0, output

    calls = sorted(Path(f"{checkpoint}-shown").iterdir())
    before, again = (call.read_text() for call in calls if call.name.startswith("0001-"))
    assert before == again, "the epoch that was redone has other rows"
    assert before.count("\n") > 30
    check_written(topics, target, rows(0, 200))
    assert not verify(Checkpoint(directory(str(checkpoint)))).faults


@pytest.mark.slow
def test_drivers_are_killed_at_every_step_and_each_row_goes_from_kafka_to_kafka_once(topics, topic, tmp_path):
    checkpoint, target = tmp_path / "checkpoint", f"{topic}-out"
    topics.make(target, 2)
    chance = random.Random(int(os.environ.get("FERRYMAN_SEED", "11")))
    sent = 0
    for step in STEPS:
        topics.send(topic, as_records(rows(sent, sent + 160)))
        sent += 160
        process = drive(
            topics, checkpoint, topic, target, cores=chance.choice([1, 2]), fault=f"{step}:{1 + (step != 'start')}"
        )
        output = end(process)
        assert process.returncode == -signal.SIGKILL, f"{step} was not reached:\n{output}"
    process = drive(topics, checkpoint, topic, target)
    output = end(process)
    assert process.returncode == 0, output
    check_written(topics, target, rows(0, sent))


# -- what is gone --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_that_kafka_has_deleted_are_missed_and_not_passed_over_unless_that_is_said(
    with_connector, topics, tmp_path
):
    topic = f"one-partition-{next(NUMBER)}"
    topics.make(topic)
    topics.send(topic, as_records(rows(0, 50)))
    trail(with_connector, tmp_path, parsed(read(with_connector, topics, topic)))
    topics.send(topic, as_records(rows(50, 100)))
    topics.forget(topic, before=80)

    with pytest.raises(SourceRowsGone, match=rf"partition {topic}-0\): its retention .*failOnDataLoss"):
        trail(with_connector, tmp_path, parsed(read(with_connector, topics, topic)))
    assert Checkpoint(directory(str(tmp_path / "checkpoint"))).epochs() == [1]

    left = trail(with_connector, tmp_path, parsed(read(with_connector, topics, topic, failOnDataLoss="false")))
    assert left == [row for row in expected(rows(0, 50) + rows(80, 100))[1] if row not in expected(rows(0, 50))[1]]


@pytest.mark.slow
def test_a_topic_that_was_deleted_is_missed_and_one_made_anew_is_not_taken_for_it(
    with_connector, topics, topic, tmp_path
):
    topics.send(topic, as_records(rows(0, 50)))
    trail(with_connector, tmp_path, parsed(read(with_connector, topics, topic)))
    topics.delete(topic)
    with pytest.raises(SourceUnavailable, match=r"wants a topic.*does not have.*If it was deleted"):
        trail(with_connector, tmp_path, parsed(read(with_connector, topics, topic)))

    topics.make(topic, 3)
    topics.send(topic, as_records(rows(0, 3)))
    with pytest.raises(SourceRowsGone, match=r"Partition \S+ offset was changed .*made anew"):
        trail(with_connector, tmp_path, parsed(read(with_connector, topics, topic)))


def test_what_kafka_has_against_a_job_is_said_with_what_to_do_and_other_errors_are_left_alone():
    java = "org.apache.kafka.common.errors."
    task = (
        "SparkException: Exception thrown in awaitResult:\n\tat org.apache.spark.util\nCaused by: "
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost because they are not "
        "available in Kafka any more;\ntopic was processed.\nReason: Could not read records in offset [50, 100) for "
        "topic partition b-0\nwith consumer group spark-kafka-source.\n\tat org.apache"
    )
    gone = kafka_error(task, "fleet")
    assert isinstance(gone, SourceRowsGone)
    assert "any more (Could not read records in offset [50, 100) for topic partition b-0): its" in gone.message
    for said, advice in (
        (f"{java}TimeoutException: Timed out waiting for a node assignment.", "kafka.bootstrap.servers"),
        (f"{java}SaslAuthenticationException: Authentication failed.", "kafka.sasl"),
        (f"{java}TopicAuthorizationException: Not authorized.", "what this user may do"),
    ):
        unavailable = kafka_error(f"ExecutionException: {said}\n\tat org.apache", "fleet")
        assert isinstance(unavailable, SourceUnavailable)
        assert advice in unavailable.message
    assert kafka_error("TimeoutException: Futures timed out after [300 seconds]", "fleet") is None


# -- garbage -------------------------------------------------------------------------------------------


class Readings(Operator):
    """Count the readings of a partition; put aside what is none."""

    n = Value(int, 0)
    output = "place string, id long, n long"
    sides = {"dead": "place string, offset long, raw binary, why string"}  # noqa: RUF012

    def process(self, key, row):
        try:
            reading = json.loads(row.value)
            number = int(reading["id"])
        except (TypeError, ValueError, KeyError) as error:
            yield side("dead", key, row.offset, row.value, type(error).__name__)
            return
        self.n += 1
        yield key, number, self.n


@pytest.mark.slow
def test_garbage_goes_to_a_dead_letter_topic_and_the_rest_goes_on(with_connector, topics, tmp_path):
    topic = f"one-partition-{next(NUMBER)}"
    topics.make(topic)
    topics.make(f"{topic}-dead")
    good = as_records(rows(0, 4))
    garbage = ["{", '{"id": "none"}', "{}", "\ufffd\u0000"]
    nameless = [(None, text) for text in garbage]
    topics.send(topic, [record for pair in zip(good, nameless, strict=True) for record in pair])
    places = read(with_connector, topics, topic).selectExpr("concat(topic, '-', partition) AS place", "offset", "value")
    ferry = ferry_of(with_connector, tmp_path)
    readings = ferry.stream(places).key_by("place").process(Readings)
    dead = readings.side("dead").transform(lambda rows: rows.selectExpr("place AS key", "raw AS value"))
    shown = sinks.memory()
    ferry.start(
        "readings",
        readings.write(shown),
        dead.write(sinks.kafka(topics.servers, f"{topic}-dead")),
        instances=2,
        trigger=ONCE,
    ).wait()

    assert [(row["id"], row["n"]) for row in shown.rows()] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [record.value().decode() for record in topics.read(f"{topic}-dead")] == garbage
