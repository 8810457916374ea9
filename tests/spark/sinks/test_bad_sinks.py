"""Sinks that fail: the epoch is redone, or the sink is told of it again, and the rows are right."""

from __future__ import annotations

import threading

import pytest
from readings import Readings

from ferryman._spark.sinks.sinks import MemorySink
from ferryman.errors import InvalidConfiguration, JobFailed


class Away(MemorySink):
    """A memory sink that fails once, before it has written the second epoch."""

    failing = True

    def write(self, rows, epoch):
        if epoch == 2 and self.failing:
            self.failing = False
            raise ConnectionError("the database is away")
        return super().write(rows, epoch)


def test_a_sink_that_raises_fails_its_epoch_which_is_then_redone(spark, tmp_path):
    job = Readings(spark, tmp_path, sink=Away())

    says = ("job 'readings'", "ConnectionError: the database is away", "nothing is lost", "start the job again")
    error = job.fails(JobFailed, *says)

    assert isinstance(error.__cause__, ConnectionError)
    job.run()
    job.assert_right()


class Slow(MemorySink):
    """A memory sink whose second epoch has a Spark job that ends when it is interrupted, once."""

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()

    def write(self, rows, epoch):
        if epoch == 2 and not self.begun.is_set():
            self.begun.set()
            sleep = "java_method('java.lang.Thread', 'sleep', 60000L + id)"
            rows.sparkSession.range(2).selectExpr(sleep).collect()
        return super().write(rows, epoch)


def test_a_query_that_spark_itself_stops_in_the_middle_of_an_epoch_ends_quietly(spark, tmp_path, capfd):
    # Spark looks through the text of an error from Python for its own interruption, by a pattern that needs a stack as
    # deep as the text is long: a whole trace of Java's was too much for it.
    readings = Readings(spark, tmp_path, sink=Slow())
    job = readings.start()
    query = next(query for query in spark.streams.active if query.name == job.name)
    assert readings.sink.begun.wait(60)
    job.wait_for(lambda: spark.sparkContext.statusTracker().getActiveStageIds())

    query.stop()

    said = "".join(capfd.readouterr())
    assert "StackOverflowError" not in said
    assert "terminated with error" not in said, "Spark knows that it was stopped, and is not alarmed"
    assert query.exception() is None
    job.stop()
    readings.run()
    readings.assert_right()


class Deaf(MemorySink):
    """A memory sink that fails once when it is told of the second epoch."""

    failing = True

    def commit(self, epoch, written):
        if epoch == 2 and self.failing:
            self.failing = False
            raise OSError("not listening")
        super().commit(epoch, written)


def test_a_sink_that_fails_after_the_manifest_is_told_again(spark, tmp_path):
    job = Readings(spark, tmp_path, sink=Deaf())

    with pytest.raises(JobFailed, match="OSError: not listening"):
        job.run()
    assert job.log.epochs() == [1, 2], "the manifest was written, so the epoch counts"

    job.run()
    job.assert_right()


def test_a_sink_is_needed_to_write(spark, tmp_path):
    with pytest.raises(InvalidConfiguration, match=r"write needs a sink, and got 'out'.*sinks\.parquet"):
        Readings(spark, tmp_path).trail().write("out")
