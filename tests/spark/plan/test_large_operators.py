"""Operators with so much code and data that Spark sends them by a broadcast variable."""

from __future__ import annotations

import os

import pytest

from ferryman import Ferry, Operator, Value, sinks, sources


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize("way", ["express", "express with wide rows", "shuffle"])
def test_what_epochs_send_of_a_large_operator_does_not_stay_on_the_disk(spark, tmp_path, way):
    large, place, files = os.urandom(2 << 20), spark.sparkContext._temp_dir, []

    class Large(Operator):
        n = Value(int, 0)
        output = "key string, n long"

        def process(self, key, row):
            self.n += len(large)
            yield key, self.n

    rows = sources.generator(spark, rows=500, rows_per_epoch=100, keys=10, key_prefix="s-")
    rows = rows.selectExpr("*", f"repeat('x', {20_000 if 'wide' in way else 1}) AS text")
    ferry = Ferry(spark, str(tmp_path), idle=None, express=way != "shuffle")
    take = sinks.foreach(lambda frame, number: files.append(set(os.listdir(place))))
    stream = ferry.stream(rows).key_by("key").process(Large)
    job = stream.write(take).start("large", instances=2, trigger={"availableNow": True})
    job.wait()
    # On a busy machine an epoch may have gone by a shuffle instead.
    assert way.split()[0] in {epoch.route for epoch in job.progress()}
    assert sum(row["n"] for row in job.state("Large").to_arrow().to_pylist()) == 500 * len(large)
    assert len(files[4] - files[0]) <= len(files[1] - files[0]) <= 1
