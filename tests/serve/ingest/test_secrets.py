"""What callers and brokers are shown is in no text that an object gives of itself."""

from __future__ import annotations

from ferryman._serve.ingest.http_receiver import HttpOptions
from ferryman._serve.ingest.mqtt_options import MqttOptions


def test_options_do_not_show_their_secrets() -> None:
    assert "hidden-well" not in repr(MqttOptions(server="localhost:1883", username="me", password="hidden-well"))
    assert "hidden-well" not in repr(HttpOptions(address="127.0.0.1:0", token="hidden-well"))
