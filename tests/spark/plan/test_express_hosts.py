"""Express epochs where instances are tied to executors: rows go by the driver, to a task per instance.

What must hold whether or not they are tied is in `test_express`.
"""

from __future__ import annotations

import datetime

import pytest
from pyspark import TaskContext

from ferryman import Ferry, Operator, Value, aggregates, side, sinks, sources
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._spark.compat.pinned_tasks import PinnedTasks

pytestmark = pytest.mark.usefixtures("tied")

ONCE = {"availableNow": True}
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def generator(spark, rows=400, per_epoch=100, **options):
    return sources.generator(spark, rows=rows, rows_per_epoch=per_epoch, keys=20, key_prefix="s-", **options)


def manifests(checkpoint):
    """Give what the manifests of a job say that may not depend on how its epochs went."""
    log = Checkpoint(directory(str(checkpoint)))
    for epoch in log.epochs():
        manifest = log.manifest(epoch)
        yield manifest.operators, manifest.tables, manifest.watermarks, manifest.held, manifest.routing


class Seen(Operator):
    n = Value(int, 0)
    output = "key string, n long, task long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n, TaskContext.get().taskAttemptId()


class Calls(Operator):
    """Calls by event time, a side output, late rows that are kept, and rows of other keys than its own."""

    n = Value(int, 0)
    by_event_time = True
    output = "key string, n long, bucket long"
    sides = {"odd": "key string, id long"}  # noqa: RUF012

    def process(self, key, row):
        self.n += 1
        self.call_at(int(row.event_time.timestamp() * 1000) + 50)
        yield key, self.n, row.id % 3
        if row.id % 2:
            yield side("odd", f"{key}-{row.id % 5}", row.id)

    def due(self, key, at):
        yield key, -self.n, at % 3


class Again(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n


def start_many(ferry, spark, tables):
    """Start a chain by one key, one by other keys, and one of a side output, with event time."""
    rows = generator(spark, start=START, interval_ms=10)
    first = ferry.stream(rows).with_watermark("event_time", "20 milliseconds").key_by("key").process(Calls)
    again = first.key_by("key").process(Again)
    third = again.key_by("key").aggregate(name="Third", n=aggregates.count(), top=aggregates.max("n"))
    buckets = first.key_by("bucket").aggregate(name="Buckets", n=aggregates.count())
    odd = first.side("odd").key_by("key").aggregate(name="Odd", n=aggregates.count(), newest=aggregates.last("id"))
    outputs = zip((first, third, buckets, odd), tables, strict=True)
    return ferry.start("many", *(stream.write(sink) for stream, sink in outputs), instances=3, trigger=ONCE)


def test_chains_timers_watermarks_and_side_outputs_write_the_same_bytes_as_by_a_shuffle(spark, tmp_path):
    found = []
    for express in (True, False):
        tables = [sinks.memory() for _ in range(4)]
        ferry = Ferry(spark, str(tmp_path / str(express)), idle=None, express=express)
        job = start_many(ferry, spark, tables)
        job.wait()
        assert {epoch.route for epoch in job.progress()} == {"express" if express else "shuffle"}
        found.append([sorted(map(repr, table.rows())) for table in tables])
    assert found[0] == found[1]
    assert all(found[0])
    assert any(row["n"] < 0 for row in tables[0].rows()), "nothing was ever due"
    assert list(manifests(tmp_path / "True")) == list(manifests(tmp_path / "False"))


def test_operators_on_one_key_share_a_task_once_their_rows_were_seen_to_stay(spark, tmp_path):
    first, second = sinks.memory(), sinks.memory()
    ferry = Ferry(spark, str(tmp_path), idle=None)
    seen = ferry.stream(generator(spark)).key_by("key").process(Seen)

    class Where(Operator):
        n = Value(int, 0)
        output = "key string, n long, before long, here long"

        def process(self, key, row):
            self.n += 1
            yield key, row.n, row.task, TaskContext.get().taskAttemptId()

    outputs = (seen.write(first), seen.key_by("key").process(Where).write(second))
    job = ferry.start("one-key", *outputs, instances=2, trigger=ONCE)
    job.wait()
    assert {epoch.route for epoch in job.progress()} == {"express"}
    assert len({row["task"] for row in first.rows()}) == 2 * 4
    together = [row["before"] == row["here"] for row in second.rows()]
    assert together == [False] * 100 + [True] * 300


def test_keys_and_groups_move_while_small_epochs_flow(spark, tmp_path):
    """On one executor nothing travels, but rows are held, pins are set, and every layout has tasks of its own."""
    memory = sinks.memory()
    ferry = Ferry(spark, str(tmp_path), idle=None, groups=8, retain=1000)
    stream = ferry.stream(generator(spark, rows=1_000_000, per_epoch=50)).key_by("key")
    job = stream.process(Again).key_by("key").aggregate(name="Times", n=aggregates.max("n")).write(memory)
    job = job.start("moves", instances=2)
    try:
        assert job.wait_for(lambda: job.epoch >= 3, timeout=120)
        to = 1 - job._runner.coordinator.table.owner[job.group_of("s-1")]
        changes = [lambda: job.move(keys="s-1", to=to), lambda: job.rescale(3, strategy="push"), lambda: job.rescale(2)]
        for change in changes:
            begun = change()
            assert job.wait_for(lambda begun=begun: begun.over, timeout=120)
            assert begun.phase == "done", begun.reason
        last = job.epoch + 2
        assert job.wait_for(lambda: job.epoch >= last, timeout=120)
    finally:
        job.stop()
    assert {epoch.route for epoch in job.progress()} == {"express"}
    kept = job.state("Again").to_arrow().to_pylist()
    assert sum(row["n"] for row in kept) == sum(epoch.rows for epoch in job.progress())
    # Every row of a key was counted once, in whatever layout.
    assert {row["key"]: row["n"] for row in kept} == {
        row["key"]: row["n"] for row in job.state("Times").to_arrow().to_pylist()
    }


def test_an_operator_may_use_a_broadcast_variable_and_be_large(spark, tmp_path):
    words = spark.sparkContext.broadcast({"s-1": "one"})
    padding = bytes(range(256)) * (5 << 12)

    class Named(Operator):
        n = Value(int, 0)
        output = "key string, name string, size long"

        def process(self, key, row):
            self.n += 1
            yield key, words.value.get(key, "other"), len(padding)

    memory = sinks.memory()
    stream = Ferry(spark, str(tmp_path), idle=None).stream(generator(spark)).key_by("key")
    job = stream.process(Named).write(memory).start("named", instances=2, trigger=ONCE)
    job.wait()
    assert {epoch.route for epoch in job.progress()} == {"express"}
    assert {(row["key"] == "s-1", row["name"]) for row in memory.rows()} == {(True, "one"), (False, "other")}
    assert {row["size"] for row in memory.rows()} == {len(padding)}


class Fails(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        # Were it written where results go, these could not be read.
        print("about to fail", flush=True)
        raise ValueError(f"row {row.id} of {key}")


@pytest.mark.parametrize("operator", ["fails", "leaves"])
def test_an_operator_that_fails_or_ends_its_worker_is_the_same_error_both_ways(spark, tmp_path, operator):
    class Leaves(Operator):
        n = Value(int, 0)
        output = "key string, n long"

        def process(self, key, row):
            import os

            os._exit(7)

    told = []
    for express in (True, False):
        place = str(tmp_path / str(express))
        stream = Ferry(spark, place, idle=None, express=express).stream(generator(spark)).key_by("key")
        chosen = Fails if operator == "fails" else Leaves
        job = stream.process(chosen).write(sinks.none()).start("fails", instances=2, trigger=ONCE)
        with pytest.raises(Exception, match="row" if operator == "fails" else "worker") as caught:
            job.wait()
        told.append((type(caught.value).__name__, job.epoch))
        if operator == "fails":
            assert "Fails" in str(caught.value)
    assert told[0] == told[1]
    assert told[0][1] == 0


def test_tasks_run_where_they_are_tied_and_get_their_own_bytes(spark):
    tasks = PinnedTasks(spark, ["", "executor_nowhere_7", ""])

    def doubled(instance, data):
        return [str(instance).encode(), data * 2]

    large = b"x" * 100_000
    assert tasks.run(doubled, [b"a", b"", large]) == [b"0", b"aa", b"1", b"", b"2", large * 2]
