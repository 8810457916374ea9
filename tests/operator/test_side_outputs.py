"""Side outputs: rows of other kinds than an operator's own, and late rows, on the harness and on Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside

from ferryman import ArrowOperator, Counter, Ferry, Operator, Value, side, sinks
from ferryman.errors import InvalidConfiguration, OutputMismatch
from ferryman.testing import Harness


class Checks(Operator):
    n = Value(int, 0)
    output = "key string, n long"
    sides = {"odd": "key string, value long", "large": "value long"}  # noqa: RUF012  it is not changed

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.n += 1
        if row.value % 2:
            yield side("odd", key, row.value)
        if row.value > 10:
            yield side("large", row.value)
        yield key, self.n


class Counts(Checks):
    seen = Counter(int)


@pytest.mark.parametrize("operator", [Checks, Counts])
def test_rows_aside(operator: type[Operator]) -> None:
    with Harness(lambda s: s.key_by("key").process(operator), "key string, value long", instances=2) as harness:
        assert sorted(harness.epoch([("a", 1), ("a", 12), ("b", 13)])) == [("a", 1), ("a", 2), ("b", 1)]
        assert {name: sorted(rows) for name, rows in harness.sides.items()} == {
            "odd": [("a", 1), ("b", 13)],
            "large": [(12,), (13,)],
        }
        assert harness.epoch() == []
        assert harness.sides == {"odd": [], "large": []}


def test_late_rows_aside() -> None:
    def at(seconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)

    def build(stream: Any) -> Any:
        return stream.with_watermark("time", "0 seconds", keep_late=True).key_by("key").process(Plain)

    class Plain(Operator):
        n = Value(int, 0)
        output = "key string, n long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self.n += 1
            yield key, self.n

    with Harness(build, "key string, time timestamp") as harness:
        harness.epoch([("a", at(100))])
        harness.epoch([("a", at(110))])
        assert harness.epoch([("a", at(90)), ("a", at(120))]) == [("a", 3)]
        assert harness.sides == {"late": [("a", at(90))]}


def test_the_harness_reads_the_side_that_the_pipeline_reads() -> None:
    class Sums(Operator):
        total = Value(int, 0)
        output = "key string, total long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self.total += row.value
            yield key, self.total

    rows = [("a", 1), ("a", 12), ("b", 13)]
    with Harness(lambda s: s.key_by("key").process(Checks).side("odd"), "key string, value long") as harness:
        assert sorted(harness.epoch(rows)) == [("a", 1), ("b", 13)]

    def then(stream: Any) -> Any:
        return stream.key_by("key").process(Checks).side("odd").key_by("key").process(Sums)

    with Harness(then, "key string, value long") as harness:
        assert sorted(harness.epoch(rows)) == [("a", 1), ("b", 13)]
        assert harness.epoch([("a", 3), ("a", 4)]) == [("a", 4)]
        assert harness.sides == {"odd": [("a", 3)], "large": []}


def test_sides_of_one_name_are_told_apart_by_their_operators() -> None:
    class Passing(Operator):
        n = Value(int, 0)
        output = "key string, value long"
        sides = {"odd": "value long"}  # noqa: RUF012  it is not changed

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            if row.value % 2:
                yield side("odd", row.value)
            yield key, row.value + 1

    def build(stream: Any) -> Any:
        return stream.key_by("key").process(Passing).key_by("key").process(Checks)

    with Harness(build, "key string, value long") as harness:
        assert harness.epoch([("a", 1), ("a", 2)]) == [("a", 1), ("a", 2)]
        assert harness.sides == {"Passing.odd": [(1,)], "Checks.odd": [("a", 3)], "large": []}


def test_a_side_that_is_not_declared_is_an_error() -> None:
    class Wrong(Checks):
        sides = {"odd": "key string, value long"}  # noqa: RUF012  it is not changed

    with Harness(lambda s: s.key_by("key").process(Wrong), "key string, value long") as harness:
        with pytest.raises(OutputMismatch, match="the side 'large', and declares odd"):
            harness.epoch([("a", 12)])
        with pytest.raises(InvalidConfiguration, match="no side output 'even' here; there are: odd"):
            harness.redeclare(lambda s: s.key_by("key").process(Wrong).side("even"))


def test_an_arrow_operator_has_none() -> None:
    class Columns(ArrowOperator):
        n = Value(int, 0)
        output = "key string"
        sides = {"odd": "key string"}  # noqa: RUF012  it is not changed

        def process(self, batch: Any) -> Any:
            return None, batch.state

    with pytest.raises(InvalidConfiguration, match="is an ArrowOperator and declares side outputs"):
        Harness(lambda s: s.key_by("key").process(Columns), "key string, value long")


def test_sides_on_spark_feed_sinks_and_other_operators(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "key string, value long")
    beside.give([("a", 1), ("b", 12)], [("a", 13), ("b", 2), ("c", 15)])
    ferry = Ferry(spark, tmp_path / "checkpoint")
    own: list[Any] = []
    odd: list[Any] = []
    large: list[Any] = []

    def into(name: str, rows: list[Any]) -> Any:
        return sinks.foreach(lambda frame, _: rows.extend(tuple(row) for row in frame.collect()), name)

    checks = ferry.stream(beside.stream()).key_by("key").process(Checks)
    counted = checks.side("odd").key_by("key").process(Odd)
    outputs = (
        checks.write(into("own", own)),
        counted.write(into("odd", odd)),
        checks.side("large").write(into("large", large)),
    )
    ferry.start("sides", *outputs, instances=2, trigger={"availableNow": True}).wait()

    assert sorted(own) == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)]
    assert sorted(odd) == [("a", 1), ("a", 14), ("c", 15)]
    assert sorted(large) == [(12,), (13,), (15,)]


class Odd(Operator):
    total = Value(int, 0)
    output = "key string, total long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.total += row.value
        yield key, self.total
