"""What an MQTT broker has to be told: where it is, who asks, and for which topics."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ferryman._model.errors import InvalidConfiguration

PROTOCOLS = ("5", "3.1.1")
# What the protocol has room for.
_LARGEST_PACKET = 268_435_455


@dataclass(frozen=True, kw_only=True)
class MqttOptions:
    """Say how to reach a broker.

    Attributes
    ----------
    server
        `host:port`.
    topics
        Topic filters.
    username, password
        Who asks; empty: nobody.
    client_id
        What the session is called at the broker; empty: after the log.
    protocol
        `5` or `3.1.1`.
    tls
        Empty for none, `system` for the authorities this system knows, else a file of certificates of authorities.
    in_flight
        How many messages the broker may send before one of them is acknowledged; by 3.1.1 the broker decides.
    connect_within_s
        How long the first connection of a run may take.
    """

    server: str
    topics: Sequence[str] = ()
    username: str = ""
    password: str = field(default="", repr=False)
    client_id: str = ""
    protocol: str = "5"
    tls: str = ""
    in_flight: int = 5000
    connect_within_s: float = 30.0

    def __post_init__(self) -> None:
        faults = []
        host, _, port = self.server.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            faults.append(f"server: {self.server!r} is not host:port")
        if self.protocol not in PROTOCOLS:
            faults.append(f"protocol: {self.protocol!r} is none of {', '.join(PROTOCOLS)}")
        if not 0 < self.in_flight < 65536:
            faults.append(f"in_flight: {self.in_flight!r} is not a number from 1 to 65535")
        faults += [f"topics: {topic!r} is not a topic filter" for topic in self.topics if not is_filter(topic)]
        if faults:
            raise InvalidConfiguration.of(faults)

    @property
    def address(self) -> tuple[str, int]:
        """Give host and port."""
        host, _, port = self.server.rpartition(":")
        return host.strip("[]"), int(port)


def is_filter(topic: str) -> bool:
    """Tell whether something is a topic filter: `+` and `#` stand for a whole level, `#` only for the last."""
    levels = topic.split("/")
    return (
        0 < len(topic.encode()) < 65536
        and "\0" not in topic
        and all(level in ("+", "#") or not set(level) & set("+#") for level in levels)
        and "#" not in levels[:-1]
    )


def paho() -> Any:
    """Import the client, or say how to get it."""
    try:
        return importlib.import_module("paho.mqtt.client")
    except ImportError as error:
        raise InvalidConfiguration("MQTT needs paho-mqtt: pip install 'ferryman[mqtt]'.") from error


def new_client(options: MqttOptions, client_id: str, *, keep_session: bool) -> Any:
    """Make a client that is not connected; it connects once, and acknowledges nothing by itself."""
    mqtt = paho()
    newest = options.protocol == "5"
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        client_id=client_id,
        clean_session=None if newest else not keep_session,
        protocol=mqtt.MQTTv5 if newest else mqtt.MQTTv311,
        manual_ack=True,
        reconnect_on_failure=False,
    )
    if options.username:
        client.username_pw_set(options.username, options.password or None)
    if options.tls:
        client.tls_set(ca_certs=None if options.tls == "system" else options.tls)
    return client


def connect(client: Any, options: MqttOptions, *, keep_session: bool, most_bytes: int = 0) -> None:
    """Connect a client.

    Raises
    ------
    OSError
        Nobody is there.
    """
    more: dict[str, Any] = {}
    if options.protocol == "5":
        properties = importlib.import_module("paho.mqtt.properties").Properties(
            importlib.import_module("paho.mqtt.packettypes").PacketTypes.CONNECT
        )
        # Until somebody ends it: what comes meanwhile is kept, as far as the broker keeps it.
        properties.SessionExpiryInterval = 0xFFFFFFFF if keep_session else 0
        properties.ReceiveMaximum = options.in_flight
        if most_bytes:
            properties.MaximumPacketSize = min(most_bytes, _LARGEST_PACKET)
        more = {"clean_start": not keep_session, "properties": properties}
    client.connect(*options.address, keepalive=30, **more)
