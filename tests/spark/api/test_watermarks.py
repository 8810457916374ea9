"""Several watermarks in one job: the least of all declarations counts, also of those on one column."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processor.beside import Beside
from processor.test_processor import at, ms

from ferryman import Ferry, Operator, Reducing, Span, TumblingWindow, sinks, sources
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._spark.api.stream import Operated, Stream
from ferryman._spark.api.watermark_names import name_watermarks
from ferryman._spark.plan.schema import declared_struct

INPUT = "sensor string, time timestamp, other timestamp"


class Seen(Operator):
    output = "sensor string, time timestamp"
    event_time = "time"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        yield key, row.time


def seen(stream: Any, name: str) -> Any:
    return stream.key_by("sensor").process(Seen, name)


def named(*operators: Operated) -> dict[str, str]:
    """Give the name of the watermark that each operator reports."""
    by_name = {node.spec.name: node for node in operators}
    name_watermarks(by_name)
    return {name: mark for name, node in by_name.items() for mark, *_ in node.spec.time.watermarks}


def test_a_declaration_has_the_name_of_its_column_unless_there_are_several_on_it() -> None:
    source = Stream(None, declared_struct(INPUT, "input"))
    one = source.with_watermark("time", "10 seconds")
    same, other = source.with_watermark("time", "10 seconds"), source.with_watermark("other", "10 seconds")
    # However many operators report it.
    assert named(seen(one, "b"), seen(one, "a")) == {"a": "time", "b": "time"}
    assert named(seen(one, "b"), seen(other, "o")) == {"b": "time", "o": "other"}
    branches = [seen(same, "c"), seen(one, "b"), seen(one, "a"), seen(other, "o")]
    wanted = {"a": "time@a", "b": "time@a", "c": "time@c", "o": "other"}
    # Whatever their order is, and when a start names them again.
    assert named(*branches) == named(*branches[::-1]) == wanted
    assert named(branches[1]) == {"b": "time"}
    # An operator after the first one reports nothing.
    assert named(seen(one, "a"), seen(seen(one, "a"), "after")) == {"a": "time"}


def test_a_branch_that_waits_longer_loses_nothing_to_one_that_does_not(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    rows: list[Any] = []

    def run(*branches: tuple[str, str]) -> None:
        source = Ferry(spark, tmp_path / "checkpoint").stream(beside.stream())

        def sink(name: str) -> Any:
            return sinks.foreach(lambda frame, _: rows.extend(tuple(row) for row in frame.collect()), name)

        outputs = [seen(source.with_watermark("time", delay), name).write(sink(name)) for name, delay in branches]
        assert source.ferry is not None
        source.ferry.start("job", *outputs, instances=1, trigger={"availableNow": True}).wait()

    def inputs() -> dict[str, int]:
        latest = Checkpoint(LocalDirectory(tmp_path / "checkpoint")).latest()
        assert latest is not None
        return dict(latest.watermarks.inputs)

    times = [at(100), at(110), at(70), at(200), at(150)]
    beside.give(*([("a", time, None)] for time in times[:3]))
    run(("fast", "1 second"), ("slow", "60 seconds"))
    beside.give(*([("a", time, None)] for time in times[3:]))
    # In another order in the code.
    run(("slow", "60 seconds"), ("fast", "1 second"))
    assert len(rows) == 2 * len(times)
    assert inputs() == {"time@fast": ms(199), "time@slow": ms(140)}


class PerSecond(Operator):
    by_event_time = True
    counts = TumblingWindow(1000, Reducing(int, operator.add))
    output = "key string, start long, n long"

    def process(self, key: Any, row: Any) -> None:
        self.counts.add(row.event_time, 1)

    def closed(self, key: Any, span: Span, result: int) -> Iterator[Any]:
        yield key, span.start, result


class Never(Operator):
    output = "key string"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        yield (key,)


def test_a_watermark_that_sees_no_rows_is_not_waited_for_longer_than_it_says(spark: Any, tmp_path: Path) -> None:
    rows = sources.generator(spark, rows=200, rows_per_epoch=100, keys=2, key_prefix="k", interval_ms=50.0)
    ferry = Ferry(spark, str(tmp_path), idle="100 milliseconds", retain=1000)
    stream, closed = ferry.stream(rows), sinks.memory()
    counts = stream.with_watermark("event_time", 0.0).key_by("key").process(PerSecond)
    nothing = stream.where("id < 0").with_watermark("event_time", 0.0, idle="1 second").key_by("key").process(Never)
    job = ferry.start("idle", counts.write(closed), nothing.write(sinks.none()), instances=2)
    try:
        # All but the last second of ten, in which the watermark stands.
        assert job.wait_for(lambda: sum(row["n"] for row in closed.rows()) == 180, timeout=60)
    finally:
        job.stop()

    log = Checkpoint(LocalDirectory(tmp_path))
    manifests = [log.manifest(epoch) for epoch in log.epochs()]
    before = [manifest for manifest in manifests if manifest.watermarks.next_ms is None]
    first = manifests[len(before)]
    assert before, "it was waited for at first"
    assert first.time_ms - manifests[0].time_ms >= 1000
    assert first.watermarks.heard_ms == {"event_time@Never": manifests[0].time_ms}


def test_the_time_in_which_the_job_was_away_makes_nobody_idle(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    rows: list[Any] = []
    now_ms = 1_700_000_000_000

    def run() -> None:
        ferry = Ferry(spark, tmp_path / "checkpoint", clock=lambda: now_ms)
        source = ferry.stream(beside.stream())
        sink = sinks.foreach(lambda frame, _: rows.extend(tuple(row) for row in frame.collect()))
        often = seen(source.where("sensor = 'often'").with_watermark("time", 0.0), "often")
        rarely = seen(source.where("sensor = 'rarely'").with_watermark("time", 0.0, idle="1 minute"), "rarely")
        ferry.start(
            "job", often.write(sinks.none()), rarely.write(sink), instances=1, trigger={"availableNow": True}
        ).wait()

    beside.give([("often", at(100), None), ("rarely", at(100), None)])
    run()
    now_ms += 3_600_000
    # The backlog of the one comes before that of the other.
    beside.give([("often", at(500), None)], [("often", at(510), None)], [("rarely", at(150), None)])
    run()

    assert [(time.minute, time.second) for _, time in rows] == [(1, 40), (2, 30)]
