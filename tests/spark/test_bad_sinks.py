"""Sinks that fail: the epoch is redone, or the sink is told of it again, and the rows are right."""

from __future__ import annotations

import pytest
from readings import Readings

from ferryman._spark.sinks import MemorySink
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
