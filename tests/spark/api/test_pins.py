"""Single keys of a running job move, are pinned and go back; hot keys are found, isolated and split."""

from __future__ import annotations

import fleet
import pytest
from pyspark.sql import functions as F

from ferryman import Ferry, Operator, Value, aggregates, sinks, sources
from ferryman._engine.when_partials_pay import worth_combining
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman.errors import InvalidPlan

# Enough to see what is lost, doubled or out of order.
PARTS = ("trail", "words")


def changed(job, change):
    assert job.wait_for(lambda: change.over, timeout=120)
    assert change.phase == "done", change.reason


def away(job, key):
    """Give an instance that a key is not on."""
    table = job._runner.coordinator.table
    hash = job._find_keys([key], None)[0].hash
    return (table.owner_of(hash) + 1) % table.instances


def test_keys_move_while_rows_flow_and_nothing_shows(spark, tmp_path):
    checkpoint, out = str(tmp_path / "c"), str(tmp_path / "o")
    sizes = {"per_epoch": 100, "retain": 100, "groups": 4, "parts": PARTS}
    job = fleet.start(spark, checkpoint, out, rows=2500, instances=2, **sizes)
    assert job.wait_for(lambda: job.epoch >= 1, timeout=120)
    to = away(job, "s-1")
    preview = job.plan(keys="s-1", to=to)
    assert [(move.key, move.target) for move in preview.moves] == [("s-1", to)]
    assert "0 key groups and 1 single keys move" in str(preview)
    changed(job, job.move(keys="s-1", to=to))
    assert [(pin.key, pin.instance) for pin in job.pins()] == [("s-1", to)]
    # While it is pinned its group goes elsewhere, by a strategy that has rows wait, and instances come and go.
    changed(job, job.rescale(3, strategy="push"))
    changed(job, job.move(keys=["s-1", "s-2"], to=2))
    assert {pin.instance for pin in job.pins()} == {2}
    changed(job, job.rescale(2))
    assert job.pins() == [], "the instance it was pinned to is gone"
    changed(job, job.move(keys="s-3", to=away(job, "s-3")))
    job.wait()
    # A job that is started again has the pins it last had.
    job = fleet.start(spark, checkpoint, out, rows=3000, instances=None, **sizes)
    (pin,) = job.pins()
    assert pin.key == "s-3"
    changed(job, job.unpin())
    assert job.pins() == []
    job.wait()

    assert fleet.found(spark, checkpoint, out, PARTS) == fleet.expected(3000, PARTS)
    assert verify(Checkpoint(directory(checkpoint))).sound


class Remind(Operator):
    """Set a timer with every row, in event time; a timer says how many rows there were."""

    n = Value(int, 0)
    by_event_time = True
    output = "key string, at long, n long"

    def process(self, key, row):
        self.n += 1
        self.call_at(int(row.event_time.timestamp() * 1000) + 40)

    def due(self, key, at):
        yield key, at, self.n


def test_the_timers_of_a_pinned_key_fire_once(spark, tmp_path):
    def run(name, pins):
        frame = sources.generator(spark, rows=1200, rows_per_epoch=100, keys=6, key_prefix="s-", partitions=2)
        memory = sinks.memory()
        stream = Ferry(spark, str(tmp_path / name), groups=2, idle=None).stream(frame)
        stream = stream.with_watermark("event_time", "10 milliseconds")
        output = stream.key_by("key").process(Remind).write(memory)
        job = output.start(name, instances=2, trigger={"availableNow": True})
        if pins:
            assert job.wait_for(lambda: job.epoch >= 1, timeout=120)
            changed(job, job.move(keys="s-1", to=away(job, "s-1")))
            changed(job, job.move(keys="s-2", to=away(job, "s-2")))
        job.wait()
        return sorted((row["key"], row["at"], row["n"]) for row in memory.rows())

    plain, pinned = run("plain", pins=False), run("pinned", pins=True)
    assert len(plain) > 1000
    assert pinned == plain


def test_keys_that_make_no_sense_are_refused(spark, tmp_path):
    frame = sources.generator(spark, rows_per_epoch=50, keys=20, key_prefix="s-")
    ferry = Ferry(spark, str(tmp_path / "c"), groups=16)
    job = ferry.stream(frame).key_by("key").process(fleet.Trail).write(sinks.none()).start("odd", instances=2)
    try:
        assert job.wait_for(lambda: job.epoch >= 5, timeout=120)
        with pytest.raises(InvalidPlan, match=r"'nobody' does not exist: 'Trail' has no state of it as of epoch \d"):
            job.move(keys="nobody", to=1)
        with pytest.raises(InvalidPlan, match=r"key 7 fits no operator. Keyed are 'Trail' by key string"):
            job.move(keys=7, to=1)
        with pytest.raises(InvalidPlan, match="operator 'Nobody' does not exist: the job has 'Trail'"):
            job.move(keys="s-1", to=1, operator="Nobody")
        with pytest.raises(InvalidPlan, match="instance 9 does not exist"):
            job.move(keys="s-1", to=9)
        with pytest.raises(InvalidPlan, match="strategy='push' moves whole key groups"):
            job.move(keys="s-1", to=away(job, "s-1"), strategy="push")
        with pytest.raises(InvalidPlan, match="nothing moves"):
            job.move(keys="s-1", to=1 - away(job, "s-1"))
        with pytest.raises(InvalidPlan, match="none of these keys is pinned"):
            job.unpin("s-1")
        with pytest.raises(InvalidPlan, match="give groups or keys"):
            job.move(to=1)
        with pytest.raises(InvalidPlan, match="no keys were given"):
            job.move(keys=[], to=1)
        assert job.history() == []
        assert job.group_of("s-1") in range(16)
    finally:
        job.stop()


def half_hot(spark, *, rows_per_epoch, keys, upto):
    """Make an endless stream in which, up to a row, every second is of the key "hot"."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_epoch).load()
    hot = (F.col("value") % 2 == 0) & (F.col("value") < upto)
    other = F.concat(F.lit("s-"), F.col("value") % keys)
    return rows.select(F.col("value").alias("id"), F.when(hot, F.lit("hot")).otherwise(other).alias("key"))


def test_a_hot_key_is_found_isolated_and_put_back_when_it_has_cooled(spark, tmp_path):
    frame = half_hot(spark, rows_per_epoch=200, keys=97, upto=4000)
    memory = sinks.memory()
    ferry = Ferry(spark, str(tmp_path / "c"), groups=8, hot_keys="isolate")
    job = ferry.stream(frame).key_by("key").process(fleet.Trail).write(memory).start("hot", instances=2)
    assert job.wait_for(lambda: bool(job.pins()), timeout=120)
    (pin,) = job.pins()
    assert (pin.key, pin.hot) == ("hot", True)
    (hot,) = job.hot_keys()
    assert (hot.key, hot.instance, hot.pinned) == ("hot", pin.instance, True)
    assert hot.share == pytest.approx(0.5, abs=0.2)
    assert job._runner.coordinator.table.owner.count(pin.instance) < 4, "others have left it alone"
    assert job.wait_for(lambda: not job.pins(), timeout=160)
    job.stop()

    assert [change.kind for change in job.history()][:2] == ["isolate", "put back"]
    seen: dict[str, list[int]] = {}
    for row in memory.rows():
        seen.setdefault(row["key"], []).append(row["n"])
    assert sum(map(len, seen.values())) == sum(epoch.rows for epoch in job.progress())
    assert len(seen["hot"]) == 2000
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen.values())


def test_a_hot_key_of_a_declared_aggregate_is_split_over_the_tasks_that_read(spark, tmp_path):
    # Half of all rows are of one key, and the others are met once each: two rows to a key.
    frame = half_hot(spark, rows_per_epoch=30_000, keys=1 << 60, upto=1 << 60)
    stream = Ferry(spark, str(tmp_path / "c"), retain=100).stream(frame).key_by("key")
    stream = stream.aggregate(name="Sums", n=aggregates.count(), total=aggregates.sum("id"))
    job = stream.write(sinks.none()).start("split", instances=2)
    assert job.wait_for(lambda: job.epoch >= 4, timeout=120)
    job.stop()

    log = Checkpoint(directory(str(tmp_path / "c")))
    records = [log.manifest(epoch).operators["Sums"] for epoch in log.epochs()]
    assert all(record.rows == 30_000 and record.rows < 3 * record.keys for record in records)
    assert all(record.heaviest == 15_000 for record in records), "known by who makes the partials, too"
    assert worth_combining(job._runner.newest.operators, held=False)["Sums"].in_spark
    # Once it is split, no instance gets more than a partial of it from a task that reads.
    loads = job._runner.coordinator.report.load(job._runner.coordinator.table)
    assert max(loads.groups) < 15_000
    assert job.hot_keys() == []
    state = {row["key"]: (row["n"], row["total"]) for row in job.state("Sums").to_arrow().to_pylist()}
    assert state["hot"] == (15_000 * len(records), sum(range(0, 30_000 * len(records), 2)))
    assert sum(n for n, _ in state.values()) == 30_000 * len(records)
