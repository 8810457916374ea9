"""Jobs on one host: right results, one epoch for all operators, resuming, silence, sinks."""

from __future__ import annotations

import datetime
import json

import fleet
import pytest
from pyspark.sql import functions as F
from until import until

from ferryman import Ferry, Operator, Value, aggregates, sinks, sources
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory

ONCE = {"availableNow": True}


def generator(spark, rows=400, per_epoch=100, **options):
    return sources.generator(spark, rows=rows, rows_per_epoch=per_epoch, keys=10, key_prefix="s-", **options)


class Count(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n


class Ids(Operator):
    output = "key string, id long"

    def process(self, key, row):
        return [(key, row.id)]


def test_every_kind_of_operator_gives_what_a_plain_computation_gives(spark, tmp_path):
    checkpoint, out = str(tmp_path / "c"), str(tmp_path / "o")
    job = fleet.start(spark, checkpoint, out, rows=900, per_epoch=100, instances=2)
    job.wait()
    assert job.epoch == 9
    assert fleet.found(spark, checkpoint, out) == fleet.expected(900)


def test_a_job_resumes_with_another_number_of_instances(spark, tmp_path):
    checkpoint, out = str(tmp_path / "c"), str(tmp_path / "o")
    for rows, instances in ((300, 2), (500, 5), (700, 1)):
        job = fleet.start(spark, checkpoint, out, rows=rows, per_epoch=100, instances=instances)
        job.wait()
    assert fleet.found(spark, checkpoint, out) == fleet.expected(700)
    versions = {Checkpoint(directory(checkpoint)).manifest(epoch).routing.version for epoch in (6, 7)}
    assert versions == {3}


def test_all_operators_of_an_epoch_stand_in_one_manifest(spark, tmp_path):
    checkpoint = str(tmp_path / "c")
    fleet.start(spark, checkpoint, str(tmp_path / "o"), rows=200, per_epoch=100, instances=2, retain=10).wait()
    log = Checkpoint(directory(checkpoint))
    for epoch in log.epochs():
        manifest = log.manifest(epoch)
        assert set(manifest.operators) == {"Trail", "Buckets", "Words", "Extremes"}
        assert {name: record.rows for name, record in manifest.operators.items()} == dict.fromkeys(
            manifest.operators, 100
        )
        assert manifest.offsets, "the manifest holds the source's offsets"


def test_rows_of_a_key_come_in_the_sources_order(spark, tmp_path):
    memory = sinks.memory()
    frame = generator(spark, rows=3000, per_epoch=1000, partitions=5)
    Ferry(spark, str(tmp_path)).stream(frame).key_by("key").process(Ids).write(memory).start(
        "order", instances=3, trigger=ONCE
    ).wait()
    by_key = {}
    for row in memory.rows():
        by_key.setdefault(row["key"], []).append(row["id"])
    assert sum(map(len, by_key.values())) == 3000
    assert all(ids == sorted(ids) for ids in by_key.values())


def test_epochs_come_when_no_data_does(spark, tmp_path):
    memory = sinks.memory()
    ferry = Ferry(spark, str(tmp_path), idle="100 milliseconds")
    job = ferry.stream(generator(spark)).key_by("key").process(Count).write(memory).start("silent", instances=2)
    try:
        # Silence may come before the data, too; what counts is the silence after it.
        assert job.wait_for(lambda: len(memory.rows()) == 400 and job.progress()[-1].silent, timeout=60)
    finally:
        job.stop()
    silent = [epoch for epoch in job.progress() if epoch.silent]
    assert {epoch.rows for epoch in silent} == {0}
    assert len(memory.rows()) == 400
    log = Checkpoint(directory(str(tmp_path)))
    last = silent[-1].epoch
    assert log.manifest(last).batch == log.manifest(last - 1).batch


def test_a_condition_that_takes_long_keeps_no_epoch_from_ending(spark, tmp_path):
    frame = sources.generator(spark, rows_per_epoch=50, keys=20, key_prefix="s-")
    ferry = Ferry(spark, str(tmp_path / "c"), groups=4)
    job = ferry.stream(frame).key_by("key").process(Count).write(sinks.none()).start("endless", instances=2)
    found = []

    def condition():
        seen = len(job.progress())
        found.append(until(lambda: len(job.progress()) > seen, "no epoch ends while it is looked at", 10))
        return True

    assert job.wait_for(lambda: job.epoch >= 1, timeout=60)
    assert job.wait_for(condition, timeout=60)
    assert found[0]
    job.stop()


def test_stop_ends_after_an_epoch_and_quietly(spark, tmp_path, capfd):
    job = (
        Ferry(spark, str(tmp_path))
        .stream(generator(spark, rows=None, per_epoch=50))
        .key_by("key")
        .process(Count)
        .write(sinks.none())
        .start("quiet", instances=2)
    )
    job.wait_for(lambda: job.epoch >= 3, timeout=60)
    capfd.readouterr()
    job.stop()
    assert not job.active
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""
    assert len(job.state("Count").to_arrow()) == 10


def test_partial_aggregation_before_the_shuffle_gives_the_same(spark, tmp_path):
    frame = sources.generator(spark, rows=180_000, rows_per_epoch=60_000, keys=50, key_prefix="s-", partitions=3)
    stream = Ferry(spark, str(tmp_path)).stream(frame).key_by("key")
    memory = sinks.memory()
    job = (
        stream.aggregate(
            n=aggregates.count(),
            total=aggregates.sum("id"),
            low=aggregates.min("id"),
            first=aggregates.first("id"),
            last=aggregates.last("id"),
            mean=aggregates.avg("value"),
        )
        .write(memory)
        .start("combined", instances=2, trigger=ONCE)
    )
    job.wait()
    # From the second epoch on, three tasks of the source send at most 50 partials each.
    log = Checkpoint(directory(str(tmp_path)))
    assert [log.manifest(epoch).operators["aggregate_key"].rows for epoch in (1, 2, 3)] == [60_000] * 3
    batch = sources.generated(spark, rows=180_000, keys=50, key_prefix="s-").groupBy("key")
    want = batch.agg(F.count("*"), F.sum("id"), F.min("id"), F.min("id"), F.max("id"), F.avg("value")).collect()
    have = {row["key"]: row for row in memory.rows()[-50:]}
    for row in want:
        assert tuple(have[row[0]].values())[:6] == tuple(row)[:6]
        assert have[row[0]]["mean"] == pytest.approx(row[6], rel=1e-12)


def test_a_function_sink_may_look_at_its_rows_as_it_likes(spark, tmp_path):
    seen = {}

    def look(rows, epoch):
        rows.limit(1).collect()
        seen[epoch] = (rows.count(), rows.coalesce(1).count(), rows.where("n > 1").count())

    Ferry(spark, str(tmp_path)).stream(generator(spark)).key_by("key").process(Count).write(sinks.foreach(look)).start(
        "look", instances=2, trigger=ONCE
    ).wait()
    assert {epoch: counts[:2] for epoch, counts in seen.items()} == dict.fromkeys((0, 1, 2, 3), (100, 100))


def test_transformations_go_between_operators(spark, tmp_path):
    memory = sinks.memory()
    ferry = Ferry(spark, str(tmp_path))
    counted = ferry.stream(generator(spark)).where("id % 2 = 0").key_by("key").process(Count)
    marked = counted.select("key", (F.col("n") % 3).alias("third"))
    marked.key_by("third").aggregate(n=aggregates.count()).write(memory).start("t", instances=2, trigger=ONCE).wait()
    last = {row["third"]: row["n"] for row in memory.rows()}
    assert sum(last.values()) == 200


def test_console_prints_rows(spark, tmp_path, capsys):
    Ferry(spark, str(tmp_path)).stream(generator(spark, rows=3, per_epoch=3)).key_by("key").process(Count).write(
        sinks.console()
    ).start("console", instances=1, trigger=ONCE).wait()
    assert capsys.readouterr().out.count("key=s-") == 3


def test_state_can_be_shown_while_the_job_runs(spark, tmp_path, capsys):
    job = (
        Ferry(spark, str(tmp_path))
        .stream(generator(spark))
        .key_by("key")
        .process(Count)
        .write(sinks.none())
        .start("show", instances=2)
    )
    try:
        job.wait_for(lambda: job.epoch >= 4, timeout=60)
        job.state("Count").show(3)
    finally:
        job.stop()
    assert "| s-0|" in capsys.readouterr().out.replace("|s", "| s")
    assert json.dumps(job.progress()[-1].operators["Count"])


def test_a_job_tells_how_long_its_rows_took_from_their_event_to_the_commit(spark, tmp_path):
    ferry = Ferry(spark, str(tmp_path), idle=None)
    now = datetime.datetime.now(datetime.timezone.utc)
    rows = sources.generator(spark, rows=200, rows_per_epoch=100, keys=5, start=now, interval_ms=1)
    stream = ferry.stream(rows).with_watermark("event_time", "1 second").key_by("key")
    job = stream.aggregate(n=aggregates.count()).write(sinks.none()).start("late", instances=2, trigger=ONCE)
    job.wait()
    found = job.latency()
    assert (found.rows, found.epochs) == (200, 2)
    committed = [epoch.committed_ms for epoch in job.progress()]
    first = int(now.timestamp() * 1000)
    # Rows 0 to 99 are of the first epoch, a millisecond each.
    assert abs(found.max_ms - max(committed[0] - first, committed[1] - first - 100)) <= 1
    assert found.p50_ms <= found.p99_ms <= found.max_ms
    assert job.latency(epochs=1).rows == 100


def test_a_job_without_a_time_of_events_tells_no_latency(spark, tmp_path):
    job = Ferry(spark, str(tmp_path)).stream(generator(spark)).key_by("key").process(Count).write(sinks.none())
    job = job.start("none", trigger=ONCE)
    job.wait()
    assert job.latency() is None


def test_progress_tells_what_an_epoch_is_made_of(spark, tmp_path):
    job = Ferry(spark, str(tmp_path)).stream(generator(spark)).key_by("key").process(Count).write(sinks.none())
    job = job.start("phases", trigger=ONCE)
    job.wait()
    for epoch in job.progress():
        assert list(epoch.phases_ms) == ["begin", "tasks", "sinks", "gather", "commit", "tell"]
        assert abs(sum(epoch.phases_ms.values()) - epoch.duration_ms) < 5
