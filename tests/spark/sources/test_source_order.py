"""The order of rows is the source's, and the same when an epoch is done again on another number of cores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from appearing import appear
from readings import SCHEMA, Trail, expected

from ferryman import Ferry, aggregates, sinks
from ferryman._engine.epoch import EpochRunner
from ferryman.errors import JobFailed

ONCE = {"availableNow": True}
PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
SPLIT = "spark.sql.files.maxPartitionBytes"


def put(folder: Path, name: str, ids: range, age: int) -> list[dict]:
    """Put a file of rows; the older it is, the earlier it comes."""
    rows = [{"key": f"s-{number % 3}", "id": number, "value": number / 7} for number in ids]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    appear(folder / name, 1_700_000_000 - age, lambda draft: draft.write_text(text))
    return rows


def several_files(folder: Path) -> list[dict]:
    """Put files of which the oldest is not the largest, as Spark reads the largest first."""
    rows = put(folder, "b ü.json", range(30), age=40)
    rows += put(folder, "c.json", range(30, 400), age=30)
    rows += put(folder, "a.json", range(400, 410), age=20)
    # Two of one age come by their names.
    rows += put(folder, "d.json", range(410, 450), age=10)
    rows += put(folder, "e.json", range(450, 700), age=10)
    return rows


@pytest.fixture
def cores(spark):
    """Set how many cores Spark reads with, and cut files into small pieces."""
    before = {name: spark.conf.get(name, None) for name in (PARALLELISM, SPLIT)}
    spark.conf.set(SPLIT, "2048")
    yield lambda number: spark.conf.set(PARALLELISM, str(number))
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def frame(spark, folder: Path):
    return spark.readStream.schema(SCHEMA).json(str(folder))


PIPELINES = {
    "alone": lambda stream: [stream.key_by("key").process(Trail)],
    "transformed": lambda stream: [stream.select("key", "id").where("id >= 0").key_by("key").process(Trail)],
    "kept": lambda stream: [stream.key_by("key").process(Trail), stream.where("id >= 0")],
    "shared": lambda stream: [stream.key_by("key").process(Trail), stream.key_by("id").aggregate(n=aggregates.count())],
}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("number", [1, 5])
def test_files_of_one_batch_come_by_their_age(spark, tmp_path, cores, pipeline, number):
    cores(number)
    rows = several_files(tmp_path / "files")
    ferry = Ferry(spark, str(tmp_path / "checkpoint"))
    memory = sinks.memory()
    first, *others = PIPELINES[pipeline](ferry.stream(frame(spark, tmp_path / "files")))

    outputs = [first.write(memory), *(stream.write(sinks.none()) for stream in others)]
    ferry.start("order", *outputs, instances=2, trigger=ONCE).wait()

    assert sorted(tuple(row.values()) for row in memory.rows()) == expected(rows)[1]


def test_the_first_and_last_value_go_by_age_too(spark, tmp_path):
    several_files(tmp_path / "files")
    ferry = Ferry(spark, str(tmp_path / "checkpoint"))
    memory = sinks.memory()
    stream = ferry.stream(frame(spark, tmp_path / "files")).key_by("key")
    stream.aggregate(first=aggregates.first("id"), last=aggregates.last("id")).write(memory).start(
        "ends", instances=2, trigger=ONCE
    ).wait()

    assert sorted(tuple(row.values()) for row in memory.rows()) == [("s-0", 0, 699), ("s-1", 1, 697), ("s-2", 2, 698)]


@pytest.mark.parametrize("before_and_after", [(1, 8), (8, 1)])
def test_an_epoch_is_redone_on_another_number_of_cores_with_the_same_rows(spark, tmp_path, cores, before_and_after):
    before, after = before_and_after
    several_files(tmp_path / "files")
    seen: list[list[tuple]] = []

    def look(rows, number):
        assert number == 0
        seen.append([tuple(row) for row in rows.collect()])
        if len(seen) == 1:
            raise ConnectionError("away")

    def start():
        ferry = Ferry(spark, str(tmp_path / "checkpoint"))
        stream = ferry.stream(frame(spark, tmp_path / "files")).key_by("key")
        trail, sums = stream.process(Trail), stream.aggregate(total=aggregates.sum("value"), last=aggregates.last("id"))
        outputs = [trail.write(sinks.foreach(look)), sums.write(sinks.none())]
        job = ferry.start("redo", *outputs, instances=2, trigger=ONCE)
        job.wait()
        return job

    cores(before)
    with pytest.raises(JobFailed, match="away"):
        start()
    cores(after)
    job = start()

    assert len(seen) == 2
    assert seen[0] == seen[1], "the same rows, in the same order"
    assert job.epoch == 1
    assert spark.conf.get(PARALLELISM) == str(after), "the session itself is left as it is"


def test_a_redone_epoch_is_cut_as_it_was_begun_and_the_next_as_this_run_reads(spark, tmp_path, cores, monkeypatch):
    """Partial sums depend on where the data was cut, so that is kept too."""
    cut: list[int] = []
    run = EpochRunner.run

    def watched(self, source, batch, **options):
        cut.append(source._jdf.queryExecution().toRdd().getNumPartitions())
        return run(self, source, batch, **options)

    monkeypatch.setattr(EpochRunner, "run", watched)

    def start(look=lambda rows, number: None):
        ferry = Ferry(spark, str(tmp_path / "checkpoint"), idle=None)
        stream = ferry.stream(frame(spark, tmp_path / "files").where("id >= 0"))
        stream.key_by("key").process(Trail).write(sinks.foreach(look)).start("cut", instances=2, trigger=ONCE).wait()

    def away(rows, number):
        raise ConnectionError("away")

    rows = put(tmp_path / "files", "first.json", range(400), age=20)
    cores(2)
    with pytest.raises(JobFailed, match="away"):
        start(away)
    # A second run dies in the same epoch: it was still begun by the first.
    cores(8)
    with pytest.raises(JobFailed, match="away"):
        start(away)
    spark.conf.set(SPLIT, "1000000")
    start()
    more = [put(tmp_path / "files", f"later-{age}.json", range(400), age=age) for age in (10, 0)]
    start()

    assert len(rows) == len(more[0]) == len(more[1])
    assert cut[0] == cut[1] == cut[2] > 4, "cut into pieces of 2048 bytes, each time"
    assert cut[3] < cut[0], "cut as the session says now"


class Merge(Trail):
    """Depend on the order in which rows of several keys come, one operator later."""

    output = "third long, n long, digest long"


@pytest.mark.parametrize("asked", [3, None, 1])
def test_an_epoch_is_redone_with_the_instances_it_was_begun_with(spark, tmp_path, asked):
    seen: list[list[tuple]] = []

    def look(rows, number):
        seen.append(sorted(tuple(row) for row in rows.collect()))
        if len(seen) == 2:
            raise ConnectionError("away")

    def start(instances):
        ferry = Ferry(spark, str(tmp_path / "checkpoint"), idle=None)
        files = frame(spark, tmp_path / "files")
        trail = ferry.stream(files).key_by("key").process(Trail)
        merged = trail.selectExpr("n % 2 AS third", "digest AS id").key_by("third").process(Merge)
        job = merged.write(sinks.foreach(look)).start("redo", instances=instances, trigger=ONCE)
        job.wait()
        return job

    put(tmp_path / "files", "first.json", range(20), age=20)
    start(2)
    put(tmp_path / "files", "second.json", range(20, 60), age=10)
    with pytest.raises(JobFailed, match="away"):
        start(5)
    job = start(asked)

    assert len(seen) == 3
    assert seen[1] == seen[2]
    put(tmp_path / "files", "third.json", range(60, 80), age=0)
    job = start(asked)
    assert len(job.progress()[-1].operators["Trail"]["hosts"]) == (asked or 5)
