"""MQTT in, against a real broker: what the broker has handed over is in the log, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from mqtt_broker import PASSWORD, USER, Broker, Publisher, broker
from until import until

from ferryman._log.ingest.ingest_files import read
from ferryman._log.ingest.ingest_log import MAX_BYTES
from ferryman._serve.ingest.ingest import Ingest
from ferryman._serve.ingest.mqtt_options import MqttOptions
from ferryman._serve.ingest.mqtt_receiver import SCHEMA, MqttReceiver
from ferryman.errors import InvalidConfiguration, SourceRefused, SourceUnavailable

MIB = 1 << 20

RECEIVER = f"""
import sys, threading
from functools import partial
from ferryman._log.ingest.ingest_log import MAX_BYTES
from ferryman._serve.ingest.ingest import Ingest
from ferryman._serve.ingest.mqtt_options import MqttOptions
from ferryman._serve.ingest.mqtt_receiver import SCHEMA, MqttReceiver

options = MqttOptions(server=sys.argv[2], topics=["fleet/#"], username="{USER}", password="{PASSWORD}")
Ingest(sys.argv[1], SCHEMA, partial(MqttReceiver, options), max_bytes=1 << 26)
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[Broker]:
    with broker() as running:
        yield running


@pytest.fixture
def publisher(mosquitto: Broker) -> Iterator[Publisher]:
    publisher = Publisher(mosquitto)
    yield publisher
    publisher.end()


def receiving(path: Path, server: Broker, *, max_bytes: int = 64 * MIB, **more: object) -> Ingest:
    given = {"topics": ["fleet/#"], "username": USER, "password": PASSWORD, **more}
    options = MqttOptions(server=server.server, **given)  # type: ignore[arg-type]
    return Ingest(path, SCHEMA, partial(MqttReceiver, options), max_bytes=max_bytes)


def rows(ingest: Ingest) -> list[dict[str, object]]:
    return [row for _, batch in read(ingest.log.path, ingest.log.begin, ingest.log.end) for row in batch.to_pylist()]


def payloads(ingest: Ingest) -> list[str]:
    return [row["payload"].decode() for row in rows(ingest)]  # type: ignore[attr-defined]


def connected(ingest: Ingest, publisher: Publisher) -> None:
    """Wait until a message arrives."""
    seen = ingest.log.end

    def arrived() -> bool:
        ingest.check()
        publisher.publish(["hello"])
        return ingest.log.end > seen

    until(arrived, "the receiver is connected", every=0.2)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_messages_come_in_their_order_with_what_mqtt_says_of_them(
    tmp_path: Path, mosquitto: Broker, publisher: Publisher, protocol: str
) -> None:
    # The default size: a quarter of it is more than the protocol's largest packet.
    ingest = receiving(tmp_path, mosquitto, protocol=protocol, max_bytes=MAX_BYTES)
    connected(ingest, publisher)
    publisher.publish((str(number) for number in range(1000)), "fleet/truck")
    until(lambda: payloads(ingest)[-1:] == ["999"], "all have arrived")
    found = [row for row in rows(ingest) if row["topic"] == "fleet/truck"]
    assert [row["payload"] for row in found] == [str(number).encode() for number in range(1000)]
    assert {(row["qos"], row["retained"], row["repeats"]) for row in found} == {(1, False, None)}
    ingest.end()


def test_what_was_sent_while_nobody_received_comes_afterwards(
    tmp_path: Path, mosquitto: Broker, publisher: Publisher
) -> None:
    ingest = receiving(tmp_path, mosquitto)
    connected(ingest, publisher)
    ingest.end()
    publisher.publish(f"away {number}" for number in range(200))
    until(publisher.all_acknowledged, "the broker has them")
    ingest = receiving(tmp_path, mosquitto)
    until(lambda: payloads(ingest)[-1] == "away 199", "all have arrived")
    assert [payload for payload in payloads(ingest) if payload != "hello"] == [f"away {n}" for n in range(200)]
    ingest.end()


def test_a_full_log_acknowledges_nothing_and_goes_on_when_it_is_trimmed(
    tmp_path: Path, mosquitto: Broker, publisher: Publisher
) -> None:
    ingest = receiving(tmp_path, mosquitto, max_bytes=MIB, in_flight=50)
    connected(ingest, publisher)
    publisher.publish(f"{number:05d}" + "x" * 20_000 for number in range(150))
    until(lambda: ingest._commit.full, "the log is full")
    assert ingest.log.bytes <= MIB
    assert ingest._commit.waiting_bytes < 51 * 20_100
    seen: dict[int, str] = {}

    def all_seen() -> bool:
        ingest.check()
        # More may come meanwhile, and that was not seen.
        end = ingest.log.end
        for first, batch in read(tmp_path, max(ingest.log.begin, max(seen, default=0)), end):
            for offset, payload in enumerate(batch.column("payload").to_pylist(), start=first):
                seen[offset] = payload.decode()
        ingest.committed(ingest.log.id, end)
        return sum(len(payload) > 20 for payload in seen.values()) >= 150

    until(all_seen, "all have arrived")
    large = [seen[offset][:5] for offset in sorted(seen) if len(seen[offset]) > 20]
    assert large == [f"{number:05d}" for number in range(150)]
    ingest.end()


@pytest.mark.faults
def test_a_broker_that_is_killed_and_one_that_restarts_lose_nothing_acknowledged(
    tmp_path: Path, mosquitto: Broker, publisher: Publisher
) -> None:
    ingest = receiving(tmp_path, mosquitto)
    connected(ingest, publisher)
    for turn, how in enumerate((signal.SIGTERM, signal.SIGKILL)):
        publisher.publish(f"{turn} {number}" for number in range(300))
        until(lambda turn=turn: any(p.startswith(f"{turn} ") for p in payloads(ingest)), "some have arrived")
        mosquitto.end(how)
        publisher.publish(f"{turn} {number}" for number in range(300, 350))
        mosquitto.start()
    until(publisher.all_acknowledged, "the broker has them")
    until(lambda: publisher.acknowledged <= set(payloads(ingest)), "all that was acknowledged is in the log")
    ingest.check()
    ingest.end()


@pytest.mark.faults
def test_what_is_sent_again_after_a_kill_before_its_acknowledgement_is_marked(
    tmp_path: Path, mosquitto: Broker, publisher: Publisher
) -> None:
    ingest = receiving(tmp_path, mosquitto)
    connected(ingest, publisher)
    ingest.end()
    publisher.publish(f"away {number}" for number in range(20))
    until(publisher.all_acknowledged, "the broker has them")
    environment = {**os.environ, "FERRYMAN_FAULT": "ingest-durable:1"}
    command = [sys.executable, "-c", RECEIVER, str(tmp_path), mosquitto.server]
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    ingest = receiving(tmp_path, mosquitto)
    connected(ingest, publisher)
    until(lambda: "away 19" in payloads(ingest), "all have arrived")
    # What was on disk at the kill may have been a greeting of before, which comes again as well.
    until(lambda: any(row["repeats"] is not None for row in rows(ingest)), "what was on disk at the kill comes again")
    found = rows(ingest)
    once = [row["payload"] for row in found if row["repeats"] is None and row["payload"] != b"hello"]
    assert once == [b"away %d" % n for n in range(20)]
    again = [row for row in found if row["repeats"] is not None]
    assert all(found[row["repeats"]]["payload"] == row["payload"] for row in again)
    ingest.end()


def test_wrong_credentials_are_refused_at_once(tmp_path: Path, mosquitto: Broker) -> None:
    ingest = receiving(tmp_path, mosquitto, password="wrong")
    with pytest.raises(SourceRefused, match="username= and password="):
        until(lambda: ingest.check(), "it is refused")
    ingest.end()


def test_a_broker_that_is_not_there_is_said_to_be_after_a_while(tmp_path: Path) -> None:
    with broker(start=False) as nobody:
        ingest = receiving(tmp_path, nobody, connect_within_s=0.5)
        with pytest.raises(SourceUnavailable, match="cannot be reached"):
            until(lambda: ingest.check(), "it is given up")
        ingest.end()


@pytest.mark.slow
def test_a_second_client_of_the_same_name_is_found_out(tmp_path: Path, mosquitto: Broker, publisher: Publisher) -> None:
    ingest = receiving(tmp_path / "a", mosquitto, client_id="same")
    connected(ingest, publisher)
    other = receiving(tmp_path / "b", mosquitto, client_id="same")

    def checked() -> None:
        ingest.check()
        other.check()

    with pytest.raises(SourceRefused, match="another client_id="):
        until(checked, "one of them is told")
    ingest.end()
    other.end()


def test_topics_that_are_left_out_are_not_received_any_more(
    tmp_path: Path, mosquitto: Broker, publisher: Publisher
) -> None:
    ingest = receiving(tmp_path, mosquitto, topics=["fleet/#", "weather/+"])
    connected(ingest, publisher)
    publisher.publish(["rain"], "weather/north")
    until(lambda: "rain" in payloads(ingest), "it has arrived")
    ingest.end()
    ingest = receiving(tmp_path, mosquitto)
    connected(ingest, publisher)
    publisher.publish(["sun"], "weather/north")
    publisher.publish(["after"])
    until(lambda: "after" in payloads(ingest), "it has arrived")
    assert "sun" not in payloads(ingest)
    ingest.end()


def test_every_wrong_option_is_told_at_once() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        MqttOptions(server="broker", topics=["a/#/b", "a+"], protocol="4", in_flight=0)
    assert str(caught.value).count("\n  - ") == 5
