"""What a job keeps and gives is the same whatever zone its session and its machine are in."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zoned
from processor.beside import Beside
from pyspark import cloudpickle

from ferryman import Ferry, Operator, sinks
from ferryman._state.zones import in_zone

# The workers cannot import what is beside the tests.
cloudpickle.register_pickle_by_value(zoned)

OUTPUTS = ("extremes", "by_time", "seen", "windows")


def outputs(out: Path) -> dict[str, list[str]]:
    """Give all that came out, as text in no order."""
    found = {}
    for name in OUTPUTS:
        tables = [pq.ParquetFile(file).read() for file in (out / name).rglob("*.parquet")]
        found[name] = sorted(str(row) for table in tables for row in in_zone(table).to_pylist())
    return found


@pytest.fixture(scope="module")
def in_utc(spark, tmp_path_factory):
    """What comes of it in a session that is in UTC."""
    return run(spark, tmp_path_factory.mktemp("utc"), "UTC")


def run(spark, place: Path, zone: str) -> tuple[list[str], dict[str, list[str]]]:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        zoned.start(spark, str(place / "checkpoint"), str(place / "out")).wait()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    return zoned.deltas(place / "checkpoint"), outputs(place / "out")


@pytest.mark.parametrize(
    "zone", ["America/St_Johns", *(pytest.param(zone, marks=pytest.mark.slow) for zone in ("Europe/Berlin", "+05:45"))]
)
def test_the_sessions_zone_changes_nothing(spark, tmp_path, in_utc, zone):
    deltas, rows = run(spark, tmp_path, zone)

    assert all(in_utc[1].values())
    assert deltas == in_utc[0]
    assert rows == in_utc[1]


class Hours(Operator):
    output = "zone string, hour long, local long"

    def process(self, key, row):
        yield row.time.tzname(), row.time.hour, row.time.astimezone(ZoneInfo("Europe/Berlin")).hour


def test_an_operator_sees_times_in_utc(spark, tmp_path):
    beside = Beside(spark, tmp_path, "k string, time timestamp")
    beside.give([("a", datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc))])
    seen = sinks.memory()
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        stream = Ferry(spark, tmp_path / "checkpoint").stream(beside.stream()).key_by("k").process(Hours)
        stream.write(seen).start("hours", instances=1, trigger={"availableNow": True}).wait()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert [tuple(row.values()) for row in seen.rows()] == [("UTC", 12, 14)]


@pytest.mark.slow
def test_the_machines_zone_changes_nothing(tmp_path, in_utc):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    done = subprocess.run(
        [sys.executable, zoned.__file__, str(checkpoint), str(out)],
        env={**os.environ, "TZ": "Asia/Kathmandu", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["Asia/Kathmandu", "+0545"]
    assert zoned.deltas(checkpoint) == in_utc[0]
    assert outputs(out) == in_utc[1]


def test_times_inside_of_others_are_in_the_zone_too():
    berlin = pa.timestamp("us", "Europe/Berlin")
    inner = pa.struct([("at", berlin), ("n", pa.int64())])
    rows = pa.table(
        {
            "list": pa.array([[1, None], None], pa.list_(berlin)),
            "struct": pa.array([{"at": 5, "n": 1}, None], inner),
            "map": pa.array([[(1, {"at": 7, "n": 2})], []], pa.map_(berlin, inner)),
            "plain": pa.array([1, 2], pa.timestamp("us")),
            "n": [1, 2],
        }
    )

    there = in_zone(rows)

    assert "Berlin" not in str(there.schema)
    assert there.schema.field("plain").type == pa.timestamp("us")
    assert in_zone(there, "Europe/Berlin").equals(rows)
    assert in_zone(there) is there
