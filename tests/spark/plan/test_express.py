"""Express epochs: the same bytes as by a shuffle, and a way back where there is too much for them."""

from __future__ import annotations

import ast
import datetime
from decimal import Decimal

import fleet
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ferryman import Ferry, Operator, Value, aggregates, side, sinks, sources
from ferryman._engine.express_or_shuffle import MOST_BYTES, MOST_ROWS
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._spark.compat.one_task import OneTask
from ferryman._spark.plan.express import SegmentPlan
from ferryman._spark.plan.spark_executor import SparkExecution, TableFrame

ONCE = {"availableNow": True}
DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def generator(spark, rows=400, per_epoch=100, **options):
    return sources.generator(spark, rows=rows, rows_per_epoch=per_epoch, keys=10, key_prefix="s-", **options)


class Twice(Operator):
    n = Value(int, 0)
    output = "key string, n long, bucket long"
    sides = {"odd": "key string, id long"}  # noqa: RUF012

    def process(self, key, row):
        self.n += 1
        yield key, self.n, row.id % 7
        if row.id % 2:
            yield side("odd", key, row.id)


class Times(Operator):
    n = Value(int, 0)
    output = "bucket long, n long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n


def manifests(checkpoint):
    """Give what the manifests of a job say that may not depend on how its epochs went."""
    log = Checkpoint(directory(str(checkpoint)))
    for epoch in log.epochs():
        manifest = log.manifest(epoch)
        yield manifest.operators, manifest.tables, manifest.watermarks, manifest.held, manifest.routing


@pytest.mark.usefixtures("hosts")
def test_operators_in_a_chain_and_beside_each_other_write_the_same_bytes_as_by_a_shuffle(spark, tmp_path, monkeypatch):
    monkeypatch.setenv("FLEET_SOURCE", str(tmp_path / "source"))
    routes = {}
    for express in (True, False):
        place = tmp_path / str(express)
        options = {"rows": 500, "per_epoch": 100, "instances": 3, "retain": 10}
        job = fleet.start(spark, str(place / "c"), str(place / "o"), express=express, **options)
        job.wait()
        routes[express] = {progress.route for progress in job.progress()}
        assert fleet.found(spark, str(place / "c"), str(place / "o")) == fleet.expected(500)
    assert "express" in routes[True]
    assert routes[False] == {"shuffle"}
    assert list(manifests(tmp_path / "True" / "c")) == list(manifests(tmp_path / "False" / "c"))


def start_steps(ferry, spark, tables):
    """Start a job with a step of Spark's between two operators, a side output that is read, and three sinks."""
    first = ferry.stream(generator(spark)).key_by("key").process(Twice)
    odd = first.side("odd").key_by("key").aggregate(name="Odd", n=aggregates.count())
    second = first.where("n > 2").withColumn("bucket", F.col("bucket") + 1).key_by("bucket").process(Times)
    outputs = zip((first, odd, second.select("n", "bucket")), tables, strict=True)
    return ferry.start("steps", *(stream.write(sink) for stream, sink in outputs), instances=2, trigger=ONCE)


@pytest.mark.usefixtures("hosts")
def test_steps_of_sparks_between_operators_and_after_them_give_the_same_rows(spark, tmp_path):
    found = []
    for express in (True, False):
        tables = [sinks.memory() for _ in range(3)]
        job = start_steps(Ferry(spark, str(tmp_path / str(express)), idle=None, express=express), spark, tables)
        job.wait()
        # On a busy machine taking turns may cost more than a shuffle, but not at first.
        assert job.progress()[0].route == ("express" if express else "shuffle")
        found.append([sorted(map(repr, table.rows())) for table in tables])
    assert found[0] == found[1]
    assert all(found[0])
    assert list(manifests(tmp_path / "True")) == list(manifests(tmp_path / "False"))


@pytest.mark.usefixtures("hosts")
def test_an_epoch_with_more_rows_than_express_takes_is_done_by_a_shuffle(spark, tmp_path):
    rows = MOST_ROWS + 1
    job = (
        Ferry(spark, str(tmp_path), idle=None)
        .stream(generator(spark, rows=2 * rows, per_epoch=rows))
        .key_by("key")
        .aggregate(name="Sums", n=aggregates.count())
        .write(sinks.none())
        .start("large", instances=2, trigger=ONCE)
    )
    job.wait()
    first, second = job.progress()
    assert (first.route, second.route) == ("shuffle", "shuffle")
    assert "more rows than express takes" in first.why
    assert "epoch 1 was too much for it; express is tried again in 8 epochs" in second.why
    assert sum(row["n"] for row in job.state("Sums").to_arrow().to_pylist()) == 2 * rows


class Large(Operator):
    n = Value(int, 0)
    output = "key string, n long, text string"

    def process(self, key, row):
        self.n += 1
        yield key, self.n, "x" * (MOST_BYTES // 100)


@pytest.mark.usefixtures("hosts")
def test_an_epoch_that_puts_out_more_than_express_may_is_done_by_a_shuffle(spark, tmp_path):
    memory = sinks.memory()
    stream = Ferry(spark, str(tmp_path), idle=None).stream(generator(spark, rows=200, per_epoch=200))
    job = stream.key_by("key").process(Large).select("key", "n").write(memory).start("wide", trigger=ONCE)
    job.wait()
    assert [progress.route for progress in job.progress()] == ["shuffle"]
    assert len(memory.rows()) == 200
    assert len({tuple(row.values()) for row in memory.rows()}) == 200, "no row counts twice"


def test_a_job_that_is_started_again_restores_its_state_side_by_side(spark, tmp_path):
    for rows, route in ((200, "express"), (400, "shuffle")):
        stream = Ferry(spark, str(tmp_path), idle=None).stream(generator(spark, rows=rows)).key_by("key")
        job = stream.aggregate(n=aggregates.count()).write(sinks.none()).start("again", instances=2, trigger=ONCE)
        job.wait()
        assert job.progress()[0].route == route


@pytest.mark.usefixtures("hosts")
def test_a_step_that_leaves_nothing_over_and_an_epoch_without_data_are_done_by_express_too(spark, tmp_path):
    """An operator behind a step of Spark's gets no rows in some epochs, and none in a silent one."""
    memory = sinks.memory()
    first = Ferry(spark, str(tmp_path), idle="1 second").stream(generator(spark, rows=200)).key_by("key").process(Twice)
    second = first.where("n > 15").key_by("bucket").process(Times)
    job = second.write(memory).start("nothing", instances=2)

    def is_over():
        epochs = job.progress()
        return sum(epoch.rows for epoch in epochs) == 200 and any(epoch.silent for epoch in epochs)

    assert job.wait_for(is_over, timeout=60)
    job.stop()
    assert job.progress()[0].operators["Times"]["rows"] == 0
    assert job.progress()[0].route == "express"
    counts = [row["n"] for row in job.state("Twice").to_arrow().to_pylist()]
    assert sum(counts) == 200
    assert len(memory.rows()) == sum(max(0, n - 15) for n in counts) > 0


@pytest.mark.usefixtures("hosts")
def test_rows_of_one_key_are_in_one_partition_in_their_order(spark, tmp_path):
    found = []

    def take(frame, number):
        found.append(frame.withColumn("part", F.spark_partition_id()).toArrow().to_pylist())

    ferry = Ferry(spark, str(tmp_path), idle=None)
    job = ferry.stream(generator(spark)).key_by("key").process(Twice).write(sinks.foreach(take))
    job.start("parts", instances=2, trigger=ONCE).wait()
    for rows in found:
        by_key = {}
        for row in rows:
            by_key.setdefault(row["key"], []).append((row["part"], row["n"]))
        assert all(len({part for part, _ in some}) == 1 for some in by_key.values())
        assert all(some == sorted(some) for some in by_key.values())


@pytest.mark.usefixtures("hosts")
def test_a_column_may_be_called_as_routing_calls_its_own(spark, tmp_path):
    memory = sinks.memory()
    ferry = Ferry(spark, str(tmp_path), idle=None)
    stream = ferry.stream(generator(spark).withColumn("_hash0", F.lit(7))).key_by("key", "_hash0")
    stream.aggregate(n=aggregates.count()).write(memory).start("named", trigger=ONCE).wait()
    assert max(row["n"] for row in memory.rows()) >= 30


def test_what_a_function_has_cached_is_let_go_of(spark, tmp_path):
    kept = []

    def take(frame, number):
        kept.append(frame.cache())
        frame.count()

    ferry = Ferry(spark, str(tmp_path), idle=None)
    job = ferry.stream(generator(spark)).key_by("key").process(Twice).write(sinks.foreach(take))
    job.start("cached", trigger=ONCE).wait()
    assert len(kept) == 4
    assert not any(frame.is_cached for frame in kept)


class Explodes(Operator):
    n = Value(int, 0)
    output = "key string, text string"

    def process(self, key, row):
        self.n += 1
        return [(key, "x" * 1000)] * 400


def test_what_operators_put_out_is_bounded_and_what_was_too_much_is_remembered(spark, tmp_path):
    ferry = Ferry(spark, str(tmp_path), idle=None)
    stream = ferry.stream(generator(spark)).key_by("key").process(Explodes).where("key = 'none'")
    job = stream.write(sinks.none()).start("explodes", trigger=ONCE)
    job.wait()
    first, *rest = job.progress()
    assert "more rows than express takes" in first.why
    assert all(epoch.route == "shuffle" and "tried again in" in epoch.why for epoch in rest)


TYPES = (
    "key string, yes boolean, tiny byte, short short, whole int, long long, real float, double double, "
    "money decimal(10,2), huge decimal(38,4), day date, at timestamp, local timestamp_ntz, data binary, "
    "list array<timestamp>, map map<string,timestamp>, nested struct<a:int,b:struct<at:timestamp>>, none string"
)
VALUES = (
    True, 1, 2, 3, 4, 0.5, 0.25, Decimal("1.25"), Decimal("12345678901234567890.1234"), DAY.date(), DAY,
    DAY.replace(tzinfo=None), b"\x00\xff", [DAY, None], {"a": DAY}, (1, (DAY,)), None,
)  # fmt: skip


class EveryType(Operator):
    n = Value(int, 0)
    output = TYPES

    def process(self, key, row):
        self.n += 1
        yield (key, *VALUES)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_every_type_comes_to_every_sink_as_by_a_shuffle(spark, tmp_path, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        found = []
        for express in (True, False):
            place = tmp_path / str(express)
            memory, rows = sinks.memory(), []
            ferry = Ferry(spark, str(place / "c"), idle=None, express=express)
            stream = ferry.stream(generator(spark, rows=20, per_epoch=20)).key_by("key").process(EveryType)

            def take(frame, number, rows=rows):
                rows += [frame.schema.simpleString(), *map(str, frame.orderBy("key").collect())]

            outputs = (memory, sinks.foreach(take), sinks.parquet(place / "o"))
            job = ferry.start("types", *(stream.write(sink) for sink in outputs), instances=2, trigger=ONCE)
            job.wait()
            assert [progress.route for progress in job.progress()] == ["express" if express else "shuffle"]
            written = sinks.read_parquet(spark, place / "o")
            assert StructType.fromDDL(TYPES).simpleString() == written.schema.simpleString()
            kept = sorted(map(repr, memory.rows()))
            found.append((kept, rows, sorted(map(str, written.collect()))))
        assert found[0] == found[1]
        assert len(found[0][0]) == 20
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("sizes", [[], [0], [0, 0], [1], [0, 1], [1, 0, 2], [0, 0, 5], [3, 4], [0, 500, 0]])
def test_a_frame_has_all_rows_of_its_table_in_whatever_pieces_they_came(spark, sizes):
    schema = pa.schema([("a", pa.int64())])
    pieces = [pa.table({"a": pa.array(range(size), pa.int64())}) for size in sizes]
    table = pa.concat_tables([schema.empty_table(), *pieces])
    frame = TableFrame(table, StructType.fromDDL("a long"), spark)
    assert frame.rows.toArrow().column("a").to_pylist() == table.column("a").to_pylist()
    assert frame.is_empty() == (not sum(sizes))


class Leaves(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        import os

        os._exit(7)


@pytest.mark.parametrize("express", [True, False])
def test_an_operator_that_ends_its_worker_is_the_same_error_both_ways(spark, tmp_path, express):
    stream = Ferry(spark, str(tmp_path), idle=None, express=express).stream(generator(spark)).key_by("key")
    job = stream.process(Leaves).write(sinks.none()).start("leaves", trigger=ONCE)
    with pytest.raises(Exception, match="worker") as caught:
        job.wait()
    assert type(caught.value).__name__ == "JobFailed"
    assert job.epoch == 0


@pytest.mark.parametrize("few_calls", [True, False])
def test_one_task_gets_all_rows_with_few_calls_or_with_sparks_own(spark, few_calls):
    def listed(batches):
        return [str(list(batch.to_pydict().items())).encode() for batch in batches]

    whole, chosen = OneTask(few_calls=few_calls), OneTask([F.col("id") + 1], few_calls=few_calls)
    for _ in range(2):
        assert _numbers(whole.run(spark.range(0, 5, 1, 3), listed)) == {"id": [0, 1, 2, 3, 4]}
        assert _numbers(chosen.run(spark.range(0, 5, 1, 3), listed)) == {"(id + 1)": [1, 2, 3, 4, 5]}
        assert whole.run(spark.range(0), listed) == []


@pytest.mark.parametrize("few_calls", [True, False])
def test_one_task_runs_also_where_there_is_no_partition(spark, few_calls):
    nothing = spark.sparkContext.emptyRDD().toDF("id long")
    assert nothing.rdd.getNumPartitions() == 0
    assert OneTask(few_calls=few_calls).run(nothing, lambda batches: [b"ran"]) == [b"ran"]


def test_rows_come_here_without_python_only_where_so_many_are_no_more_than_so_many_bytes(spark):
    def brought(frame, most, most_bytes=1 << 20):
        batches = OneTask().rows(frame, most, most_bytes)
        return None if batches is None else [number for batch in batches for number in batch.column(0).to_pylist()]

    numbers = spark.range(0, 50, 1, 3)
    assert sorted(brought(numbers, 1000)) == list(range(50))
    assert len(brought(numbers, 20)) == 20, "more was brought than asked for"
    assert brought(numbers, 1000, most_bytes=8_000) is None
    assert brought(numbers.selectExpr("CAST(id AS string)"), 1000) is None
    assert brought(spark.range(0), 1000) == []
    assert brought(spark.sparkContext.emptyRDD().toDF("id long"), 1000) == []
    assert OneTask(few_calls=False).rows(numbers, 1000, 1 << 20) is None


def test_what_it_costs_to_begin_a_segment_does_not_add_up_to_a_long_time_of_reading(spark, tmp_path, monkeypatch):
    ran, told, run, execute = [], [], SegmentPlan.run, SparkExecution.run

    def noted_run(*given, **more):
        done = run(*given, **more)
        ran.append(done.reading_ms)
        return done

    def noted_execute(execution, *given):
        receipts = execute(execution, *given)
        told.append(execution.reading_ms)
        return receipts

    monkeypatch.setattr(SegmentPlan, "run", noted_run)
    monkeypatch.setattr(SparkExecution, "run", noted_execute)
    stream = Ferry(spark, str(tmp_path), idle=None).stream(generator(spark, rows=100))
    for name in ("One", "Two", "Three"):
        stream = stream.key_by("key").aggregate(name=name, n=aggregates.count()).where("n > 0")
    stream.write(sinks.none()).start("segments", instances=2, trigger=ONCE).wait()
    assert len(ran) == 3
    assert told == [max(ran)]


def test_a_task_runs_in_the_workers_that_queries_have(spark):
    """Others would be started beside them, with all that they import."""

    def parent(batches):
        import os

        return [str(os.getppid()).encode() for _ in batches]

    by_itself, by_a_query = (OneTask(few_calls=few_calls).run(spark.range(1), parent) for few_calls in (True, False))
    assert by_itself == by_a_query


def _numbers(told):
    found = {}
    for data in told:
        for name, numbers in ast.literal_eval(data.decode()):
            found.setdefault(name, []).extend(numbers)
    return found
