"""The kinds of receivers there are: the columns of each, and how it begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from ferryman._serve.ingest.http_receiver import SCHEMA as HTTP_SCHEMA
from ferryman._serve.ingest.http_receiver import HttpOptions, HttpReceiver
from ferryman._serve.ingest.mqtt_options import MqttOptions
from ferryman._serve.ingest.mqtt_receiver import SCHEMA as MQTT_SCHEMA
from ferryman._serve.ingest.mqtt_receiver import MqttReceiver
from ferryman._serve.ingest.receiver import Begin
from ferryman._serve.ingest.socket_receiver import SCHEMA as SOCKET_SCHEMA
from ferryman._serve.ingest.socket_receiver import SocketOptions, SocketReceiver


@dataclass(frozen=True)
class ReceiverKind:
    """What a kind of receiver puts into a log, and how it is begun.

    Attributes
    ----------
    schema
        The columns of its log.
    begin
        Makes what begins it, from its settings.
    hidden
        Columns that only the receiver itself needs.
    """

    schema: pa.Schema
    begin: Callable[[Mapping[str, Any]], Begin]
    hidden: frozenset[str] = field(default_factory=frozenset)

    @property
    def columns(self) -> list[str]:
        """Give the columns that a stream has."""
        return [name for name in self.schema.names if name not in self.hidden]


def _mqtt(settings: Mapping[str, Any]) -> Begin:
    return partial(MqttReceiver, MqttOptions(**settings))


def _http(settings: Mapping[str, Any]) -> Begin:
    return partial(HttpReceiver, HttpOptions(**settings))


def _socket(settings: Mapping[str, Any]) -> Begin:
    return partial(SocketReceiver, SocketOptions(**settings))


KINDS = {
    "mqtt": ReceiverKind(MQTT_SCHEMA, _mqtt, frozenset({"packet", "session"})),
    "http": ReceiverKind(HTTP_SCHEMA, _http),
    "socket": ReceiverKind(SOCKET_SCHEMA, _socket),
}
