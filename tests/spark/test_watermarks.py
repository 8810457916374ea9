"""Several watermarks in one job: the least of all declarations counts, also of those on one column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processor.beside import Beside
from processor.test_processor import at, ms

from ferryman import Ferry, Operator, sinks
from ferryman._log.checkpoint import Checkpoint
from ferryman._log.directory import LocalDirectory
from ferryman._spark.schema import declared_struct
from ferryman._spark.stream import Operated, Stream
from ferryman._spark.watermarks import name_watermarks

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
    by_name = {one.spec.name: one for one in operators}
    name_watermarks(by_name)
    return {name: mark for name, one in by_name.items() for mark, _, _ in one.spec.time.watermarks}


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
        sink = sinks.foreach(lambda frame, _: rows.extend(tuple(row) for row in frame.collect()))
        outputs = [seen(source.with_watermark("time", delay), name).write(sink) for name, delay in branches]
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
