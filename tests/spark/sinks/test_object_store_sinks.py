"""Rows in an object store: tasks write the files by Ferryman's own ways, with no library of Hadoop's for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import s3_server
from readings import Readings, epoch_rows, expected

from ferryman import sinks
from ferryman._log.files.directory import directory
from ferryman.testing import SINK_CHECKS, check_sink

# Each check makes some dozens of calls of a Spark action, and kills by an exception.
CHECKS = [pytest.param(check, marks=[pytest.mark.slow] * (check != "committed and not told")) for check in SINK_CHECKS]


@pytest.fixture(scope="module")
def store() -> Iterator[s3_server.Server]:
    with s3_server.server() as running:
        yield running


def parquet_rows(spark, place: str) -> list[tuple[Any, ...]]:
    if not any(name.endswith(".json") and "-" in name for name in directory(place).list("_ferryman")):
        return []
    return [tuple(row) for row in sinks.read_parquet(spark, place).collect()]


def delta_rows(store: s3_server.Server, folder: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    options = {
        "aws_endpoint": f"http://{store.address}",
        "allow_http": "true",
        **{name.replace("region_name", "aws_region"): value for name, value in s3_server.KEYS.items()},
    }
    uri = f"s3://bucket/{folder}"
    if not DeltaTable.is_deltatable(uri, storage_options=options):
        return []
    return DeltaTable(uri, storage_options=options).to_pyarrow_table().to_pylist()


@pytest.mark.parametrize("check", CHECKS)
def test_parquet_files_in_a_bucket_pass(check: str, spark, store):
    place = store.uri(f"parquet-{check.replace(' ', '-')}")
    check_sink(check, lambda: sinks.parquet(place), lambda: parquet_rows(spark, place), spark=spark, kills=6)


# A child that is forked cannot use what deltalake has begun in its parent.
@pytest.mark.parametrize("check", [check for check in SINK_CHECKS if "killed" not in check])
def test_a_delta_table_in_a_bucket_passes(check: str, store):
    pytest.importorskip("deltalake")
    folder = f"delta-{check.replace(' ', '-')}"
    check_sink(check, lambda: sinks.delta(store.uri(folder)), lambda: delta_rows(store, folder))


@pytest.mark.slow
def test_a_job_writes_to_a_bucket(spark, store, tmp_path):
    pytest.importorskip("deltalake")
    job = Readings(spark, tmp_path)
    trail = job.trail().transform(
        lambda rows: rows.selectExpr("*", "timestamp '2026-01-02 03:04:05Z' AS at", "named_struct('x', n) AS both")
    )
    place = store.uri("rows")
    outputs = [trail.write(sink) for sink in (sinks.parquet(place), sinks.delta(store.uri("table")))]
    trail.ferry.start("readings", *outputs, instances=2, trigger={"availableNow": True}).wait()

    _, output = expected(row for epoch in range(1, job.epochs + 1) for row in epoch_rows(epoch))
    read = sinks.read_parquet(spark, place)
    assert read.dtypes[3:] == [("at", "timestamp"), ("both", "struct<x:bigint>")]
    assert sorted((row.key, row.n, row.digest) for row in read.collect()) == output
    assert {row.both.x == row.n for row in read.collect()} == {True}
    assert sorted(tuple(row.values())[:3] for row in delta_rows(store, "table")) == output
