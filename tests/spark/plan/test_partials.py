"""What is aggregated before the shuffle: by Spark where it can, else in chunks of always so many rows."""

from __future__ import annotations

import os
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from ferryman import Ferry, aggregates, sinks, sources
from ferryman._spark.compat.partitioned import AggregatedInPartitions
from ferryman._spark.plan import partials
from ferryman.errors import NullKey

BERLIN = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "Europe/Berlin"))])


@pytest.mark.parametrize("size", [1, 7, 10, 23, 60])
def test_chunks_are_as_long_as_asked_and_in_utc_whatever_batches_come(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partials, "CHUNK_ROWS", 10)
    rows = pa.table([pa.array(range(53)), pa.array(range(53), BERLIN.field("at").type)], schema=BERLIN)

    chunks = list(partials._chunks(iter(rows.to_batches(size))))

    assert [chunk.num_rows for chunk in chunks] == [10, 10, 10, 10, 10, 3]
    assert {chunk.schema.field("at").type for chunk in chunks} == {pa.timestamp("us", "UTC")}
    whole = pa.concat_tables(chunks)
    assert whole.column("n").to_pylist() == list(range(53))
    assert whole.column("at")[5].as_py() == datetime(1970, 1, 1, microsecond=5, tzinfo=timezone.utc)


EPOCHS, ROWS = 3, 24_000


def kept(spark, place, *, step, by="k", **more):
    """Run a job with so many rows that partials pay; give its state, and what each epoch's record says."""
    made = sources.generator(spark, rows=EPOCHS * ROWS, rows_per_epoch=ROWS, keys=50, key_prefix="k-", partitions=3)
    rows = made.selectExpr(
        "key AS k", "id % 7 AS seven", "CAST(id % 5 AS FLOAT) AS real", "value", "event_time AS at",
        "CAST(IF(id % 3 = 0, NULL, id % 100) AS INT) AS few",
    )  # fmt: skip
    stream = Ferry(spark, str(place), idle=None, express=False).stream(rows)
    stream = stream.withColumn("value", F.col("value") + 1) if step else stream
    summed = stream.key_by(by).aggregate(
        name="Sums",
        n=aggregates.count(),
        some=aggregates.count("few"),
        whole=aggregates.sum("few"),
        total=aggregates.sum("value"),
        mean=aggregates.avg("few"),
        least=aggregates.min("few"),
        most=aggregates.max("value"),
        latest=aggregates.max("at"),
        **more,
    )
    job = summed.write(sinks.none()).start("sums", instances=2, trigger={"availableNow": True})
    job.wait()
    # How long it took differs from run to run.
    records = [{**epoch.operators["Sums"], "busy_ms": None} for epoch in job.progress()]
    return {row[by]: row for row in job.state("Sums").to_arrow().to_pylist()}, records


@pytest.mark.parametrize("step", [False, True])
def test_spark_makes_the_partials_that_are_made_here(spark, tmp_path, monkeypatch, step):
    calls, by_spark = [], AggregatedInPartitions.of

    def noted(*given):
        calls.append(by_spark(*given))
        return calls[-1]

    monkeypatch.setattr(AggregatedInPartitions, "of", noted)
    found, records = kept(spark, tmp_path / "spark", step=step)
    assert len(calls) == EPOCHS - 1, "all epochs but the first, before which nothing is known"
    assert "Exchange" not in calls[0]._jdf.queryExecution().executedPlan().toString()
    monkeypatch.setattr(AggregatedInPartitions, "of", lambda *given: None)
    expected, same = kept(spark, tmp_path / "here", step=step)
    assert records == same
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert [found[key][name] for name in row if name not in ("total", "mean_sum")] == [
            row[name] for name in row if name not in ("total", "mean_sum")
        ]
        assert found[key]["total"] == pytest.approx(row["total"], rel=1e-12)
        assert found[key]["mean_sum"] == row["mean_sum"], "whole numbers"
    assert sum(row["n"] for row in found.values()) == EPOCHS * ROWS


@pytest.mark.parametrize(
    ("by", "more"),
    [("real", {}), ("k", {"long": aggregates.sum("seven")}), ("k", {"spread": aggregates.stddev("value")})],
    ids=["a key that may be 0.0 or -0.0", "a sum of longs", "a spread"],
)
def test_what_spark_would_not_make_alike_is_made_here(spark, tmp_path, monkeypatch, by, more):
    monkeypatch.setattr(AggregatedInPartitions, "of", lambda *given: pytest.fail("Spark is asked"))
    found, records = kept(spark, tmp_path, step=False, by=by, **more)
    assert sum(row["n"] for row in found.values()) == EPOCHS * ROWS
    assert [record["rows"] for record in records] == [ROWS] * EPOCHS


def test_spark_makes_partials_of_several_files_that_two_operators_read(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        rows = pa.table({"k": [n % 50 for n in range(ROWS)], "value": [float(n % 8) for n in range(ROWS)]})
        pq.write_table(rows, folder / f"{number}.parquet")
    files = spark.readStream.schema("k long, value double").option("maxFilesPerTrigger", 2).parquet(str(folder))
    ferry = Ferry(spark, str(tmp_path / "c"), idle=None, express=False)
    stream = ferry.stream(files)
    outputs = [
        stream.key_by("k").aggregate(name=name, n=aggregates.count(), total=aggregates.sum("value")).write(sinks.none())
        for name in ("One", "Two")
    ]
    job = ferry.start("files", *outputs, instances=2, trigger={"availableNow": True})
    job.wait()
    assert [epoch.operators["Two"]["rows"] for epoch in job.progress()] == [2 * ROWS, 2 * ROWS]
    for name in ("One", "Two"):
        state = job.state(name).to_arrow().to_pylist()
        assert {row["n"] for row in state} == {4 * ROWS // 50}
        assert sum(row["total"] for row in state) == 4 * sum(n % 8 for n in range(ROWS))


@pytest.mark.parametrize("by_spark", [True, False])
def test_a_source_that_several_read_is_computed_once_also_where_partials_are_made_of_it(
    spark, tmp_path, monkeypatch, by_spark
):
    asked, made = [], AggregatedInPartitions.of

    def noted_of(*given):
        asked.append(given)
        return made(*given) if by_spark else None

    monkeypatch.setattr(AggregatedInPartitions, "of", noted_of)
    calls = str(tmp_path / "calls")

    @F.udf("long")
    def noted(number):
        file = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, b".")
        os.close(file)
        return number

    rows = sources.generator(spark, rows=EPOCHS * ROWS, rows_per_epoch=ROWS, keys=50, key_prefix="k-", partitions=3)
    ferry = Ferry(spark, str(tmp_path / "c"), idle=None, express=False)
    stream = ferry.stream(rows.withColumn("x", noted("id")))
    counted = stream.key_by("key").aggregate(name="Sums", n=aggregates.count())
    outputs = [stream.write(sinks.none()), counted.write(sinks.none())]
    job = ferry.start("shared", *outputs, instances=2, trigger={"availableNow": True})
    job.wait()
    assert len(asked) == EPOCHS - 1
    assert sum(row["n"] for row in job.state("Sums").to_arrow().to_pylist()) == EPOCHS * ROWS
    assert os.path.getsize(calls) == EPOCHS * ROWS


@pytest.mark.parametrize("by_spark", [True, False])
def test_rows_without_a_key_are_counted_also_where_partials_of_them_are_made(spark, tmp_path, monkeypatch, by_spark):
    if not by_spark:
        monkeypatch.setattr(AggregatedInPartitions, "of", lambda *given: None)
    made = sources.generator(spark, rows=EPOCHS * ROWS, rows_per_epoch=ROWS, keys=50, key_prefix="k-", partitions=1)
    rows = made.selectExpr(f"IF(id >= {ROWS} AND id % 10 = 0, NULL, key) AS k", "id % 2 AS two")
    stream = Ferry(spark, str(tmp_path), idle=None, express=False).stream(rows)
    summed = stream.key_by("k", "two").aggregate(name="Sums", n=aggregates.count())
    job = summed.write(sinks.none()).start("nulls", instances=2, trigger={"availableNow": True})
    says = rf"{ROWS // 10} rows have no value in the key column 'k', for example {{'k': None, 'two': 0}}"
    with pytest.raises(NullKey, match=says):
        job.wait()
    assert job.epoch == 1
