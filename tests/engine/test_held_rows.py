"""Rows that wait for state that is on its way: none is late for having waited, and no window closes twice."""

from __future__ import annotations

import json
import operator
import threading

import pytest

from ferryman import Ferry, Operator, PerInstance, Reducing, TumblingWindow, Value, sinks, sources
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.fold.fold import rebuild
from ferryman._migrate.strategies import STRATEGIES
from ferryman._os import faults
from ferryman._os.faults import WAIT_STEP
from ferryman._spark.sinks.sinks import MemorySink

WAITING = [name for name, strategy in STRATEGIES.items() if strategy.waits == "moving"]
ROWS = 5000


class Spans(Operator):
    """Add up what comes in short windows, and count all rows per instance."""

    by_event_time = True
    spans = TumblingWindow(20, Reducing(int, operator.add))
    seen = PerInstance(int, int, merge=operator.add)
    output = "key string, ended timestamp, total long"

    def process(self, key, row):
        self.spans.add(row.event_time, row.id)
        self.seen.value += 1
        return ()

    def closed(self, key, span, result):
        yield key, span.end * 1000, result


class Total(Operator):
    """Add up the windows of a key, none of which may be late for it."""

    n = Value(int, 0)
    total = Value(int, 0)
    output = "key string, n long, total long"

    def process(self, key, row):
        self.n += 1
        self.total += row.total
        yield key, self.n, self.total


def windows():
    """Give every key's windows and their sum, by the rows that the generator gives."""
    found = {}
    for number in range(ROWS):
        found.setdefault((number % 20, number // 20), []).append(number)
    return found


def test_windows_that_close_meanwhile_take_the_rows_that_waited(spark, tmp_path, monkeypatch):
    frame = sources.generator(spark, rows=ROWS, rows_per_epoch=100, keys=20, partitions=2)
    frame = frame.selectExpr("concat('s-', id % 20) AS key", "id", "event_time")
    memory = sinks.memory()
    ferry = Ferry(spark, str(tmp_path / "c"), groups=8, idle=None, retain=100)
    stream = ferry.stream(frame).with_watermark("event_time", "1 millisecond").key_by("key").process(Spans)
    # Another operator after it, which drops what comes too late.
    stream = stream.key_by("key").process(Total)
    job = stream.write(memory).start("waits", instances=2, trigger={"availableNow": True})

    def some_epochs_later(step):
        if step == WAIT_STEP:
            at = job.epoch
            assert job.wait_for(lambda: job.epoch >= at + 3 or not job.active, timeout=120)

    monkeypatch.setattr(faults, "watcher", some_epochs_later)
    log = Checkpoint(directory(str(tmp_path / "c")))
    for number, strategy in enumerate(WAITING):
        at = job.epoch
        change = job.rescale(3 - number % 2, strategy=strategy)
        assert job.wait_for(lambda change=change: change.over, timeout=120)
        assert change.phase == "done", change.reason
        assert any(log.manifest(epoch).held for epoch in range(at + 1, job.epoch + 1)), "nothing was tried"
    job.wait()

    last = {row["key"]: (row["n"], row["total"]) for row in memory.rows()}
    # The last windows stay open: nothing comes that would close them.
    closed = {key: ids for key, ids in windows().items() if key[1] < ROWS // 20 - 1}
    assert last == {
        f"s-{key}": (ROWS // 20 - 1, sum(sum(ids) for (of, _), ids in closed.items() if of == key)) for key in range(20)
    }
    assert sum(row["_value"]["part"] for row in rebuild(log, "Spans.seen", log.epochs()[-1]).to_pylist()) == ROWS


class TenSeconds(Spans):
    spans = TumblingWindow(10_000, Reducing(int, operator.add))


class Asks(MemorySink):
    """Ask for a change in the second epoch, so that the third is the first in which groups wait."""

    def write(self, rows, epoch):
        if epoch == 2:
            self.job.wait_for(self.asked, timeout=60)
        return super().write(rows, epoch)

    def asked(self):
        if not hasattr(self, "change"):
            group = self.job.group_of("c", "TenSeconds")
            now = self.job._runner.coordinator.table.owner[group]
            self.change = self.job.move([group], to=1 - now, strategy="pause_resume")
        return self.job._runner.coordinator.holding


@pytest.mark.parametrize("rows_wait", [True, False])
def test_a_window_is_closed_once_and_in_every_group_while_some_wait(spark, tmp_path, monkeypatch, rows_wait):
    files = tmp_path / "rows"
    files.mkdir()
    done = 0

    def epoch(*rows, wait=0):
        nonlocal done
        made = tmp_path / f"{done}.json"
        lines = ({"key": key, "id": second, "event_time": f"2026-01-01T00:00:{second:02}Z"} for key, second in rows)
        made.write_text("\n".join(map(json.dumps, lines)))
        made.rename(files / made.name)
        done += len(rows) - wait
        assert job.wait_for(lambda: sum(epoch.rows for epoch in job.progress()) == done, timeout=60)

    frame = spark.readStream.schema("key string, id long, event_time timestamp").json(str(files))
    sink = Asks()
    ferry = Ferry(spark, str(tmp_path / "c"), groups=8, idle=None)
    stream = ferry.stream(frame).with_watermark("event_time", "0 seconds").key_by("key").process(TenSeconds)
    sink.job = job = stream.key_by("key").process(Total).write(sink).start("once", instances=2)
    come = threading.Event()
    monkeypatch.setattr(faults, "watcher", lambda step: step == WAIT_STEP and come.wait(60))
    assert job.group_of("a", "TenSeconds") != job.group_of("c", "TenSeconds")
    try:
        epoch(("a", 6), ("c", 3))
        epoch(("a", 10))
        # The watermark has come to the end of the first window of both, and one of them has to wait.
        epoch(("a", 12), *[("c", 8)] * rows_wait, wait=rows_wait)
        epoch(("a", 7))
        come.set()
        assert job.wait_for(lambda: sink.change.over and len(sink.rows()) >= 2, timeout=60)
    finally:
        job.stop()

    assert sink.change.phase == "done"
    found = [(row["key"], row["n"], row["total"]) for row in sink.rows()]
    assert sorted(found) == [("a", 1, 6 + 7), ("c", 1, 3 + 8 * rows_wait)]
