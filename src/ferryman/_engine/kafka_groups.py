"""The offsets of a consumer group of Kafka's, which alarms on lag look at: told from outside, as nobody is a member.

Spark reads without a group of its own, and keeps its offsets to itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ferryman._engine.kafka_lag import Offsets
from ferryman._engine.kafka_transactions import client

PATIENCE_S = 6.0


@dataclass(frozen=True)
class ConsumerGroup:
    """A group to which it is told how far a source was read.

    Attributes
    ----------
    name
        The group's.
    settings
        How to reach the brokers, by the names of librdkafka.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)


class GroupOffsets:
    """Tell a group's offsets, as a consumer that joins nothing and reads nothing.

    An AdminClient can do that too, but where its call times out, librdkafka may end the process when the broker answers
    late (confluentinc/librdkafka#4605).
    """

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._consumer: Any = None

    def tell(self, offsets: Offsets) -> None:
        """Commit offsets, or raise what keeps the brokers from it, after some seconds."""
        kafka = client()
        if self._consumer is None:
            self._consumer = kafka.Consumer(
                {
                    # What goes wrong is raised; the library need not write it to the screen too.
                    "log_level": "2",
                    # How long it waits for brokers that are away, and for an answer.
                    "session.timeout.ms": f"{PATIENCE_S * 1000:.0f}",
                    "socket.timeout.ms": f"{PATIENCE_S * 1000:.0f}",
                    **self._group.settings,
                    "group.id": self._group.name,
                    "enable.auto.commit": "false",
                }
            )
        places = [
            kafka.TopicPartition(topic, int(part), offset)
            for topic, parts in offsets.items()
            for part, offset in parts.items()
        ]
        for place in self._consumer.commit(offsets=places, asynchronous=False):
            if place.error is not None:
                raise kafka.KafkaException(place.error)

    def close(self) -> None:
        """Let go of the brokers."""
        if self._consumer is not None:
            self._consumer.close()
