"""A broker, and the two pipelines that go from one topic to another: a count and the newest time of each key.

The broker is that of the tests: they bring it, and Spark's connector, from Maven's repository.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import ferryman.aggregates as agg
from ferryman import Ferry, Job, sinks

PARTITIONS = 2
SENT = "sent long"


def broker_module() -> Any:
    """Give the module that runs a broker."""
    tests = str(Path(__file__).resolve().parents[1] / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    return importlib.import_module("kafka_broker")


def make(servers: str, topic: str) -> None:
    topics = AdminClient({"bootstrap.servers": servers, "log_level": "2"})
    topics.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result(60)


def fill(servers: str, topic: str, rows: Iterable[tuple[str, str]]) -> None:
    """Send rows, each a key and a value."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": "20", "queue.buffering.max.messages": "1000000"})
    for number, (key, value) in enumerate(rows):
        producer.produce(topic, key=key, value=value)
        if not number % 1000:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the broker does not take the rows")


def consumer_of(servers: str) -> Any:
    """Give a reader of what is committed."""
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": "5",
        }
    )


def committed(servers: str, topic: str) -> Iterator[tuple[str, Any]]:
    """Give what a reader of what is committed finds: keys and values, partition by partition."""
    reader, ends = consumer_of(servers), 0
    try:
        reader.assign([TopicPartition(topic, part, 0) for part in range(PARTITIONS)])
        while ends < PARTITIONS:
            record = reader.poll(60)
            if record is None:
                raise RuntimeError("the broker does not answer")
            if record.error() is None:
                yield record.key().decode(), json.loads(record.value())
            else:
                ends += 1
    finally:
        reader.close()


def rows_of(spark: SparkSession, servers: str, topic: str, per_epoch: int | None) -> DataFrame:
    """Read a topic as both engines do."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if per_epoch is not None:
        reader = reader.option("maxOffsetsPerTrigger", per_epoch)
    parsed = F.from_json(F.col("value").cast("string"), SENT)
    return reader.load().select(F.col("key").cast("string").alias("key"), parsed["sent"].alias("sent"))


def _as_records(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("key", "to_json(struct(n, sent)) AS value")


def ferryman(rows: DataFrame, servers: str, topic: str, place: Path, **options: Any) -> Job:
    """Start Ferryman's: exactly once."""
    counts = Ferry(rows.sparkSession, checkpoint=str(place)).stream(rows).key_by("key")
    newest = counts.aggregate("counts", n=agg.count(), sent=agg.max("sent")).transform(_as_records)
    # The job itself has one output, so that the name of its sink may be that of its topic.
    return newest.write(sinks.kafka(servers, topic)).start("connectors", **options)


def spark_own(rows: DataFrame, servers: str, topic: str, place: Path, trigger: dict[str, Any]) -> StreamingQuery:
    """Start Spark's: at least once, as its own sink has it."""
    counted = rows.groupBy("key").agg(F.count("*").alias("n"), F.max("sent").alias("sent"))
    writer = (
        _as_records(counted)
        .writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", servers)
        # As Ferryman's has it; Spark's own default sends each row as it comes.
        .option("kafka.linger.ms", "5")
        .option("topic", topic)
        .option("checkpointLocation", str(place))
    )
    return (writer.trigger(**trigger) if trigger else writer).start()
