"""Sources that are not Ferryman's own: an epoch that is redone has the same rows in the same order; none is lost."""

from __future__ import annotations

import pytest

from ferryman import Ferry, Operator, sinks
from ferryman.errors import JobFailed

AT_LEAST = 3


class Passed(Operator):
    output = "key string, n long"

    def process(self, key, row):
        yield key, row.n


class Calls:
    """Keep the rows of each call, in order; fail in the second call of the first run when it has them."""

    def __init__(self):
        self.rows = {}
        self.given_up = None

    def __call__(self, frame, number):
        rows = [tuple(row) for row in frame.collect()]
        if number == 1 and self.given_up is None:
            self.given_up = rows
            raise ConnectionError("away")
        assert number not in self.rows
        self.rows[number] = rows


def redone(spark, tmp_path, frame, more=lambda: None):
    """Run a job that fails in its second epoch, and again until it has done more; give the rows by key."""
    calls = Calls()

    def start():
        stream = Ferry(spark, tmp_path / "checkpoint").stream(frame()).key_by("key").process(Passed)
        return stream.write(sinks.foreach(calls)).start("other", instances=2)

    job = start()
    assert job.wait_for(lambda: bool(calls.rows), timeout=60)
    more()
    with pytest.raises(JobFailed, match="away"):
        job.wait()
    job = start()
    try:
        assert job.wait_for(lambda: 1 in calls.rows, timeout=60)
        more()
        assert job.wait_for(lambda: len(calls.rows) >= AT_LEAST, timeout=60)
    finally:
        job.stop()

    assert calls.rows[1] == calls.given_up, "it was redone with other rows, or in another order"
    found = {}
    for number in sorted(calls.rows):
        for key, n in calls.rows[number]:
            found.setdefault(key, []).append(n)
    return found


def test_a_source_written_in_python_is_read_once_and_in_its_order(spark, tmp_path):
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    upto = tmp_path / "upto"
    upto.write_text("40")

    class Range(InputPartition):
        def __init__(self, start, end):
            self.start, self.end = start, end

    class Reader(DataSourceStreamReader):
        def __init__(self, path):
            self.path = path

        def initialOffset(self):
            return {"at": 0}

        def latestOffset(self):
            with open(self.path) as file:
                return {"at": int(file.read())}

        def partitions(self, start, end):
            middle = (start["at"] + end["at"]) // 2
            return [Range(start["at"], middle), Range(middle, end["at"])]

        def read(self, partition):
            for n in range(partition.start, partition.end):
                yield f"k{n % 3}", n

    class Numbers(DataSource):
        @classmethod
        def name(cls):
            return "numbers"

        def schema(self):
            return "key string, n long"

        def streamReader(self, schema):
            return Reader(self.options["path"])

    spark.dataSource.register(Numbers)

    def more():
        temporary = tmp_path / "more"
        temporary.write_text(str(int(upto.read_text()) + 40))
        temporary.rename(upto)

    found = redone(spark, tmp_path, lambda: spark.readStream.format("numbers").load(str(upto)), more)

    assert found == {f"k{key}": list(range(key, int(upto.read_text()), 3)) for key in range(3)}


def test_the_source_rate_is_read_once_and_by_its_partitions(spark, tmp_path):
    def frame():
        rate = spark.readStream.format("rate").option("rowsPerSecond", 20).option("numPartitions", 2).load()
        return rate.selectExpr("concat('k', value % 3) AS key", "value AS n")

    found = redone(spark, tmp_path, frame)

    every = sorted(n for rows in found.values() for n in rows)
    assert every == list(range(len(every)))
    assert all(f"k{n % 3}" == key for key, rows in found.items() for n in rows)
