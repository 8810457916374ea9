"""Receive from an MQTT broker: a message is acknowledged when it is durable in the ingest log, and not before.

Every connection has a client of its own. An acknowledgement that comes late goes to the client its message came by, and
so never acknowledges another message which has the same packet identifier by now. When the log is full nothing is
acknowledged, and the broker sends no more than it may have in flight. Calls `Redelivered` and `GroupCommit`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any

import pyarrow as pa

from ferryman._log.files.directory import LocalDirectory
from ferryman._log.ingest.group_commit import GroupCommit
from ferryman._log.ingest.ingest_files import read
from ferryman._log.ingest.ingest_log import IngestLog
from ferryman._model.errors import FerrymanError, SourceRefused, SourceUnavailable
from ferryman._serve.ingest.mqtt_options import MqttOptions, connect, new_client, paho
from ferryman._serve.ingest.receiver import MOST_WAITING_BYTES, TIME
from ferryman._serve.ingest.redelivered import Redelivered

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int32()),
        ("retained", pa.bool_()),
        ("received", TIME),
        ("repeats", pa.int64()),
        ("packet", pa.int32()),
        ("session", pa.int64()),
    ]
)
_TOPICS = "topics.json"
_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
# So many connections in a row that end so soon are no accident.
_MOST_BRIEF, _BRIEF_S = 8, 2.0
# What a message has besides its payload, roughly.
_OVERHEAD = 60
# By both versions of the protocol: who asks is not known, or may not.
_REFUSED = {
    "Bad user name or password",
    "Not authorized",
    "Client identifier not valid",
    "Banned",
    "Bad authentication method",
    "Unsupported protocol version",
}


class MqttReceiver:
    """Receive from a broker until it is ended, through any number of connections."""

    def __init__(self, options: MqttOptions, log: IngestLog, commit: GroupCommit) -> None:
        paho()
        self._options, self._log, self._commit = options, log, commit
        self._client_id = options.client_id or f"ferryman-{log.id}"
        self._redelivered = Redelivered(min(65535, 2 * options.in_flight))
        self._session = 0
        self._directory = LocalDirectory(log.path)
        self._ended = threading.Event()
        self._error: FerrymanError | None = None
        # Messages of QoS 0 that came while there was no room for them, or never is: nobody sends them again.
        self.dropped = 0
        self._learn_of_log()
        self._thread = threading.Thread(target=self._run, name="ferryman-receiver", daemon=True)
        self._thread.start()

    @property
    def error(self) -> FerrymanError | None:
        """Give what has ended it, if anything has."""
        return self._error

    def end(self) -> None:
        """Take nothing more; the broker keeps the session."""
        self._ended.set()
        self._thread.join()

    def _learn_of_log(self) -> None:
        """Find the newest messages in the log, which a kill may have kept from being acknowledged."""
        begin = max(self._log.begin, self._log.end - min(65535, 2 * self._options.in_flight))
        for first, batch in read(self._log.path, begin, self._log.end):
            for offset, message in enumerate(batch.to_pylist(), start=first):
                if message["session"] != self._session:
                    self._session = message["session"]
                    self._redelivered.forget()
                if message["packet"]:
                    self._redelivered.learn(message["packet"], message["topic"], message["payload"], offset)

    def _run(self) -> None:
        pause, begun = _PAUSE_S, time.monotonic()
        connected = False
        brief = 0
        while not self._ended.is_set():
            connection = _Connection(self)
            at = time.monotonic()
            try:
                connection.keep_up()
            except FerrymanError as error:
                self._error = error
                return
            except (OSError, ValueError) as error:
                connection.why = f"{error}"
            except Exception as error:
                self._error = SourceRefused(
                    f"the receiver of the MQTT broker {self._options.server} has ended by {type(error).__name__}: "
                    f"{error}. What it had not acknowledged the broker will send again."
                )
                return
            # What waits will be sent again, by the next connection.
            self._commit.forget()
            if self._ended.is_set() or self._commit.error is not None:
                return
            connected = connected or connection.accepted
            if not connected and time.monotonic() - begun > self._options.connect_within_s:
                self._error = self._unreachable(connection.why)
                return
            if connection.accepted:
                # One that had to be ended here says nothing of the broker.
                soon = time.monotonic() - at < _BRIEF_S and not connection.put_off
                brief = brief + 1 if soon else 0
                pause = _PAUSE_S
            if brief == _MOST_BRIEF:
                self._error = self._taken_over(f"has ended {brief} connections in a row as soon as they were made")
                return
            _say(f"the connection to the MQTT broker {self._options.server} is gone ({connection.why}); trying again")
            self._ended.wait(pause * (1 + brief))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            while self._commit.full and not self._ended.wait(0.1):
                pass

    def _taken_over(self, what: str) -> SourceRefused:
        return SourceRefused(
            f"the MQTT broker {self._options.server} {what}: another client calls itself {self._client_id!r} too, and "
            "the broker lets in one of a name. Give one of them another client_id=, and an ingest log of its own."
        )

    def _unreachable(self, why: str) -> SourceUnavailable:
        return SourceUnavailable(
            f"the MQTT broker {self._options.server} cannot be reached, tried for "
            f"{self._options.connect_within_s:.0f} s: {why}. See whether it runs, and whether host, port and tls are "
            "right. What is in the ingest log stays there for the next start."
        )

    def subscribed(self) -> list[str]:
        """Give the topics that the session may be subscribed to."""
        try:
            topics = json.loads(self._directory.read(_TOPICS).to_pybytes())
        except FileNotFoundError:
            return []
        return [str(topic) for topic in topics] if isinstance(topics, list) else []

    def note_subscribed(self, topics: list[str]) -> None:
        """Note to which topics the session may be subscribed."""
        self._directory.write(_TOPICS, json.dumps(topics).encode())


class _Connection:
    """One connection to the broker."""

    def __init__(self, receiver: MqttReceiver) -> None:
        self._receiver = receiver
        self._options = receiver._options
        self._client: Any = None
        self._over = threading.Event()
        self._refused: FerrymanError | None = None
        self.accepted = False
        # Whether it was ended for want of room.
        self.put_off = False
        self.why = "it does not answer"

    def keep_up(self) -> None:
        """Connect, and receive until the connection ends, for whatever reason."""
        log = self._receiver._log
        self._client = new_client(self._options, self._receiver._client_id, keep_session=True)
        self._client.on_connect = self._guarded(self._on_connect)
        self._client.on_disconnect = self._guarded(self._on_disconnect)
        self._client.on_subscribe = self._guarded(self._on_subscribe)
        self._client.on_message = self._guarded(self._on_message)
        connect(self._client, self._options, keep_session=True, most_bytes=log.row_bytes)
        self._client.loop_start()
        deadline = time.monotonic() + self._options.connect_within_s
        try:
            while not self._over.wait(0.05) and not self._receiver._ended.is_set():
                if not self.accepted and time.monotonic() > deadline:
                    break
                if self._receiver._commit.error is not None:
                    break
                if self._receiver._commit.waiting_bytes > MOST_WAITING_BYTES:
                    self.put_off = True
                    self._over.set()
                    self.why = "it sends more than there is memory for, and the ingest log is full"
                    break
        finally:
            self._client.disconnect()
            self._client.loop_stop()
        if self._refused is not None:
            raise self._refused

    def _guarded(self, callback: Callable[..., None]) -> Callable[..., None]:
        """Have an error end the connection and be told; else it would end the client's thread and nothing more."""

        def called(*given: Any) -> None:
            try:
                callback(*given)
            except Exception as error:
                self._refused = SourceRefused(
                    f"what the MQTT broker {self._options.server} sends cannot be dealt with: "
                    f"{type(error).__name__}: {error}. It was not acknowledged."
                )
                self._over.set()

        return called

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.why = str(reason)
            if str(reason) in _REFUSED:
                who = self._options.username or "a client without name"
                self._refused = SourceRefused(
                    f"the MQTT broker {self._options.server} refuses {who}: {reason}. Give username= and "
                    "password= as the broker has them, or another client_id=. What is in the ingest log stays there."
                )
            self._over.set()
            return
        self.accepted = True
        receiver = self._receiver
        if not flags.session_present:
            receiver._session += 1
            receiver._redelivered.forget()
        wanted, had = list(self._options.topics), receiver.subscribed()
        receiver.note_subscribed(sorted({*wanted, *had}))
        if gone := [topic for topic in had if topic not in wanted]:
            client.unsubscribe(gone)
        if self._options.protocol == "5":
            options = importlib.import_module("paho.mqtt.subscribeoptions").SubscribeOptions
            # Retained messages come with a subscription that is new, and not with each connection.
            client.subscribe([(topic, options(qos=1, retainHandling=1)) for topic in wanted])
        elif not flags.session_present or sorted(wanted) != sorted(had):
            client.subscribe([(topic, 1) for topic in wanted])

    def _on_subscribe(self, client: Any, data: Any, mid: int, reasons: list[Any], properties: Any) -> None:
        refused = [
            f"{topic} ({reason})"
            for topic, reason in zip(self._options.topics, reasons, strict=False)
            if reason.is_failure
        ]
        if refused:
            self._refused = SourceRefused(
                f"the MQTT broker {self._options.server} refuses the subscription to {', '.join(refused)}. Let this "
                "user read these topics, or leave them out."
            )
            self._over.set()
        self._receiver.note_subscribed(sorted(self._options.topics))

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not self._over.is_set():
            self.why = str(reason)
            if str(reason) == "Session taken over":
                self._refused = self._receiver._taken_over("has ended the connection")
        self._over.set()

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        receiver = self._receiver
        topic, payload, packet = message.topic, message.payload, message.mid if message.qos else 0
        size = len(payload) + len(topic) + _OVERHEAD
        if not packet:
            if size > receiver._log.row_bytes or receiver._commit.waiting_bytes > MOST_WAITING_BYTES // 2:
                receiver.dropped += 1
                return
        elif size > receiver._log.row_bytes:
            # By version 5 the broker knows how much may be sent.
            self._refused = SourceRefused(
                f"a message of {topic!r} has {len(payload)} bytes, and the ingest log takes {receiver._log.row_bytes} "
                "at most. It was not acknowledged. Raise max_bytes: a message may have a quarter of it."
            )
            self._over.set()
            return
        repeats = receiver._redelivered.of(packet, topic, payload) if message.dup and packet else None
        received = datetime.now(timezone.utc)
        row = (topic, payload, message.qos, message.retain, received, repeats, packet, receiver._session)
        receiver._commit.offer(row, size, partial(self._durable, packet, topic, payload))

    def _durable(self, packet: int, topic: str, payload: bytes, offset: int) -> None:
        if packet:
            self._receiver._redelivered.learn(packet, topic, payload, offset)
            # Of a connection that is just being closed: it is sent again by the next.
            with contextlib.suppress(OSError, AttributeError, ValueError):
                self._client.ack(packet, 1)


def _say(what: str) -> None:
    print(f"ferryman: {what}", file=sys.stderr, flush=True)
