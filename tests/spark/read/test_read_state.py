"""`spark.read.format("ferryman")`, which no line of these tests registers."""

from __future__ import annotations

import datetime
import json
import shutil
from collections import Counter as Counted
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from ferryman import Counter, Ferry, Operator, Value, count, sinks, sources
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.scan.keys_asked import KeysAsked
from ferryman.testing import Harness

KEYS = 40


class Count(Operator):
    n = Value(int, 0)
    last = Counter(int)
    output = "key string, n long"

    def process(self, key, row):
        self.n += 1
        self.last[row.id % 2] = row.id
        if self.n > 8:
            self.clear()
        return []


def start(spark, checkpoint, rows, trigger=None, **options):
    frame = sources.generator(spark, rows=rows, rows_per_epoch=100, keys=KEYS, key_prefix="s-")
    ferry = Ferry(spark, str(checkpoint), groups=16, **options)
    return (
        ferry.stream(frame)
        .key_by("key")
        .process(Count)
        .write(sinks.none())
        .start("counts", instances=4, trigger=trigger)
    )


@pytest.fixture(scope="module")
def checkpoint(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("read") / "c"
    job = start(spark, path, 600, snapshot_every=4)
    assert job.wait_for(lambda: job.epoch >= 6, 120)
    job.stop()
    return path


def load(spark, path, **options):
    return spark.read.format("ferryman").options(**options).load(str(path))


def rows_of(frame):
    return sorted(map(tuple, frame.collect()))


def test_it_registers_itself_and_shows_what_the_job_shows(spark, tmp_path):
    job = start(spark, tmp_path, 10_000_000, {"processingTime": "1 second"})
    try:
        assert job.wait_for(lambda: job.epoch >= 3, 120)
        frame = load(spark, tmp_path, table="Count")
        seen = job.epoch
        found = rows_of(frame)
        assert job.wait_for(lambda: job.epoch > seen + 1, 120), "a reader does not disturb the job"
        assert rows_of(frame) == found, "a frame shows the epoch that it was loaded at"
        assert frame.union(frame).distinct().count() == len(found)
    finally:
        job.stop()
    job.wait()
    assert rows_of(load(spark, tmp_path, table="Count")) == sorted(
        map(tuple, (row.values() for row in job.state("Count").to_arrow().to_pylist()))
    )


def test_an_earlier_epoch_and_the_changes_since_give_a_later_one(spark, checkpoint):
    state = {row.key: row.n for row in load(spark, checkpoint, epoch=3).collect()}
    changes = load(spark, checkpoint, changesFrom=4, changesTo=6)
    for row in changes.orderBy("_epoch").collect():
        if row._change == "delete":
            state.pop(row.key, None)
        else:
            state[row.key] = row.n

    assert changes.schema.names == ["_epoch", "_change", "key", "n"]
    assert {row._change for row in changes.select("_change").distinct().collect()} == {"upsert", "delete"}
    assert state == {row.key: row.n for row in load(spark, checkpoint, epoch=6).collect()}


def test_a_frame_that_is_filtered_in_one_query_is_whole_in_the_next(spark, checkpoint):
    # Spark up to 4.3 keeps the parts of a reader that takes filters for the next query on the same frame.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, checkpoint)
        whole = rows_of(frame)
        first, last = whole[0][0], whole[-1][0]
        assert rows_of(frame.where(F.col("key") == first)) == whole[:1]
        assert rows_of(frame) == whole
        both = frame.where(F.col("key") == first).union(frame.where(F.col("key").isin(last)))
        assert rows_of(both) == [whole[0], whole[-1]]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_keys_are_given_and_only_their_groups_read(spark, checkpoint, tmp_path):
    copy = tmp_path / "copy"
    log = Checkpoint(directory(str(checkpoint)))
    # The third epoch has no snapshot before it, so it is read from deltas, of which each instance has its own.
    keys = json.dumps(["s-3"])
    (group,) = KeysAsked.parse(keys, log.job_card(), "Count").groups(16)
    owner = log.manifest(3).routing.owner[group]
    shutil.copytree(checkpoint, copy)
    damaged = [
        ref
        for epoch in (1, 2, 3)
        for table in ("Count", "Count.last")
        for ref in log.manifest(epoch).tables[table]
        if ref.instance != owner
    ]
    assert len(damaged) == 18
    for ref in damaged:
        (copy / ref.file).write_bytes(b"rubbish")

    whole = rows_of(load(spark, checkpoint, epoch=3))
    assert rows_of(load(spark, copy, epoch=3, keys=keys)) == [row for row in whole if row[0] == "s-3"] != []
    entries = load(spark, copy, epoch=3, table="Count.last", keys=keys)
    assert entries.count() == load(spark, checkpoint, epoch=3, table="Count.last").where("key = 's-3'").count() > 0
    with pytest.raises(Exception, match=r"CORRUPT_CHECKPOINT.*altered|CORRUPT_CHECKPOINT.*bytes"):
        load(spark, copy, epoch=3).collect()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epoch": 99}, "the epochs kept are 1 to 6"),
        ({"epoch": "yesterday"}, "whole number"),
        ({"changesFrom": 3, "epoch": 4}, "the one or the other"),
        ({"tabel": "Count"}, "did you mean 'table'"),
        ({"table": "Cuont"}, "it has: Count, Count.last"),
        ({"keys": "[7]"}, "keyed by key string"),
        ({"path": "/nowhere"}, "is not a checkpoint"),
    ],
)
@pytest.mark.slow
def test_a_wrong_option_is_refused_when_it_is_loaded(spark, checkpoint, options, said):
    with pytest.raises(Exception, match=said):
        load(spark, options.pop("path", checkpoint), **options)


@pytest.mark.slow
def test_another_schema_is_refused(spark, checkpoint):
    with pytest.raises(Exception, match=r"Leave .schema\(\) out"):
        spark.read.format("ferryman").schema("key long").load(str(checkpoint)).collect()


class Typed(Operator):
    n = Value(int, 0)
    seen = Counter(str)
    output = "n long"

    def process(self, key, row):
        self.n += 1
        self.seen["a"] += 1
        return []


COLUMNS = {
    "b": "id % 2 = 0",
    "i": "cast(id - 3 as int)",
    "l": "(id - 3) * 10000000000",
    "f": "cast(id * 0.5 as float)",
    "d": "id * -0.25",
    "m": "cast(id * 1.25 as decimal(12, 2))",
    "w": "cast(id * 1.25 as decimal(30, 2))",
    "day": "date_add(date'2024-02-27', cast(id as int))",
    "at": "timestamp_millis(1709000000000 + id * 1234)",
    "s": "concat('ß-', id)",
    "x": "cast(concat('x', id) as binary)",
}


@pytest.mark.slow
def test_keys_of_every_type_are_found_where_spark_has_put_them(spark, tmp_path):
    frame = sources.generator(spark, rows=12, rows_per_epoch=12, keys=12).selectExpr(
        *(f"{column} AS {name}" for name, column in COLUMNS.items())
    )
    stream = Ferry(spark, str(tmp_path), groups=64).stream(frame).key_by(*COLUMNS).process(Typed)
    stream.write(sinks.none()).start("typed", instances=2, trigger={"availableNow": True}).wait()
    whole = load(spark, tmp_path).collect()
    assert len(whole) == 12

    def text(value):
        if isinstance(value, (bytes, bytearray)):
            return bytes(value).decode()
        if isinstance(value, datetime.datetime):
            return value.astimezone(datetime.timezone.utc).isoformat()
        return value if isinstance(value, (bool, int, float)) else str(value)

    for table in ("Typed", "Typed.seen"):
        for row in whole[::3]:
            keys = json.dumps([[text(row[name]) for name in COLUMNS]])
            found = load(spark, tmp_path, table=table, keys=keys).collect()
            assert [[text(value) for value in each[: len(COLUMNS)]] for each in found] == json.loads(keys)


@pytest.mark.slow
def test_windows_are_read_by_their_key(spark, tmp_path):
    frame = sources.generator(spark, rows=600, rows_per_epoch=200, keys=10, key_prefix="s-").selectExpr(
        "key", "id", "timestamp_millis(1709000000000 + id * 1000) AS time"
    )
    stream = Ferry(spark, str(tmp_path)).stream(frame).with_watermark("time", "1 hour")
    counted = stream.key_by("key").window("time", "1 minute").aggregate(n=count())
    counted.write(sinks.none()).start("windows", instances=2, trigger={"availableNow": True}).wait()
    whole = load(spark, tmp_path)
    expected = Counted(row.key for row in whole.collect())
    assert len(expected) == 10
    assert expected["s-4"] > 1
    assert load(spark, tmp_path, keys='["s-4"]').count() == expected["s-4"]


@pytest.mark.slow
def test_what_is_there_before_the_first_epoch_is_nothing(spark, tmp_path):
    with Harness(lambda s: s.key_by("key").process(Count), "key string, id long", checkpoint=str(tmp_path)) as harness:
        harness.epoch([("a", 1)])
    for file in Path(tmp_path, "manifests").glob("*.json"):
        file.unlink()
    assert load(spark, tmp_path).collect() == []
