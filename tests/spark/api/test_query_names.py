"""A job answers to the names of Spark's `StreamingQuery`, and is over when it says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside
from processor.test_processor import at
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from until import until

from ferryman import Ferry, sinks
from ferryman.errors import OperatorFailed


class Answering(StatefulProcessor):
    """Count rows, answer when the watermark is at their time; "bad" raises, "again" asks for what has come already."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n = (self.count.get() or (0,))[0]
        for row in rows:
            n += 1
            self.handle.registerTimer(int(row.time.timestamp() * 1000))
        if key[0] == "bad":
            raise ValueError("a bad key")
        self.count.update((n,))
        yield Row(k=key[0], n=n)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        if key[0] == "again":
            self.handle.registerTimer(expiredTimerInfo.getExpiryTimeInMs() - 1)
        yield Row(k=key[0], n=-1)

    def close(self) -> None:
        pass


class Run:
    """A job on a folder of files, and what it has put out."""

    def __init__(self, spark: Any, place: Path) -> None:
        self.input = Beside(spark, place, "k string, time timestamp")
        self.rows: list[tuple[Any, ...]] = []
        self.seen: list[bool] = []
        self.job: Any = None

    def start(self, **options: Any) -> Any:
        ferry = Ferry(self.input.spark, self.input.place / "ferried", idle=None)
        marked = ferry.stream(self.input.stream()).withWatermark("time", "0 seconds")
        stream = marked.groupBy("k").transformWithState(Answering(), "k string, n long", "Append", "EventTime")
        self.job = stream.write(sinks.foreach(self.keep)).start("answering", instances=1, **options)
        return self.job

    def keep(self, frame: Any, epoch: int) -> None:
        self.rows += [tuple(row) for row in frame.collect()]
        if self.job is not None:
            self.seen.append(self.job.active)


@pytest.fixture
def run(spark: Any, tmp_path: Path) -> Iterator[Run]:
    made = Run(spark, tmp_path)
    yield made
    if made.job is not None:
        made.job.stop()


def test_a_job_is_active_until_another_can_be_started(run: Run) -> None:
    run.input.give([("a", at(0))])
    for n in (1, 2, 3):
        # What the watermark has come to is done after Spark's query has ended.
        run.input.give([("a", at(100 * n))])
        job = run.start(trigger={"availableNow": True})
        until(lambda job=job: not job.active, "it goes on", every=0.001)  # type: ignore[misc]
        assert not job.isActive
    assert all(run.seen), run.seen
    assert run.rows.count(("a", -1)) == 4


def test_all_that_is_available_is_processed_with_what_is_due_then(run: Run) -> None:
    run.input.give([("a", at(0)), ("b", at(1))])
    job = run.start()
    job.processAllAvailable()
    assert sorted(run.rows) == [("a", -1), ("a", 1), ("b", -1), ("b", 1)]
    run.input.give([("a", at(5))], [("a", at(6))])
    job.processAllAvailable()
    assert sorted(run.rows[4:]) == [("a", -1), ("a", -1), ("a", 2), ("a", 3)]

    assert job.isActive
    assert job.exception() is None
    assert job.awaitTermination(0.1) is False
    assert job.name == "answering"
    assert job.id != job.runId
    assert set(job.status) == {"message", "isDataAvailable", "isTriggerActive"}
    assert job.lastProgress["batchId"] >= 2
    assert [progress["numInputRows"] for progress in job.recentProgress][:1] == [2]
    first = job.id, job.runId
    job.stop()
    assert not job.isActive
    assert job.awaitTermination() is None
    assert job.awaitTermination(5) is True
    again = run.start()
    assert again.id == first[0]
    assert again.runId != first[1]


def test_a_failed_job_is_stopped_without_a_word_and_raises_where_it_is_waited_for(run: Run) -> None:
    run.input.give([("bad", at(0))])
    job = run.start()
    with pytest.raises(OperatorFailed, match="a bad key"):
        job.processAllAvailable()
    job.stop()
    assert isinstance(job.exception(), OperatorFailed)
    with pytest.raises(OperatorFailed, match="a bad key"):
        job.awaitTermination()
    with pytest.raises(OperatorFailed, match="a bad key"):
        job.wait()


def test_what_a_query_ended_with_between_two_epochs_is_not_lost_by_stopping(run: Run) -> None:
    run.input.give([("a", at(0))])
    job = run.start()
    job.processAllAvailable()
    # Spark finds its log gone when it begins the next micro-batch.
    log = run.input.place / "ferried" / "spark" / "offsets"
    for file in log.iterdir():
        file.unlink()
    log.rmdir()
    log.write_text("")
    run.input.give([("a", at(1))])
    until(lambda: not job.active, "it goes on")
    job.stop()
    assert job.exception() is not None
    with pytest.raises(type(job.exception())):  # type: ignore[arg-type]
        job.wait()


def test_a_timer_that_sets_itself_again_waits_for_a_later_watermark_or_rows(run: Run) -> None:
    run.input.give([("again", at(0))])
    job = run.start()
    caught_up = threading.Thread(target=job.processAllAvailable, daemon=True)
    caught_up.start()
    caught_up.join(60)
    assert not caught_up.is_alive(), f"{job.epoch} epochs, and no end"
    # An epoch for the row and one for the watermark; and as many for the next.
    assert (job.epoch, run.rows) == (2, [("again", 1), ("again", -1)])
    run.input.give([("b", at(5))])
    job.processAllAvailable()
    assert (job.epoch, run.rows[2:]) == (4, [("b", 1), ("again", -1), ("again", -1), ("b", -1)])
