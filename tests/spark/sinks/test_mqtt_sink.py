"""The MQTT sink, against a real broker: each row is there, and once for who goes by epoch and row."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from mqtt_broker import PASSWORD, USER, Broker, broker
from until import until

from ferryman import sinks
from ferryman.errors import InvalidConfiguration, SourceRefused
from ferryman.sinks import SinkStart
from ferryman.testing import SINK_CHECKS, check_sink


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[Broker]:
    with broker() as running:
        yield running


class Reader:
    """Read a topic; drop what has the epoch and row of a message that came before."""

    def __init__(self, server: Broker, topic: str) -> None:
        import paho.mqtt.client as mqtt

        self.rows: dict[tuple[str, ...], bytes] = {}
        self.repeated: list[tuple[str, ...]] = []
        self._topic, self._ready = topic, False
        self._client: Any = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.username_pw_set(USER, PASSWORD)
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_: setattr(self, "_ready", True)
        self._client.connect("127.0.0.1", server.port)
        self._client.loop_start()
        self._client.subscribe([(topic, 1), (f"{topic}/pings/#", 1)])
        until(lambda: self._ready, "it is subscribed")
        self._pings: set[str] = set()

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        if message.topic != self._topic:
            self._pings.add(message.topic)
            return
        marks = dict(message.properties.UserProperty)
        place = tuple(marks[f"ferryman-{name}"] for name in ("job", "sink", "epoch", "row"))
        if self.rows.setdefault(place, message.payload) != message.payload:
            raise AssertionError("one place has two rows")

    def seen(self) -> list[Any]:
        """Give what has come, when all has that was published before."""
        ping = f"{self._topic}/pings/{uuid.uuid4()}"
        self._client.publish(ping, b"", qos=1)
        until(lambda: ping in self._pings, "the broker has sent all")
        return [tuple(json.loads(payload)) for payload in self.rows.values()]

    def end(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def as_messages(epoch: int) -> pa.Table:
    listed = [[f"k{epoch}", epoch * 10], [f"k{epoch % 2}", epoch * 10 + 1], ["k", epoch * 10 + 2]]
    return pa.table({"payload": [json.dumps(row) for row in listed]})


def as_seen(epochs: list[pa.Table]) -> list[Any]:
    return [tuple(json.loads(payload)) for epoch in epochs for payload in epoch.column("payload").to_pylist()]


FIRST, *OTHERS = SINK_CHECKS


@pytest.mark.parametrize("check", [FIRST, *(pytest.param(check, marks=pytest.mark.slow) for check in OTHERS)])
def test_a_reader_that_goes_by_epoch_and_row_has_each_row_once(check: str, mosquitto: Broker) -> None:
    topic = f"out/{uuid.uuid4()}"
    reader = Reader(mosquitto, topic)
    try:
        check_sink(
            check,
            lambda: sinks.mqtt(mosquitto.server, topic, username=USER, password=PASSWORD),
            reader.seen,
            rows=as_messages,
            expected=as_seen,
            kills=12,
        )
    finally:
        reader.end()


def test_wrong_credentials_and_rows_without_payload_are_refused(mosquitto: Broker) -> None:
    with pytest.raises(SourceRefused, match="username= and password="):
        sinks.mqtt(mosquitto.server, "out/a", username=USER, password="wrong").claim("job")
    sink = sinks.mqtt(mosquitto.server, "out/b", username=USER, password=PASSWORD)
    sink.claim("job")
    sink.begin(SinkStart(epoch=0, term=1))
    with pytest.raises(InvalidConfiguration, match="a column 'payload'"):
        sink.write_table(pa.table({"value": ["x"]}), 1)
    with pytest.raises(InvalidConfiguration, match="for readers"):
        sinks.mqtt(mosquitto.server, "out/+")
