"""Kafka's transactions as a sink needs them: the rows of an epoch and a note of the epoch, all of it or nothing.

The note is in a topic of the sink's own, `ferryman-epochs-NAME`, of which Kafka keeps the newest record. Who comes to
write takes the sink's transactional id: Kafka then ends what the one before had begun and refuses what it sends. As a
driver that sleeps may take it back when it wakes up, it is the term in the note that says who may stay.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ferryman._model.errors import InvalidConfiguration, SinkMissing
from ferryman._model.json_values import Misshapen, mapped, text, whole

# How long a call to the brokers may take.
PATIENCE_S = 60
_STEP = 1000


@dataclass(frozen=True)
class Note:
    """What is noted of a sink: whose rows it has, and the newest epoch that had some.

    Attributes
    ----------
    digest
        What all rows of that epoch come to, in any order.
    """

    job: str
    term: int
    epoch: int
    rows: int = 0
    digest: int = 0

    @classmethod
    def parse(cls, raw: bytes | str | None) -> Note:
        """Read a note."""
        values = mapped(json.loads(raw or ""), "a note")
        numbers = {name: whole(values[name], name) for name in ("term", "epoch", "rows")}
        return cls(job=text(values["job"], "job"), digest=int(values["digest"]), **numbers)


@dataclass(frozen=True)
class Message:
    """A record to send."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int = -1
    headers: list[tuple[str, bytes]] | None = None


def client(wanted_by: str = "sinks.kafka") -> Any:
    """Give the client library."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise InvalidConfiguration(
            f"{wanted_by} needs confluent-kafka, which is not installed: pip install 'ferryman[kafka]'."
        ) from error
    return confluent_kafka


def _admin() -> Any:
    return importlib.import_module("confluent_kafka.admin")


class Transactions:
    """The transactions of one sink.

    Parameters
    ----------
    name
        The sink's.
    settings
        Those of librdkafka.
    """

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        self._name = name
        # What goes wrong is raised; the library need not write it to the screen too.
        self._settings = {"log_level": "2", **settings}
        self._topic = f"ferryman-epochs-{name}"
        self._producer: Any = None

    @property
    def taken(self) -> bool:
        """Tell whether this is the one who writes, as far as it knows."""
        return self._producer is not None

    def create(self) -> None:
        """Make the topic of notes, where it is not there."""
        kafka, admin = client(), _admin()
        topic = admin.NewTopic(
            self._topic,
            num_partitions=1,
            replication_factor=-1,
            config={"cleanup.policy": "compact", "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"},
        )
        brokers = admin.AdminClient(self._settings)
        try:
            # It ends by its own patience, with a reason.
            brokers.create_topics([topic], operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S)[
                self._topic
            ].result(2 * PATIENCE_S)
        except kafka.KafkaException as error:
            if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def note(self) -> Note | None:
        """Read the newest note, from the end backwards; None where there is none."""
        kafka = client()
        consumer = kafka.Consumer(
            {
                **self._settings,
                "group.id": self._topic,
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": "10",
            }
        )
        try:
            place = kafka.TopicPartition(self._topic, 0)
            first, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
            step = _STEP
            while True:
                start = max(first, end - step)
                found = self._newest_from(consumer, start)
                if found is not None or start == first:
                    return found
                step *= 10
        finally:
            consumer.close()

    def _newest_from(self, consumer: Any, start: int) -> Note | None:
        kafka = client()
        consumer.assign([kafka.TopicPartition(self._topic, 0, start)])
        newest, deadline = None, time.monotonic() + PATIENCE_S
        while True:
            record = consumer.poll(max(0.0, deadline - time.monotonic()))
            if record is None:
                # Brokers may be back soon: whoever calls tries again, and so does a supervisor.
                why = f"{self._topic} was not read to its end within {PATIENCE_S} s"
                raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT, why))
            if (error := record.error()) is None:
                newest = record.value()
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                break
            elif error.fatal() or not error.retriable():
                raise kafka.KafkaException(error)
        try:
            return None if newest is None else Note.parse(newest)
        except (ValueError, KeyError, TypeError, Misshapen) as error:
            raise SinkMissing(
                f"the newest record of {self._topic} is not a note of a Ferryman sink ({error}), so nobody can tell "
                "what its topic has. Give the sink another name."
            ) from error

    def take(self) -> None:
        """Become the one who writes: end what was begun by anybody else, and have Kafka refuse what they send."""
        self.let_go()
        producer = client().Producer(
            {
                # As Java's clients do, so that a key is in the same partition whoever writes it.
                "partitioner": "murmur2_random",
                "linger.ms": "5",
                **self._settings,
                "transactional.id": f"ferryman-{self._name}",
            }
        )
        producer.init_transactions(PATIENCE_S)
        self._producer = producer

    def let_go(self) -> None:
        """Leave off, with whatever was begun."""
        if (producer := self._producer) is not None:
            self._producer = None
            with contextlib.suppress(Exception):
                producer.purge()

    def send(self, messages: Iterable[Message], note: Note) -> None:
        """Send records and the note of them, in one transaction."""
        producer = self._producer
        producer.begin_transaction()
        for number, message in enumerate(messages):
            self._produce(message)
            if not number % 1000:
                producer.poll(0)
        self._produce(Message(self._topic, self._name.encode(), json.dumps(asdict(note)).encode()))
        producer.commit_transaction(PATIENCE_S)

    def _produce(self, message: Message) -> None:
        options: dict[str, Any] = {}
        if message.headers:
            options["headers"] = message.headers
        if message.partition >= 0:
            options["partition"] = message.partition
        while True:
            try:
                self._producer.produce(message.topic, value=message.value, key=message.key, **options)
                return
            except BufferError:
                # As many as it keeps are on their way.
                self._producer.poll(0.1)
