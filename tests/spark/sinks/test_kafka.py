"""Rows in Kafka: a reader of what is committed sees each of them once, whatever happens to the driver."""

from __future__ import annotations

import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

import kafka_broker
import pyarrow as pa
import pytest
from kafka_topics import Topics
from readings import Readings, epoch_rows, expected

from ferryman import sinks
from ferryman._engine import kafka_transactions
from ferryman._engine.kafka_transactions import Message
from ferryman._spark.sinks.kafka import _digest
from ferryman.errors import InvalidConfiguration, SinkAhead, SinkMissing
from ferryman.sinks import SinkStart
from ferryman.testing import SINK_CHECKS, check_sink

kafka = pytest.importorskip("confluent_kafka", reason="make install brings it")

NUMBER = itertools.count()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    try:
        with kafka_broker.broker() as servers:
            yield servers
    except kafka_broker.NotToBeHad as why:
        pytest.skip(str(why))


@pytest.fixture
def topic() -> str:
    return f"out-{next(NUMBER)}"


def records(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Read what is committed, partition by partition."""
    return [(record.key(), record.value()) for record in Topics(servers).read(topic)]


def shown(servers: str, topic: str) -> list[tuple[Any, ...]]:
    return [(key.decode(), json.loads(value)) for key, value in records(servers, topic)]


def as_messages(epoch: int) -> pa.Table:
    return pa.table({"key": [f"k{epoch}", "k", "k"], "value": [str(epoch * 10 + place) for place in range(3)]})


def as_seen(epochs: list[pa.Table]) -> list[tuple[Any, ...]]:
    return [(row["key"], json.loads(row["value"])) for epoch in epochs for row in epoch.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("check", SINK_CHECKS)
def test_the_kafka_sink_passes(check: str, servers: str, topic: str):
    check_sink(
        check,
        lambda: sinks.kafka(servers, topic),
        lambda: shown(servers, topic),
        rows=as_messages,
        expected=as_seen,
        kills=12,
    )


def begun(servers: str, topic: str, **start: int) -> sinks.Sink:
    sink = sinks.kafka(servers, topic)
    sink.claim("job")
    sink.begin(SinkStart(**{"epoch": 0, "term": 1, **start}))
    return sink


@pytest.mark.slow
def test_rows_of_a_key_stay_in_their_order_in_one_partition_with_their_headers(servers: str, topic: str):
    headers = [[{"key": "unit", "value": b"C"}], None, None]
    rows = pa.table({"key": ["a", "b", "a"], "value": [b"1", None, b"2"], "partition": [0, None, 0]})
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    begun(servers, topic).write_table(rows.append_column("headers", pa.array(headers, kind)), 1)
    assert sorted(records(servers, topic), key=lambda record: record[0]) == [(b"a", b"1"), (b"a", b"2"), (b"b", None)]


@pytest.mark.slow
def test_an_epoch_that_comes_again_with_other_rows_is_refused_and_not_lost_in_silence(servers: str, topic: str):
    begun(servers, topic).write_table(as_messages(1), 1)
    again = begun(servers, topic, term=2)
    again.write_table(as_messages(1), 1)
    with pytest.raises(SinkAhead, match=r"up to epoch 1 .* other rows of epoch 1.*name="):
        again.write_table(as_messages(2), 1)
    assert len(records(servers, topic)) == 3


def test_what_an_epoch_comes_to_tells_rows_apart_by_all_that_is_sent_and_not_by_their_order():
    rows = [Message("out", b"a", b"1"), Message("out", b"b", b"2")]
    others = [
        Message("else", b"a", b"1"),
        Message("out", b"a", b"1", partition=0),
        Message("out", b"a", b"1", headers=[("unit", b"C")]),
        Message("out", b"", b"1"),
        Message("out", None, b"1"),
        Message("out", b"a", b""),
        Message("out", b"a", None),
    ]
    digests = [_digest([row, rows[1]]) for row in (rows[0], *others)]
    assert _digest(rows[::-1]) == digests[0]
    assert len(set(digests)) == len(digests)


@pytest.mark.slow
def test_notes_that_are_gone_are_missed(servers: str, topic: str):
    sink = begun(servers, topic)
    written = sink.write_table(as_messages(1), 1)
    elsewhere = sinks.kafka(servers, f"{topic}-elsewhere")
    elsewhere.claim("job")
    with pytest.raises(SinkMissing, match=r"noted epoch 1 .* notes go to epoch 0.*name="):
        elsewhere.begin(SinkStart(epoch=1, term=2, written=written))
    begun(servers, topic, epoch=1, term=2)


@pytest.mark.slow
def test_a_driver_that_loses_its_place_to_one_that_sleeps_takes_it_again(servers: str, topic: str):
    asleep = sinks.kafka(servers, topic)
    asleep.claim("job")
    awake = begun(servers, topic, term=2)
    awake.write_table(as_messages(1), 1)
    with pytest.raises(Exception, match="SUPERSEDED"):
        asleep.begin(SinkStart(epoch=0, term=1))
    awake.write_table(as_messages(2), 2)
    assert sorted(shown(servers, topic)) == sorted(as_seen([as_messages(1), as_messages(2)]))


def test_rows_without_a_value_are_refused_with_the_line_to_write():
    sink = sinks.kafka("127.0.0.1:1", "out")
    with pytest.raises(InvalidConfiguration, match=r"needs a column 'value'.* have key, n.*to_json"):
        sink.write_table(pa.table({"key": ["a"], "n": [1]}), 1)
    with pytest.raises(InvalidConfiguration, match=r"strings or bytes in 'value', and it has int64"):
        sink.write_table(pa.table({"value": [1]}), 1)
    with pytest.raises(InvalidConfiguration, match="a name has letters"):
        sinks.kafka("127.0.0.1:1", "out", name="a b")


def test_brokers_that_do_not_answer_are_named_and_not_taken_for_a_sink_that_is_gone(monkeypatch):
    monkeypatch.setattr(kafka_transactions, "PATIENCE_S", 0.5)
    with pytest.raises(ConnectionError, match=r"kafka:out cannot begin: .*127\.0\.0\.1:1 is where Kafka is"):
        sinks.kafka("127.0.0.1:1", "out").claim("job")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = {"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"}
        transactions = kafka_transactions.Transactions("out", servers)
        with pytest.raises(kafka.KafkaException, match="not read to its end"):
            transactions._newest_from(kafka.Consumer({**servers, "group.id": "tests"}), 0)


@pytest.mark.slow
def test_a_job_writes_to_kafka(spark, tmp_path, servers: str, topic: str):
    job = Readings(spark, tmp_path)
    as_json = job.trail().transform(lambda rows: rows.selectExpr("key", "to_json(struct(*)) AS value"))
    as_json.ferry.start(
        "readings", as_json.write(sinks.kafka(servers, topic)), instances=2, trigger={"availableNow": True}
    ).wait()

    _, output = expected(row for epoch in range(1, job.epochs + 1) for row in epoch_rows(epoch))
    assert sorted(tuple(value.values()) for _, value in shown(servers, topic)) == output
