"""The tasks of several outputs run at the same time; what they share is computed once."""

from __future__ import annotations

import _thread
import os
import threading

import pytest
from pyspark import InheritableThread
from pyspark.sql import functions as F
from until import until

from ferryman import Ferry, Operator, Value, aggregates, sinks, sources
from ferryman._spark.plan.side_by_side import side_by_side
from ferryman._spark.sinks.sinks import MemorySink
from ferryman.errors import JobFailed

ONCE = {"availableNow": True}


def test_calls_run_at_the_same_time_with_the_properties_of_the_thread_that_made_them(spark):
    meet, context, found = threading.Barrier(3), spark.sparkContext, []

    def call():
        meet.wait(timeout=60)
        found.append((context.getLocalProperty("ferryman.test"), spark.range(4).count()))

    context.setLocalProperty("ferryman.test", "mine")
    try:
        side_by_side(spark, [call, call, call])
    finally:
        context.setLocalProperty("ferryman.test", None)
    assert found == [("mine", 4)] * 3


def test_all_are_waited_for_and_the_first_that_failed_by_their_order_is_told(spark):
    others, done = threading.Event(), []

    def late():
        assert others.wait(60)
        done.append("late")
        raise ValueError("the first in order, the last in time")

    def soon():
        others.set()
        raise KeyError("the last in order, the first in time")

    with pytest.raises(ValueError, match="the first in order"):
        side_by_side(spark, [lambda: done.append("fine"), late, soon])
    assert sorted(done) == ["fine", "late"]


def test_one_call_is_made_on_the_thread_that_asks(spark):
    found = []
    side_by_side(spark, [lambda: found.append(threading.current_thread())])
    side_by_side(spark, [])
    assert found == [threading.current_thread()]


@pytest.mark.parametrize("express", [True, False])
def test_a_stream_that_several_read_is_computed_once(spark, tmp_path, express):
    """Two sinks ask for it at the same time, a function and another operator as well."""
    calls, steps = str(tmp_path / "calls"), str(tmp_path / "steps")

    def note(path, text):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{text}\n".encode())
        os.close(file)

    class Noted(Operator):
        n = Value(int, 0)
        output = "key string, id long"

        def process(self, key, row):
            note(calls, row.id)
            self.n += 1
            yield key, row.id

    @F.udf("long")
    def noted(number):
        note(steps, number)
        return number

    rows = sources.generator(spark, rows=200, rows_per_epoch=100, keys=10, key_prefix="s-")
    ferry = Ferry(spark, str(tmp_path / "c"), idle=None, express=express)
    stream = ferry.stream(rows).key_by("key").process(Noted)
    step = stream.withColumn("id", noted("id"))
    memory, seen = sinks.memory(), []
    job = ferry.start(
        "once",
        step.write(memory),
        step.write(sinks.parquet(tmp_path / "o")),
        stream.write(sinks.foreach(lambda frame, number: seen.append(frame.count()))),
        step.key_by("key").aggregate(name="Sums", n=aggregates.count()).write(sinks.none()),
        instances=2,
        trigger=ONCE,
    )
    job.wait()
    # On a busy machine a later epoch may go by a shuffle.
    assert job.progress()[0].route == ("express" if express else "shuffle")
    for path in (calls, steps):
        with open(path) as file:
            assert sorted(map(int, file)) == list(range(200))
    assert sorted(row["id"] for row in memory.rows()) == list(range(200))
    assert sinks.read_parquet(spark, tmp_path / "o").count() == 200
    assert seen == [100, 100]
    assert sum(row["n"] for row in job.state("Sums").to_arrow().to_pylist()) == 200


def test_a_function_that_fails_is_told_when_all_others_have_written_and_the_epoch_is_redone(spark, tmp_path):
    calls, wrong, memory = [], [True], sinks.memory()

    def take(name, frame, number):
        calls.append((name, number, threading.current_thread().name))
        if name == "b" and number == 1 and wrong.pop():
            raise ConnectionError("away")

    for again in (False, True):
        ferry = Ferry(spark, str(tmp_path), idle=None, express=False)
        rows = sources.generator(spark, rows=300, rows_per_epoch=100, keys=10, key_prefix="s-")
        stream = ferry.stream(rows).key_by("key").aggregate(name="Sums", n=aggregates.count())
        functions = [
            stream.write(sinks.foreach(lambda frame, number, name=name: take(name, frame, number), name=name))
            for name in ("a", "b", "c")
        ]
        job = ferry.start("fails", functions[0], stream.write(memory), *functions[1:], instances=2, trigger=ONCE)
        if again:
            job.wait()
        else:
            with pytest.raises(JobFailed, match="ConnectionError: away"):
                job.wait()
            wrong.append(False)
    assert [(name, number) for name, number, _ in calls] == [
        *(("a", 0), ("b", 0), ("c", 0), ("a", 1), ("b", 1)),
        *(("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), ("c", 2)),
    ]
    assert not any(thread.startswith("ferryman-output") for _, _, thread in calls)
    assert sum(row["n"] for row in job.state("Sums").to_arrow().to_pylist()) == 300


class Slow(MemorySink):
    """A memory sink whose second epoch has a Spark job that ends when it is interrupted, once; it begins when told."""

    beside = True

    def __init__(self):
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def write(self, rows, epoch):
        if epoch == 2 and not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(60)
            sleep = "java_method('java.lang.Thread', 'sleep', 600000L + id)"
            rows.sparkSession.range(2).selectExpr(sleep).collect()
        return super().write(rows, epoch)


def test_a_query_that_spark_itself_stops_ends_the_jobs_of_all_outputs_also_those_begun_just_after(spark, tmp_path):
    slow = Slow()

    def start():
        ferry = Ferry(spark, str(tmp_path), idle=None, express=False)
        rows = sources.generator(spark, rows=300, rows_per_epoch=100, keys=10, key_prefix="s-")
        stream = ferry.stream(rows).key_by("key").aggregate(name="Sums", n=aggregates.count())
        return ferry.start("stops", stream.write(sinks.none()), stream.write(slow), instances=2, trigger=ONCE)

    job = start()
    query = next(query for query in spark.streams.active if query.name == job.name)
    assert slow.begun.wait(60)
    stopping = InheritableThread(query.stop)
    stopping.start()
    # Spark has ended the jobs there are by then, and waits for the thread that it has interrupted.
    assert job.wait_for(lambda: not query.isActive, timeout=60)
    slow.go_on.set()
    stopping.join(120)

    assert not stopping.is_alive()
    assert query.exception() is None
    job.stop()
    job = start()
    job.wait()
    assert sum(row["n"] for row in job.state("Sums").to_arrow().to_pylist()) == 300


class Stopping(MemorySink):
    """A memory sink that has its job end in the second epoch."""

    beside = True
    job = None

    def __init__(self):
        super().__init__()
        self.started = threading.Event()

    def write(self, rows, epoch):
        written = super().write(rows, epoch)
        if epoch == 2:
            assert self.started.wait(60)
            self.job.stop()
        return written


def test_a_job_can_be_stopped_by_a_sink_that_writes_beside_others(spark, tmp_path):
    ferry, sink = Ferry(spark, str(tmp_path), idle=None, express=False), Stopping()
    rows = sources.generator(spark, rows=300, rows_per_epoch=100, keys=10, key_prefix="s-")
    stream = ferry.stream(rows).key_by("key").aggregate(name="Sums", n=aggregates.count())
    sink.job = ferry.start("stops", stream.write(sinks.none()), stream.write(sink), instances=2, trigger=ONCE)
    sink.started.set()
    assert sink.job.wait(60), "it waits for itself"
    assert sink.job.epoch == 2


@pytest.fixture
def interruptible(spark):
    """Have the jobs of this test end as those of a query do: what sleeps is woken."""
    spark.sparkContext.setInterruptOnCancel(True)
    yield
    spark.sparkContext.setInterruptOnCancel(False)


class Sleeping:
    """A call whose Spark job ends when it is woken; it knows that it has ended."""

    def __init__(self, spark):
        self.ended = False
        self._spark = spark

    def __call__(self):
        try:
            self._spark.range(2).selectExpr("java_method('java.lang.Thread', 'sleep', 600000L + id)").collect()
        finally:
            self.ended = True

    def sleeps(self):
        return bool(self._spark.sparkContext.statusTracker().getActiveStageIds())


@pytest.mark.usefixtures("interruptible")
def test_who_is_interrupted_while_it_waits_leaves_no_job_behind(spark):
    sleeping = Sleeping(spark)

    def interrupts():
        until(sleeping.sleeps, "its job runs")
        _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        side_by_side(spark, [sleeping, interrupts])
    assert sleeping.ended
    until(lambda: not sleeping.sleeps(), "its job has ended")


@pytest.mark.usefixtures("interruptible")
def test_where_a_thread_cannot_be_started_those_that_were_have_ended(spark, monkeypatch):
    sleeping, started, start = Sleeping(spark), [], InheritableThread.start

    def only_one(thread):
        if started:
            until(sleeping.sleeps, "its job runs")
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(InheritableThread, "start", only_one)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        side_by_side(spark, [sleeping, sleeping])
    assert sleeping.ended
    until(lambda: not sleeping.sleeps(), "its job has ended")


class Counting(MemorySink):
    """A memory sink that knows on which thread it writes."""

    beside = True
    threads: list[str]

    def write(self, rows, epoch):
        self.threads.append(threading.current_thread().name)
        return super().write(rows, epoch)


@pytest.mark.usefixtures("tied")
def test_outputs_write_in_turn_where_tasks_are_tied_to_hosts(spark, tmp_path):
    """Behind the tasks of another output, one would go to another host in the end and rebuild its state there."""
    made = [Counting(), Counting()]
    for sink in made:
        sink.threads = []
    rows = sources.generator(spark, rows=200, rows_per_epoch=100, keys=10, key_prefix="s-")
    ferry = Ferry(spark, str(tmp_path), idle=None, express=False)
    stream = ferry.stream(rows).key_by("key").aggregate(name="Sums", n=aggregates.count())
    ferry.start("turns", *(stream.write(sink) for sink in made), instances=2, trigger=ONCE).wait()
    threads = [thread for sink in made for thread in sink.threads]
    assert len(threads) == 4
    assert not any(thread.startswith("ferryman-output") for thread in threads)
