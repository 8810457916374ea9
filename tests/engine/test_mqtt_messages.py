"""An epoch is published for as long as the broker goes on acknowledging, and given up when it does not."""

from __future__ import annotations

import threading

import pytest
from raw_broker import PUBLISH, acknowledged, raw_broker

from ferryman._engine import mqtt_messages
from ferryman._engine.mqtt_messages import Message, Note, Publishing
from ferryman._serve.ingest.mqtt_options import MqttOptions


@pytest.mark.parametrize(("acknowledges", "fails"), [(1 << 20, False), (5, True)])
def test_a_slow_broker_is_waited_for_and_a_silent_one_is_not(
    monkeypatch: pytest.MonkeyPatch, acknowledges: int, fails: bool
) -> None:
    monkeypatch.setattr(mqtt_messages, "_PATIENCE_S", 1.0)
    slow, seen = threading.Event(), []

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
