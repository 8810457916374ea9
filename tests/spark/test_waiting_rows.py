"""Rows that wait for state that is on its way: none is late for having waited."""

from __future__ import annotations

import operator

from ferryman import Ferry, Operator, PerInstance, Reducing, TumblingWindow, Value, sinks, sources
from ferryman._log.checkpoint import Checkpoint
from ferryman._log.directory import directory
from ferryman._log.fold import rebuild
from ferryman._migrate.strategies import STRATEGIES

WAITING = [name for name, one in STRATEGIES.items() if one.waits == "moving"]
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


def test_windows_that_close_meanwhile_take_the_rows_that_waited(spark, tmp_path):
    frame = sources.generator(spark, rows=ROWS, rows_per_epoch=100, keys=20, partitions=2)
    frame = frame.selectExpr("concat('s-', id % 20) AS key", "id", "event_time")
    memory = sinks.memory()
    ferry = Ferry(spark, str(tmp_path / "c"), groups=8, idle=None, retain=100)
    stream = ferry.stream(frame).with_watermark("event_time", "1 millisecond").key_by("key").process(Spans)
    # Another operator after it, which drops what comes too late.
    stream = stream.key_by("key").process(Total)
    job = stream.write(memory).start("waits", instances=2, trigger={"availableNow": True})
    carrier = job._runner.changes._carrier
    carry = carrier.carry

    def carry_later(current, lanes):
        at = job.epoch
        assert job.wait_for(lambda: job.epoch >= at + 3 or not job.active, timeout=120)
        carry(current, lanes)

    carrier.carry = carry_later
    log = Checkpoint(directory(str(tmp_path / "c")))
    for number, strategy in enumerate(WAITING):
        at = job.epoch
        change = job.rescale(3 - number % 2, strategy=strategy)
        assert job.wait_for(lambda one=change: one.over, timeout=120)
        assert change.phase == "done", change.reason
        assert any(log.manifest(epoch).held for epoch in range(at + 1, job.epoch + 1)), "nothing was tried"
    job.wait()

    last = {row["key"]: (row["n"], row["total"]) for row in memory.rows()}
    # The last windows stay open: nothing comes that would close them.
    closed = {key: ids for key, ids in windows().items() if key[1] < ROWS // 20 - 1}
    assert last == {
        f"s-{key}": (ROWS // 20 - 1, sum(sum(ids) for (of, _), ids in closed.items() if of == key)) for key in range(20)
    }
    assert sum(one["_value"]["part"] for one in rebuild(log, "Spans.seen", log.epochs()[-1]).to_pylist()) == ROWS
