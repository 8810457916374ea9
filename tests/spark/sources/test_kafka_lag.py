"""How far a job is behind in Kafka: what it tells itself, and what consumer groups are told, on a real broker."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Iterator

import pytest
from kafka_topics import Topics
from test_kafka_source import ONCE, as_records, ferry_of, parsed, read, rows
from typer.testing import CliRunner
from until import until

from ferryman import sinks, sources
from ferryman._cli import app
from ferryman._engine import kafka_groups, kafka_reports
from ferryman._engine.kafka_groups import ConsumerGroup
from ferryman._engine.kafka_lag import lag_by_source, lag_in_words
from ferryman._engine.kafka_reports import KafkaPlace, KafkaReports
from ferryman._model.manifest import Manifest
from ferryman._model.routing import RoutingTable
from ferryman.aggregates import count
from ferryman.errors import InvalidConfiguration, Superseded

pytest.importorskip("confluent_kafka", reason="make install brings it")


def counted(spark, place, frame, **options):
    return ferry_of(spark, place).stream(frame, "readings", **options).key_by("key").aggregate("Counts", n=count())


@pytest.mark.slow
def test_what_waits_is_told_by_epoch_and_to_a_group_what_is_committed(
    with_connector, topics, topic, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("FERRYMAN_JOBS", str(tmp_path / "jobs"))
    topics.send(topic, as_records(rows(0, 100)))
    frame = parsed(read(with_connector, topics, topic, maxOffsetsPerTrigger=60))
    stream = counted(with_connector, tmp_path, frame, consumer_group=f"{topic}-alarms")
    job = stream.write(sinks.none()).start("lag", instances=2, trigger={"processingTime": "2 seconds"})
    try:
        job.wait_for(lambda: len([epoch for epoch in job.progress() if epoch.waiting is not None]) == 2, timeout=120)
        first, second = (epoch.waiting["readings"] for epoch in job.progress())
        ends = [len([1 for record in topics.read(topic) if record.partition() == part]) for part in range(3)]
        assert first.keys() == {f"{topic}-{part}" for part, end in enumerate(ends) if end}
        # Spark rounds what it takes of each partition.
        assert sum(first.values()) == 100 - job.progress()[0].rows > 0
        assert set(second.values()) == {0}
        until(lambda: topics.committed(f"{topic}-alarms", topic, 3) == ends, "the group is not told")
        job.explain()
        assert "readings: 0 rows wait in Kafka. consumer group" in capsys.readouterr().out
        (listed,) = json.loads(CliRunner().invoke(app, ["jobs", "--json"]).output)
        assert listed["waiting"] == job.rows_waiting == 0
        assert "0 rows wait in Kafka" in CliRunner().invoke(app, ["jobs"]).output
    finally:
        job.stop()


@pytest.mark.slow
def test_a_group_is_told_at_a_start_what_was_committed_before_and_at_the_end_what_came_since(
    with_connector, topics, topic, tmp_path
):
    topics.send(topic, as_records(rows(0, 50)))

    def run(**options):
        frame = parsed(read(with_connector, topics, topic))
        counted(with_connector, tmp_path, frame, **options).write(sinks.none()).start(
            "lag", instances=2, trigger=ONCE
        ).wait()

    group = f"{topic}-alarms"
    run()
    assert topics.committed(group, topic, 3) == [-1, -1, -1]
    run(consumer_group=group)
    assert sum(topics.committed(group, topic, 3)) == 50
    topics.send(topic, as_records(rows(50, 80)))
    run(consumer_group=group)
    assert sum(topics.committed(group, topic, 3)) == 80


@pytest.mark.slow
def test_brokers_that_are_away_hold_up_no_epoch(with_connector, topics, topic, tmp_path, caplog):
    topics.send(topic, as_records(rows(0, 50)))
    frame = parsed(read(with_connector, topics, topic, maxOffsetsPerTrigger=10))
    stream = counted(
        with_connector,
        tmp_path,
        frame,
        consumer_group="alarms",
        group_options={"bootstrap.servers": "127.0.0.1:1"},
    )
    with caplog.at_level(logging.WARNING, "ferryman"):
        job = stream.write(sinks.none()).start("lag", instances=2, trigger=ONCE)
        job.wait()
    assert sum(epoch.rows for epoch in job.progress()) == 50
    (said,) = [record.message for record in caplog.records if "consumer group" in record.message]
    assert "'alarms' cannot be told of epoch" in said
    assert "The job goes on" in said


# -- without Spark -------------------------------------------------------------------------------------


def manifest(epoch: int, topic: str, offset: int) -> Manifest:
    return Manifest(
        epoch=epoch,
        batch=epoch,
        silent=False,
        time_ms=1,
        routing=RoutingTable.even(1, 1, 1),
        operators={},
        tables={},
        offsets=({topic: {"0": offset}},),
    )


@contextlib.contextmanager
def reports(place: KafkaPlace, look=lambda before: None) -> Iterator[KafkaReports]:
    made = KafkaReports("job", [place], told=lambda: None, learned=lambda batch, lag: None, look=look)
    try:
        yield made
    finally:
        made.close()


def forward(listening: socket.socket, to: str) -> None:
    """Pass on what comes to a socket."""
    host, _, port = to.rpartition(":")

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listening.accept()
                callee = socket.create_connection((host, int(port)))
                for pair in ((caller, callee), (callee, caller)):
                    threading.Thread(target=pass_on, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


@pytest.mark.slow
def test_a_group_is_told_the_newest_when_the_brokers_are_back(topics, topic, monkeypatch, caplog):
    monkeypatch.setattr(kafka_reports, "_AGAIN_S", 0.2)
    monkeypatch.setattr(kafka_groups, "PATIENCE_S", 1.0)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{listening.getsockname()[1]}"
        place = KafkaPlace("readings", ConsumerGroup("back", {"bootstrap.servers": away}))
        with reports(place) as told:
            told.committed(manifest(1, topic, 10))
            until(lambda: any("cannot be told of epoch 1" in record.message for record in caplog.records), "no warning")
            told.committed(manifest(2, topic, 20))
            listening.listen()
            forward(listening, topics.servers)
            until(lambda: topics.committed("back", topic, 1) == [20], "the group is not told")
            assert str(told) == "consumer group 'back': told of epoch 2"
        assert len([record for record in caplog.records if "cannot be told" in record.message]) == 1


@pytest.mark.slow
def test_a_run_that_was_taken_over_tells_nothing_any_more(topics: Topics, topic):
    def look(before: str) -> None:
        raise Superseded("run 2 has taken over")

    place = KafkaPlace("readings", ConsumerGroup("taken", {"bootstrap.servers": topics.servers}))
    with reports(place, look) as told:
        told.committed(manifest(1, topic, 10))
    assert topics.committed("taken", topic, 1) == [-1]


def test_what_waits_is_said_by_source_and_those_that_do_not_tell_are_left_out():
    def kafka(end: int, latest: int | None) -> dict:
        ends = None if latest is None else {"t": {"0": latest, "1": 7}}
        return {"description": "KafkaV2[Subscribe[t]]", "endOffset": {"t": {"0": end}}, "latestOffset": ends}

    rate = {"description": "RateStreamV2", "endOffset": 5, "latestOffset": 9}
    # A new partition waits as a whole for the next epoch, which begins with it; so it does not count yet.
    assert lag_by_source({"sources": [rate, kafka(5, 9)]}, ["ticks", "a"]) == {"a": {"t-0": 4, "t-1": 0}}
    assert lag_by_source({"sources": [kafka(5, 9), kafka(4, 9)]}, ["a", "a"]) == {"a": {"t-0": 9, "t-1": 0}}
    assert lag_by_source({"sources": [kafka(5, None)]}, ["a"]) == {}
    # What was deleted and made anew may end before it.
    assert lag_by_source({"sources": [kafka(5, 1)]}, ["a"]) == {"a": {"t-0": 0, "t-1": 0}}
    many = {"a": {f"t-{part}": part for part in range(6)}}
    assert lag_in_words(many) == "a: 15 rows wait in Kafka (t-5: 5, t-4: 4, t-3: 3, 2 more)"


def test_a_group_for_what_is_not_kafka_is_refused(spark, tmp_path):
    ferry = ferry_of(spark, tmp_path)
    frame = sources.generator(spark)
    with pytest.raises(InvalidConfiguration, match=r"consumer_group='alarms'.* does not read Kafka"):
        ferry.stream(frame, consumer_group="alarms")
    with pytest.raises(InvalidConfiguration, match="is for a consumer_group"):
        ferry.stream(frame, group_options={"sasl.username": "ferry"})
    with pytest.raises(InvalidConfiguration, match="give the name"):
        ferry.stream(frame, consumer_group="")
