"""An epoch is published for as long as the broker goes on acknowledging, and given up when it does not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from raw_broker import PUBLISH, SUBSCRIBE, UNSUBSCRIBE, acknowledged, echoed, published, raw_broker, subscribed
from until import until

from ferryman._engine import mqtt_messages
from ferryman._engine.mqtt_messages import Message, Note, Publishing
from ferryman._serve.ingest.mqtt_options import MqttOptions
from ferryman._spark.sinks.mqtt import mqtt


@pytest.mark.parametrize(("acknowledges", "fails"), [(1 << 20, False), (5, True)])
def test_a_slow_broker_is_waited_for_and_a_silent_one_is_not(
    monkeypatch: pytest.MonkeyPatch, acknowledges: int, fails: bool
) -> None:
    monkeypatch.setattr(mqtt_messages, "_PATIENCE_S", 1.0)
    slow = threading.Event()
    seen: list[bytes] = []

    def answer(kind: int, content: bytes) -> bytes:
        if kind != PUBLISH:
            return b""
        slow.wait(0.1)
        seen.append(content)
        return acknowledged(content) if len(seen) <= acknowledges else b""

    with raw_broker(answer) as server:
        publishing = Publishing(MqttOptions(server=server), "out")
        messages = [Message("fleet", b"x")] * 20
        if fails:
            with pytest.raises(ConnectionError, match="publish epoch 7"):
                publishing.send(messages, Note("job", 1, 7))
        else:
            publishing.send(messages, Note("job", 1, 7))
            assert len(seen) == 21
        publishing.close()


def broker_with(found: list[bytes], end: list[int]) -> Callable[[int, bytes], bytes | None]:
    """Answer who reads the note of an epoch; end the connection at a packet of these kinds."""

    def answer(kind: int, content: bytes) -> bytes | None:
        if kind in end:
            return None
        if kind == SUBSCRIBE:
            return subscribed(content, 2) + b"".join(published(7, "ferryman/epochs/out", note) for note in found)
        return acknowledged(content) + echoed(content) if kind == PUBLISH else b""

    return answer


def test_a_connection_that_was_lost_while_nothing_was_written_is_made_again() -> None:
    with raw_broker(broker_with([], [UNSUBSCRIBE])) as server:
        publishing = Publishing(MqttOptions(server=server), "out")
        for _ in range(3):
            assert publishing.note() is None
            until(lambda: not publishing._client.is_connected(), "it is lost")
        publishing.close()


@pytest.mark.parametrize(
    "written", [b"{", b"[1]", b'{"job": "a", "term": "9", "epoch": 3}', b'{"job": "a", "epoch": 3}']
)
def test_a_note_that_nobody_here_has_written_is_none(written: bytes) -> None:
    with raw_broker(broker_with([written], [])) as server:
        publishing = Publishing(MqttOptions(server=server), "out")
        assert publishing.note() is None
        publishing.close()


def test_a_note_is_read_as_it_was_written() -> None:
    with raw_broker(broker_with([b'{"job": "a", "term": 9, "epoch": 3, "rows": 2, "digest": 5}'], [])) as server:
        publishing = Publishing(MqttOptions(server=server), "out")
        assert publishing.note() == Note("a", 9, 3, 2, 5)
        publishing.close()


def test_a_sink_keeps_no_connection_when_its_run_has_ended_and_can_be_used_again() -> None:
    with raw_broker(broker_with([], [])) as server:
        sink = mqtt(server, "fleet", name="out")
        for _ in range(2):
            assert sink.claim("job") == 0
            assert any(thread.name.startswith("paho") for thread in threading.enumerate())
            sink.let_go()
            assert not any(thread.name.startswith("paho") for thread in threading.enumerate())
