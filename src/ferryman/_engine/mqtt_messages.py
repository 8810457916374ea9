"""Publish the rows of an epoch to an MQTT broker, and note there which epoch it was.

The note is a retained message in a topic of the sink's own. It is sent when the broker has acknowledged all rows of the
epoch. Calls `MqttOptions`; knows nothing of Spark.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from ferryman._model.errors import SourceRefused
from ferryman._serve.ingest.mqtt_options import MqttOptions, connect, new_client

# How long to wait for a broker that answers nothing.
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Message:
    """A message, and what tells it from all others of a sink."""

    topic: str
    payload: bytes
    retain: bool = False


@dataclass(frozen=True)
class Note:
    """The newest epoch that is at the broker, of which job, by which run, and what was in it."""

    job: str
    term: int
    epoch: int
    rows: int = 0
    digest: int = 0


class Publishing:
    """A connection to a broker, made when it is needed.

    Parameters
    ----------
    options
        How to reach the broker.
    name
        What the sink is called.
    """

    def __init__(self, options: MqttOptions, name: str) -> None:
        self._options, self._name = options, name
        self._note_topic = f"ferryman/epochs/{name}"
        self._client: Any = None
        self._messages: dict[str, bytes] = {}
        self._sent = self._acknowledged = 0
        self._refused = ""
        self._changed = threading.Condition()

    def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
            self._client = None

    def note(self) -> Note | None:
        """Read the note.

        Raises
        ------
        ConnectionError
            The broker does not answer.
        """
        if self._client is not None and not self._client.is_connected():
            # Nothing is under way, so nothing of it is lost: a broker may restart between two epochs.
            self.close()
        client = self._connected()
        ping = f"ferryman/pings/{uuid.uuid4()}"
        client.subscribe([(self._note_topic, 1), (ping, 1)])
        # In one connection a broker answers in order: what is retained comes before this.
        client.publish(ping, b"", qos=1)
        self._sent += 1
        self._wait(lambda: ping in self._messages, "read the note of its epochs")
        client.unsubscribe([self._note_topic, ping])
        del self._messages[ping]
        found = self._messages.pop(self._note_topic, b"")
        try:
            note = Note(**json.loads(found)) if found else None
        except (ValueError, TypeError):
            return None
        return note if note is None or _sound(note) else None

    def send(self, messages: list[Message], note: Note) -> None:
        """Publish the messages of an epoch, each with its place in it; then note the epoch."""
        for place, message in enumerate(messages):
            self._publish(message, {"epoch": str(note.epoch), "row": str(place), "sink": self._name, "job": note.job})
        self._wait(self._all_acknowledged, f"publish epoch {note.epoch}")
        self._publish(Message(self._note_topic, json.dumps(asdict(note)).encode(), retain=True), {})
        self._wait(self._all_acknowledged, f"note epoch {note.epoch}")

    def _publish(self, message: Message, marks: dict[str, str]) -> None:
        properties = importlib.import_module("paho.mqtt.properties").Properties(
            importlib.import_module("paho.mqtt.packettypes").PacketTypes.PUBLISH
        )
        if marks:
            properties.UserProperty = [(f"ferryman-{name}", value) for name, value in marks.items()]
        # Not under the lock: the client has locks of its own, which its thread holds when it calls.
        self._connected().publish(message.topic, message.payload, 1, message.retain, properties)
        self._sent += 1

    def _all_acknowledged(self) -> bool:
        return self._acknowledged >= self._sent

    def _connected(self) -> Any:
        if self._client is not None:
            return self._client
        client = new_client(self._options, f"ferryman-{uuid.uuid4()}", keep_session=False)
        client.manual_ack_set(False)
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        self._messages, self._refused = {}, ""
        self._sent = self._acknowledged = 0
        try:
            connect(client, self._options, keep_session=False)
        except OSError as error:
            raise ConnectionError(
                f"the MQTT broker {self._options.server} cannot be reached: {error}. See whether it runs, and whether "
                "host, port and tls are right. The epoch is done again at the next start."
            ) from error
        client.loop_start()
        self._client = client
        self._wait(client.is_connected, "connect")
        return client

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._changed:
            self._refused = str(reason) if reason.is_failure else ""
            self._changed.notify_all()

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        with self._changed:
            self._messages[message.topic] = message.payload
            self._changed.notify_all()

    def _on_publish(self, client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        with self._changed:
            if reason.is_failure:
                self._refused = str(reason)
            self._acknowledged += 1
            self._changed.notify_all()

    def _wait(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        with self._changed:
            acknowledged = self._acknowledged
            while not condition() and not self._refused:
                # A connection that ends says so to nobody here.
                self._changed.wait(0.05)
                if self._acknowledged > acknowledged:
                    # However long an epoch takes: given up on the way, it would be published again, and never done.
                    acknowledged, deadline = self._acknowledged, time.monotonic() + _PATIENCE_S
                if time.monotonic() > deadline or (self._client is not None and self._lost(what)):
                    break
            done = condition() and not self._refused
        if done:
            return
        refused = self._refused
        self.close()
        if refused:
            raise SourceRefused(
                f"the MQTT broker {self._options.server} refuses to {what}: {refused}. Give username= and password= as "
                f"the broker has them, and let this user write to the topics and to {self._note_topic}."
            )
        raise ConnectionError(
            f"the MQTT broker {self._options.server} did not {what}. The epoch is done again at the next start."
        )

    def _lost(self, what: str) -> bool:
        return what != "connect" and not self._client.is_connected()


def _sound(note: Note) -> bool:
    """Tell whether a note has what notes have: whoever may publish to its topic can write one."""
    numbers = (note.term, note.epoch, note.rows, note.digest)
    return isinstance(note.job, str) and all(type(number) is int for number in numbers)
