"""Write to an MQTT broker: at least once, and exactly once for readers that remember which rows they have seen.

A topic cannot take messages back, so an epoch is published before its manifest, and then noted at the broker. One that
is redone has the same rows in the same order; if it is noted, nothing is sent. Each message says which epoch and row it
is. Calls `Publishing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash
from pyspark.sql import DataFrame

from ferryman._engine.mqtt_messages import Message, Note, Publishing
from ferryman._model.errors import ForeignCheckpoint, InvalidConfiguration, SinkAhead, Superseded
from ferryman._serve.ingest.mqtt_options import MqttOptions, is_filter, paho

if TYPE_CHECKING:
    from ferryman._engine.sink import SinkStart


class MqttSink:
    """Write to an MQTT broker of version 5.

    The rows have a column `payload`, a string or bytes, and if they like `topic` and `retain`.
    """

    whole = True
    skips_silence = False
    told = False

    def __init__(self, options: MqttOptions, topic: str, *, name: str = "") -> None:
        paho()
        self._topic, self._name = topic, (name or topic)
        if not is_filter(topic) or set(topic) & set("+#") or set(self._name) & set("+#"):
            raise InvalidConfiguration.of([f"topic: {topic!r} cannot be published to; '+' and '#' are for readers"])
        self.label = f"mqtt:{self._name}"
        self._publishing = Publishing(options, self._name)
        self._job, self._term = "", 0

    def claim(self, job_id: str) -> int:
        """Refuse the output of another checkpoint; give the newest term that is noted."""
        self._job = job_id
        note = self._noted()
        return note.term if note is not None else 0

    def _noted(self) -> Note | None:
        note = self._publishing.note()
        if note is not None and note.job != self._job:
            raise ForeignCheckpoint(
                f"the MQTT sink {self._name!r} has the output of a job with another checkpoint; readers could not tell "
                "its epochs from those of this job. Give this one another name: sinks.mqtt(..., name=...)."
            )
        if note is not None and note.term > self._term > 0:
            raise Superseded(f"run {note.term} of this job writes to {self.label}, and this is run {self._term}.")
        return note

    def begin(self, start: SinkStart) -> None:
        """Take over from older runs; refuse a checkpoint that has fewer epochs than were published."""
        self._term = start.term
        note = self._noted() or Note(self._job, 0, start.epoch)
        # One more is what a driver had published that died before the manifest.
        if note.epoch - start.epoch > 1:
            raise self._ahead(note, f"and its checkpoint goes to epoch {start.epoch}")
        self._publishing.send([], Note(self._job, self._term, note.epoch, note.rows, note.digest))

    def _ahead(self, note: Note, why: str) -> SinkAhead:
        return SinkAhead(
            f"{self.label} has published up to epoch {note.epoch} of this job, {why}: that was restored from a backup "
            "or rewound, or its operators have changed in the middle of an epoch. What was published cannot be taken "
            "back. To publish these epochs again, give the sink another name: sinks.mqtt(..., name=...)."
        )

    def write(self, rows: DataFrame, epoch: int) -> dict[str, Any]:
        """Bring the rows to the driver and publish them."""
        return self.write_table(rows.toArrow(), epoch)

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        """Publish the rows of an epoch, unless it is noted."""
        messages = self._messages(rows)
        now = Note(self._job, self._term, epoch, len(messages), _digest(messages))
        note = self._noted()
        if note is None or note.epoch < epoch:
            self._publishing.send(messages, now)
        elif note.epoch == epoch and (note.rows, note.digest) != (now.rows, now.digest):
            raise self._ahead(note, f"and now has other rows of epoch {epoch}")
        return {"rows": len(messages)}

    def _messages(self, rows: pa.Table) -> list[Message]:
        if "payload" not in rows.column_names:
            raise InvalidConfiguration(
                f"sinks.mqtt needs a column 'payload', a string or bytes, and the rows have "
                f"{', '.join(rows.column_names)}. Make one: "
                'stream.transform(lambda rows: rows.selectExpr("topic", "to_json(struct(*)) AS payload")).'
            )
        try:
            payloads = rows.column("payload").cast(pa.large_binary()).to_pylist()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidConfiguration(f"sinks.mqtt needs strings or bytes in 'payload': {error}. Cast it.") from error
        topics = self._column(rows, "topic", str)
        retains = self._column(rows, "retain", bool)
        return [
            Message(topic or self._topic, payload or b"", bool(retain))
            for topic, payload, retain in zip(topics, payloads, retains, strict=True)
        ]

    def _column(self, rows: pa.Table, name: str, kind: Callable[..., Any]) -> list[Any]:
        if name not in rows.column_names:
            return [None] * rows.num_rows
        return [None if value is None else kind(value) for value in rows.column(name).to_pylist()]

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Nothing to do: it is at the broker."""

    def let_go(self) -> None:
        """End the connection; another run makes one again."""
        self._publishing.close()


def _digest(messages: list[Message]) -> int:
    """Sum up messages, in any order."""
    total = sum(
        xxhash.xxh3_64_intdigest(message.payload, xxhash.xxh3_64_intdigest(message.topic.encode(), message.retain))
        for message in messages
    )
    return int(total % (1 << 62))


def mqtt(server: str, topic: str, *, name: str = "", username: str = "", password: str = "", tls: str = "") -> MqttSink:
    """Write to an MQTT broker of version 5, at QoS 1.

    Each message has the user properties `ferryman-job`, `ferryman-sink`, `ferryman-epoch` and `ferryman-row`. After a
    kill in the middle of an epoch its messages come again, with the same four: who drops what has the same has each row
    once.

    Parameters
    ----------
    server
        `host:port` of the broker.
    topic
        Where rows go that have no column `topic`.
    name
        What the sink is called: its note of the newest epoch is retained in `ferryman/epochs/NAME`. The topic, if left
        out.
    username, password
        Who asks.
    tls
        `system` to trust the authorities that this system knows, or a file of certificates.
    """
    options = MqttOptions(server=server, username=username, password=password, tls=tls)
    return MqttSink(options, topic, name=name)
