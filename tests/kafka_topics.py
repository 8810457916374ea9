"""Topics of a real broker as tests see them: made, filled, read as far as they are committed, and taken away."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import kafka_broker
from until import until

kafka: Any = None


class Topics:
    """The topics of a broker."""

    def __init__(self, servers: str) -> None:
        global kafka
        kafka = importlib.import_module("confluent_kafka")
        self.servers = servers
        self._settings = {"bootstrap.servers": servers, "log_level": "2"}
        self.admin = importlib.import_module("confluent_kafka.admin").AdminClient(self._settings)

    def make(self, topic: str, partitions: int = 1) -> None:
        admin = importlib.import_module("confluent_kafka.admin")
        self.admin.create_topics([admin.NewTopic(topic, num_partitions=partitions)])[topic].result(60)
        until(lambda: topic in self.admin.list_topics(timeout=30).topics, f"there is no topic {topic}")

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(60)
        until(lambda: topic not in self.admin.list_topics(timeout=30).topics, f"topic {topic} stays")

    def forget(self, topic: str, before: int) -> None:
        """Take away what is before an offset, as the retention does."""
        place = kafka.TopicPartition(topic, 0, before)
        self.admin.delete_records([place])[place].result(60)

    def send(self, topic: str, rows: Iterable[tuple[str | None, str]]) -> None:
        producer = kafka.Producer({**self._settings, "partitioner": "murmur2_random"})
        for key, value in rows:
            producer.produce(topic, key=key, value=value)
        assert producer.flush(60) == 0, "the broker does not take them"

    def read(self, topic: str) -> list[Any]:
        """Read what is committed, partition by partition."""
        consumer = kafka.Consumer(
            {
                **self._settings,
                "group.id": "tests",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed",
            }
        )
        try:
            known = consumer.list_topics(topic, timeout=30).topics[topic]
            if known.error is not None:
                return []
            found, ends = [], 0
            consumer.assign([kafka.TopicPartition(topic, number, 0) for number in known.partitions])
            while ends < len(known.partitions):
                record = consumer.poll(30)
                assert record is not None, "the broker does not answer"
                if record.error() is None:
                    found.append(record)
                else:
                    ends += 1
            return found
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        """Give the offsets of a consumer group; -1 where it has none."""
        consumer = kafka.Consumer({**self._settings, "group.id": group})
        try:
            asked = [kafka.TopicPartition(topic, number) for number in range(partitions)]
            return [max(-1, place.offset) for place in consumer.committed(asked, timeout=60)]
        finally:
            consumer.close()


def add_connector(spark: Any) -> None:
    """Let a session that runs read Kafka; a session of one's own gets the same files as `spark.jars`."""
    gateway = spark.sparkContext._gateway
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in kafka_broker.connector():
        # What is there already is not added again.
        loader.addURL(gateway.jvm.java.io.File(str(jar)).toURI().toURL())
