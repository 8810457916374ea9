"""Rows of megabytes come to Python in batches that the JVM has room for, and narrow ones as fast as before."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow as pa
import pytest
import wide

from ferryman._spark.plan.batch_limits import BYTES, MOST_ROWS, BatchLimits, most_bytes

NARROW, UNLIMITED = 100, str((1 << 31) - 1)
TEXT = pa.schema([("key", pa.string()), ("n", pa.int64())])


@pytest.mark.slow
def test_the_users_limit_in_bytes_holds_where_rows_are_wide(tmp_path):
    done = subprocess.run(
        [sys.executable, wide.__file__, str(tmp_path), "64m"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) == 2 * wide.ROWS * wide.WIDE


def test_the_limit_is_left_out_once_rows_are_known_to_be_narrow():
    limits = BatchLimits(64 << 20, [TEXT])
    assert limits.conf()[BYTES] == str(64 << 20), "nothing is known yet"
    limits.note([0])
    assert limits.conf()[BYTES] == str(64 << 20), "an epoch without rows tells nothing"
    limits.note([NARROW, 0])
    assert limits.conf()[BYTES] == UNLIMITED
    limits.note([NARROW, (64 << 20) // MOST_ROWS])
    assert limits.conf()[BYTES] == str(64 << 20), "one operator's rows are wide"


def test_the_sessions_limit_counts_and_without_one_that_of_spark(spark):
    own = most_bytes(spark)
    assert 1 << 20 <= own <= 256 << 20
    spark.conf.set(BYTES, "5m")
    try:
        assert most_bytes(spark) == 5 << 20
    finally:
        spark.conf.unset(BYTES)
    assert most_bytes(spark) == own


def test_columns_of_a_fixed_width_need_no_limit_in_bytes():
    fixed = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("d", pa.decimal128(20, 2))])
    assert BatchLimits(64 << 20, [fixed]).conf()[BYTES] == UNLIMITED
    assert BatchLimits(64 << 20, [fixed, TEXT]).conf()[BYTES] != UNLIMITED
