"""Operators on one key run without a shuffle between them, and nothing else shows."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import functions as F

from ferryman import Ferry, Operator, Value, aggregates, sinks, sources
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._spark.api.stream import Operated
from ferryman._spark.plan.chaining import is_chained

ONCE = {"availableNow": True}


def generator(spark, rows=400, per_epoch=100, keys=10):
    return sources.generator(spark, rows=rows, rows_per_epoch=per_epoch, keys=keys, key_prefix="s-", partitions=3)


class Trail(Operator):
    """Keep what depends on every row and on their order."""

    digest = Value(int, 0)
    output = "key string, digest long"
    sides = {"odd": "key string, n long"}  # noqa: RUF012

    def process(self, key, row):
        from ferryman import side

        self.digest = (self.digest * 1_000_003 + row.n) % 1_000_000_007
        yield key, self.digest
        if row.n % 2:
            yield side("odd", key, row.n)


def sums(stream, name="Sums", by=("key",)):
    return stream.key_by(*by).aggregate(name=name, n=aggregates.count(), newest=aggregates.last("id"))


def counted(stream, by=("key",)):
    return stream.key_by(*by).aggregate(name="Counted", m=aggregates.count())


def joined(frame):
    others = frame.sparkSession.range(100).withColumnRenamed("id", "other")
    return frame.join(F.broadcast(others), F.col("n") == F.col("other"))


def asked(frame):
    frame.sparkSession.range(100).createOrReplaceTempView("others")
    return frame.where("n IN (SELECT id FROM others)")


CHAINED = {
    "directly": lambda rows: counted(sums(rows)),
    "after steps row by row": lambda rows: counted(
        sums(rows)
        .where("n > 1")
        .withColumn("n", F.col("n") + 1)
        .transform(lambda frame: frame.alias("a").select("a.key", "a.n"))
    ),
    "to a user's operator": lambda rows: sums(rows).key_by("key").process(Trail),
    "by several columns": lambda rows: counted(sums(rows, by=("key", "value")), by=("key", "value")),
    "with late rows aside": lambda rows: counted(sums(rows.with_watermark("event_time", "1 second", keep_late=True))),
}
APART = {
    "another key": lambda rows: counted(sums(rows), by=("n",)),
    "columns in another order": lambda rows: counted(sums(rows, by=("key", "value")), by=("value", "key")),
    "less of a key": lambda rows: counted(sums(rows, by=("key", "value"))),
    "a key that a step has changed": lambda rows: counted(sums(rows).withColumn("key", F.upper("key"))),
    "a key that a step has made anew": lambda rows: counted(sums(rows).drop("key").withColumnRenamed("newest", "key")),
    "a step that joins": lambda rows: counted(sums(rows).transform(joined)),
    "a step that asks another query": lambda rows: counted(sums(rows).transform(asked)),
    "a step that takes rows together": lambda rows: counted(sums(rows).transform(lambda frame: frame.distinct())),
    "a user's operator": lambda rows: counted(rows.selectExpr("*", "id AS n").key_by("key").process(Trail)),
    "its side output": lambda rows: counted(rows.selectExpr("*", "id AS n").key_by("key").process(Trail).side("odd")),
    "the source": lambda rows: counted(rows),
}


@pytest.mark.parametrize(("shape", "chained"), [*((s, True) for s in CHAINED), *((s, False) for s in APART)])
def test_an_operator_is_chained_where_its_rows_are_with_their_instances_for_certain(spark, tmp_path, shape, chained):
    stream = {**CHAINED, **APART}[shape](Ferry(spark, str(tmp_path)).stream(generator(spark)))
    operator = stream if isinstance(stream, Operated) else stream.parent
    assert is_chained(operator) == chained


def manifests(checkpoint):
    """Give what the manifests of a job say that may not depend on how its epochs went."""
    log = Checkpoint(directory(str(checkpoint)))
    for epoch in log.epochs():
        manifest = log.manifest(epoch)
        yield manifest.operators, manifest.tables, manifest.watermarks, manifest.held, manifest.routing


def test_a_chain_has_one_shuffle_and_gives_the_same_bytes_and_rows_as_all_in_one_task(spark, tmp_path):
    found, plans = [], []
    for express in (True, False):
        memory, odd = sinks.memory(), sinks.memory()

        def take(frame, number):
            plans.append(frame._jdf.queryExecution().executedPlan().toString())

        ferry = Ferry(spark, str(tmp_path / str(express)), idle=None, express=express)
        # The first is read twice; the last is behind a user's operator.
        first = sums(ferry.stream(generator(spark)), "First")
        second = sums(first.selectExpr("key", "newest AS id"), "Second")
        third = second.where("n != 2").withColumn("n", F.col("n") + 1).key_by("key").process(Trail)
        outputs = (first.write(memory), third.side("odd").write(odd), third.write(sinks.foreach(take)))
        job = ferry.start("chain", *outputs, instances=2, trigger=ONCE)
        job.wait()
        assert job.progress()[0].route == ("express" if express else "shuffle")
        found.append([sorted(map(repr, rows)) for rows in (memory.rows(), odd.rows())])
    assert found[0] == found[1]
    assert all(found[0])
    assert list(manifests(tmp_path / "True")) == list(manifests(tmp_path / "False"))
    assert len(re.findall(r"Exchange hashpartitioning", plans[-1])) == 1, plans[-1]


def changed(job, change):
    assert job.wait_for(lambda: change.over, timeout=120)
    assert change.phase == "done", change.reason


class Newest(Operator):
    """Keep the newest count of a key; a count that does not follow on the one kept was put out by a stranger."""

    n = Value(int, 0)
    output = "key string, before long, n long"

    def process(self, key, row):
        yield key, self.n, row.n
        self.n = row.n


def test_keys_move_and_instances_come_and_go_under_a_chain(spark, tmp_path):
    memory = sinks.memory()
    ferry = Ferry(spark, str(tmp_path), idle=None, express=False, groups=4)
    chain = sums(ferry.stream(generator(spark, rows=2000)), "First").key_by("key").process(Newest)
    assert is_chained(chain)
    job = chain.write(memory).start("moves", instances=2, trigger=ONCE)
    # A key can be moved when its first row has been processed.
    assert job.wait_for(lambda: job.epoch >= 1, timeout=120)
    changed(job, job.move(keys="s-1", to=1))
    # By a strategy that has rows wait: those of a group wait before the first operator, and none comes to the second.
    changed(job, job.rescale(3, strategy="push"))
    changed(job, job.move(keys=["s-1", "s-2"], to=2))
    changed(job, job.rescale(2))
    job.wait()
    first, newest = (
        {row["key"]: row["n"] for row in job.state(name).to_arrow().to_pylist()} for name in ("First", "Newest")
    )
    assert first == newest
    assert sum(first.values()) == 2000
    for key in first:
        counts = [(row["before"], row["n"]) for row in memory.rows() if row["key"] == key]
        assert [before for before, _ in counts] == [0, *(n for _, n in counts[:-1])]


@pytest.mark.usefixtures("hosts")
def test_a_step_that_changes_keys_only_when_epochs_run_has_a_shuffle_after_it_from_then_on(spark, tmp_path):
    changes, plans, found = [], [], []

    def take(frame, number):
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        if number == 1:
            changes.append(True)

    def change(frame):
        return frame.withColumn("key", F.reverse("key")) if changes else frame

    for express in (True, False):
        changes.clear()
        plans.clear()
        ferry = Ferry(spark, str(tmp_path / str(express)), idle=None, express=express)
        stream = sums(ferry.stream(generator(spark))).where("n > 0")
        stream = counted(
            stream.transform(lambda frame: frame.withColumn("key", F.reverse("key")) if changes else frame)
        )
        assert is_chained(stream)
        job = stream.write(sinks.foreach(take)).start("changes", instances=2, trigger=ONCE)
        job.wait()
        found.append({row["key"]: row["m"] for row in job.state("Counted").to_arrow().to_pylist()})
    assert found[0] == found[1]
    assert {key.startswith("s-") for key in found[0]} == {True, False}
    shuffles = [len(re.findall(r"Exchange hashpartitioning", plan)) for plan in plans]
    assert shuffles[0] == shuffles[1] < shuffles[2] == shuffles[3], plans[-1]


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize("first", ["chained", "apart", "the source"])
def test_a_step_that_lets_nothing_through_for_certain_leaves_no_instance_out(spark, tmp_path, first):
    """Spark would make of it a plan without tasks; but an instance has things to do at a time as well."""
    rows = Ferry(spark, str(tmp_path), idle=None, express=False).stream(generator(spark)).withColumn("n", F.col("id"))
    before = {"chained": sums, "apart": lambda rows: rows.key_by("key").process(Trail), "the source": lambda rows: rows}
    nothing = before[first](rows).where(F.col("key").isin([]))
    job = counted(nothing).write(sinks.none()).start("nothing", instances=2, trigger=ONCE)
    job.wait()
    assert job.epoch == 4
    assert [epoch.operators["Counted"]["rows"] for epoch in job.progress()] == [0] * 4


def test_an_operator_that_is_chained_from_now_on_counts_rows_and_not_the_partials_it_had_before(spark, tmp_path):
    records = []
    for chained, rows in ((False, 48_000), (True, 72_000)):
        ferry = Ferry(spark, str(tmp_path), idle=None, express=False)
        stream = ferry.stream(generator(spark, rows, per_epoch=24_000, keys=50))
        stream = sums(stream, "First").withColumnRenamed("newest", "id") if chained else stream
        job = sums(stream, "Second").write(sinks.none()).start("chained", instances=2, trigger=ONCE)
        job.wait()
        records += [epoch.operators["Second"] for epoch in job.progress()]
    assert [(record["rows"], record["keys"]) for record in records] == [(24_000, 50), (24_000, 50), (50, 50)]
