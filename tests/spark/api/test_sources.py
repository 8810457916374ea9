"""Several sources in one job: each keeps its place and its watermark, also when others come and go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from ferryman import Ferry, sinks
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman.aggregates import count, max
from ferryman.errors import InvalidConfiguration, JobFailed, NotOnStream, SourcesChanged
from ferryman.sources import generated, generator

ONCE = {"availableNow": True}


class Run:
    """A job that counts the rows of several generators by key, started again and again with others."""

    def __init__(self, spark: Any, place: Path) -> None:
        self.spark, self.place = spark, place
        self.counts: dict[int, int] = {}
        self.fails = False

    def stream(self, ferry: Ferry, seed: str, rows: int, **options: Any) -> Any:
        """Give a source with as many rows as it has by now."""
        frame = generator(self.spark, keys=5, rows=rows, rows_per_epoch=25, seed=ord(seed), partitions=2)
        return ferry.stream(frame, **{"name": seed, **options})

    def __call__(self, *, express: bool = True, unnamed: bool = False, **rows: int) -> Counter[int]:
        ferry = Ferry(self.spark, self.place, express=express)
        options = {"name": None} if unnamed else {}
        first, *others = [self.stream(ferry, name, n, **options) for name, n in rows.items()]
        counted = first.union(*others).key_by("key").aggregate("n", n=count())
        output = counted.write(sinks.foreach(self._take, "counts"))
        ferry.start("job", output, instances=2, trigger=ONCE).wait()
        return Counter(self.counts)

    def _take(self, frame: Any, epoch: int) -> None:
        if self.fails:
            raise ValueError("the sink is broken")
        self.counts.update({row.key: row.n for row in frame.collect()})

    def wanted(self, **rows: int) -> Counter[int]:
        """Count what the sources have given, as a batch."""
        found: Counter[int] = Counter()
        for name, n in rows.items():
            frame = generated(self.spark, keys=5, rows=n, seed=ord(name), partitions=2)
            found.update({row.key: row["count"] for row in frame.groupBy("key").count().collect()})
        return found


@pytest.mark.slow
def test_sources_come_and_go_and_the_others_lose_nothing(spark: Any, tmp_path: Path) -> None:
    run = Run(spark, tmp_path / "checkpoint")
    assert run(a=40, b=30) == run.wanted(a=40, b=30)
    # By a shuffle as well, and in another order.
    assert run(c=60, b=50, a=70, express=False) == run.wanted(a=70, b=50, c=60)
    # Left out, as the only one that stays, and back where it was.
    assert run(b=90) == run.wanted(a=70, b=90, c=60)
    assert run(a=100, c=60, b=90) == run.wanted(a=100, b=90, c=60)


@pytest.mark.slow
def test_a_source_with_rows_in_a_half_done_epoch_cannot_be_left_out(spark: Any, tmp_path: Path) -> None:
    run = Run(spark, tmp_path / "checkpoint")
    run(a=40, b=30)
    run.fails = True
    with pytest.raises(JobFailed):
        run(a=40, b=60)
    run.fails = False
    with pytest.raises(SourcesChanged, match=r"source 'b' is left out.* Start the job once more with that source"):
        run(a=40)
    # A new one is no hindrance: the epoch is done again without it.
    assert run(a=40, b=60, c=20) == run.wanted(a=40, b=60, c=20)
    assert run(a=50, c=20) == run.wanted(a=50, b=60, c=20)


@pytest.mark.slow
def test_a_job_of_one_source_without_a_name_gets_a_second_one(spark: Any, tmp_path: Path) -> None:
    run = Run(spark, tmp_path / "checkpoint")
    run(a=40, unnamed=True)
    with pytest.raises(SourcesChanged, match=r'Name those that stay .*name="source_1"'):
        run(a=40, b=20, unnamed=True)
    ferry = Ferry(spark, tmp_path / "checkpoint")
    both = run.stream(ferry, "a", 60, name="source_1").union(run.stream(ferry, "b", 20))
    output = both.key_by("key").aggregate("n", n=count()).write(sinks.foreach(run._take, "counts"))
    ferry.start("job", output, trigger=ONCE).wait()
    assert Counter(run.counts) == run.wanted(a=60, b=20)


def test_the_least_watermark_of_all_sources_counts_but_for_idle_ones(spark: Any, tmp_path: Path) -> None:
    times = iter(range(1_000_000, 10**9, 60_000))

    def watermark(place: str, idle: str | None) -> int | None:
        run = Run(spark, tmp_path / place)
        ferry = Ferry(spark, tmp_path / place, clock=lambda: next(times))
        busy, silent = run.stream(ferry, "a", 80), run.stream(ferry, "b", 25, idle_after=idle)
        # It has rows, and none of them comes through.
        both = busy.union(silent.where("id < 0")).with_watermark("event_time", "1 second")
        output = both.key_by("key").aggregate("n", n=max("id")).write(sinks.foreach(lambda frame, _: None, "sink"))
        ferry.start("job", output, trigger=ONCE).wait()
        latest = Checkpoint(LocalDirectory(tmp_path / place)).latest()
        assert latest is not None
        assert set(latest.watermarks.inputs) == {"event_time@a"}
        return latest.watermarks.next_ms

    assert watermark("waits", None) is None
    assert watermark("goes-on", "2 minutes") is not None


def test_streams_that_cannot_be_put_together_are_refused(spark: Any, tmp_path: Path) -> None:
    ferry = Ferry(spark, tmp_path / "checkpoint")
    frame = generator(spark, rows=10)
    one = ferry.stream(frame)
    with pytest.raises(
        InvalidConfiguration, match="column 'key' is of type bigint in one stream and string in the other"
    ):
        one.union(one.withColumn("key", F.col("key").cast("string")))
    with pytest.raises(InvalidConfiguration, match=r"Add value to the other"):
        one.union(one.drop("value"))
    with pytest.raises(InvalidConfiguration, match="one stream has a watermark and another has none"):
        one.union(one.with_watermark("event_time", "1 second"))
    with pytest.raises(InvalidConfiguration, match="streams of one Ferry"):
        one.union(Ferry(spark, tmp_path / "other").stream(frame))
    with pytest.raises(NotOnStream, match=r"Write stream.union"):
        one.unionByName(one)
    for again in (frame, frame.where("id > 3")):
        output = one.union(ferry.stream(again)).key_by("key").aggregate(n=count()).write(sinks.foreach(print))
        with pytest.raises(InvalidConfiguration, match=r"one and the same spark.readStream"):
            output.start("job")
