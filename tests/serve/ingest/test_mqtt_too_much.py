"""A broker that sends more than there is room for is put off, for as long as that is so, and not taken for another."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from raw_broker import CONNECT, SUBSCRIBE, published, raw_broker, subscribed
from until import until

from ferryman._serve.ingest import mqtt_receiver
from ferryman._serve.ingest.ingest import Ingest
from ferryman._serve.ingest.mqtt_options import MqttOptions
from ferryman._serve.ingest.mqtt_receiver import SCHEMA, MqttReceiver

MIB = 1 << 20


def test_connections_that_are_ended_for_want_of_room_do_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mqtt_receiver, "MOST_WAITING_BYTES", 100_000)
    monkeypatch.setattr(mqtt_receiver, "_PAUSE_S", 0.01)
    connections = 0

    def answer(kind: int, content: bytes) -> bytes:
        nonlocal connections
        if kind != SUBSCRIBE:
            return b""
        connections += 1
        return subscribed(content) + b"".join(published(n, "fleet/1", bytes(100_000)) for n in range(1, 15))

    with raw_broker(answer) as server:
        receiver = partial(MqttReceiver, MqttOptions(server=server, topics=["fleet/#"]))
        ingest = Ingest(tmp_path, SCHEMA, receiver, max_bytes=MIB)

        def often() -> bool:
            ingest.check()
            if ingest._commit.full and not ingest._commit.waiting_bytes:
                # What had come by the connection that was ended is forgotten.
                ingest.committed(ingest.log.id, ingest.log.end)
            return connections > mqtt_receiver._MOST_BRIEF + 2

        until(often, "it has connected anew many times")
        ingest.end()
    assert "more than there is memory for" in capsys.readouterr().err


def test_a_message_of_qos_0_that_never_finds_room_holds_up_no_other(tmp_path: Path) -> None:
    def answer(kind: int, content: bytes) -> bytes:
        if kind != SUBSCRIBE:
            return b""
        return subscribed(content) + published(0, "fleet/1", bytes(2 * MIB)) + published(0, "fleet/1", b"small")

    with raw_broker(answer) as server:
        receiver = partial(MqttReceiver, MqttOptions(server=server, topics=["fleet/#"]))
        ingest = Ingest(tmp_path, SCHEMA, receiver, max_bytes=MIB)
        until(lambda: ingest.log.end == 1, "the small one is there", timeout=10)
        assert isinstance(ingest._receiver, MqttReceiver)
        assert ingest._receiver.dropped == 1
        ingest.end()


def test_a_broker_that_ends_each_connection_at_once_has_another_client_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_receiver, "_PAUSE_S", 0.01)
    with raw_broker(lambda kind, _: b"" if kind == CONNECT else b"\xe0\x02\x8b\x00") as server:
        receiver = partial(MqttReceiver, MqttOptions(server=server, topics=["fleet/#"]))
        ingest = Ingest(tmp_path, SCHEMA, receiver, max_bytes=MIB)
        until(lambda: ingest._receiver.error is not None, "it is said")
        assert "another client calls itself" in str(ingest._receiver.error)
        ingest.end()
