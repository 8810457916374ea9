"""The harness runs operators as a job does: time, crashes, rescaling, snapshots, going back."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import Counter, Operator, Value
from ferryman.errors import InvalidConfiguration, OperatorFailed, OutputMismatch, StateMisused
from ferryman.testing import Crash, Harness

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)


class Sums(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.n += row.value
        yield key, self.n


def sums(**options: Any) -> Harness:
    return Harness(lambda stream: stream.key_by("key").process(Sums), "key string, value long", **options)


def test_state_goes_from_epoch_to_epoch() -> None:
    with sums() as harness:
        assert harness.epoch([("a", 1), ("b", 2)]) == [("a", 1), ("b", 2)]
        assert harness.epoch([{"key": "a", "value": 10}]) == [("a", 11)]
        assert harness.state() == [{"key": "a", "n": 11}, {"key": "b", "n": 2}]
        assert harness.state(epoch=1) == [{"key": "a", "n": 1}, {"key": "b", "n": 2}]


def test_an_epoch_that_crashes_does_not_count() -> None:
    with sums(instances=3) as harness:
        harness.epoch([("a", 1)])
        with pytest.raises(Crash):
            harness.epoch([("a", 100)], crash=True)
        assert harness.epoch([("a", 1)]) == [("a", 2)]


MARKS = [{"crash": "before-commit"}, {"crash": "after-commit"}, {"crash_at_row": 0}, {"crash_at_row": 3}]


@pytest.mark.parametrize("mark", MARKS, ids=str)
@pytest.mark.parametrize("instances", [1, 3])
def test_wherever_it_crashes_every_row_counts_once(mark: dict[str, Any], instances: int) -> None:
    rows = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)]
    with sums(instances=instances) as harness:
        harness.epoch([("a", 10)])
        with pytest.raises(Crash):
            harness.epoch(rows, **mark)
        there = mark == {"crash": "after-commit"}
        assert harness.epochs == (2 if there else 1)
        assert harness.state() == ([*TOTALS] if there else [{"key": "a", "n": 10}])
        harness.snapshot()
        assert sorted(harness.redo()) == [("a", 11), ("a", 14), ("b", 2), ("b", 7), ("c", 4)]
        assert harness.epochs == 2
        assert harness.state() == [*TOTALS]
        with pytest.raises(InvalidConfiguration, match="no epoch was interrupted"):
            harness.redo()


TOTALS = ({"key": "a", "n": 14}, {"key": "b", "n": 7}, {"key": "c", "n": 4})


def test_an_epoch_that_was_redone_can_crash_again_and_rows_after_it_go_on() -> None:
    with sums(instances=2) as harness:
        for mark in MARKS[:2]:
            with pytest.raises(Crash):
                harness.epoch([("a", 1)], **mark)
        assert harness.redo() == [("a", 1)]
        assert harness.epoch([("a", 1)]) == [("a", 2)]
        with pytest.raises(Crash):
            harness.epoch([("a", 5)], crash="after-commit")
        assert harness.epoch([("a", 1)]) == [("a", 8)]
        with pytest.raises(Crash):
            harness.epoch([("a", 5)], crash="before-commit")
        harness.rewind(1)
        with pytest.raises(InvalidConfiguration, match="no epoch was interrupted"):
            harness.redo()


@pytest.mark.parametrize(
    ("mark", "says"),
    [({"crash": "later"}, "crash='later': give 'before-commit'"), ({"crash_at_row": 1}, "there are 1 rows")],
)
def test_a_crash_that_cannot_be_is_refused(mark: dict[str, Any], says: str) -> None:
    with sums() as harness, pytest.raises(InvalidConfiguration, match=says):
        harness.epoch([("a", 1)], **mark)


def test_a_task_that_dies_at_a_row_has_seen_those_before_it() -> None:
    seen: list[int] = []

    class Sees(Sums):
        def process(self, key: Any, row: Any) -> Iterator[Any]:
            seen.append(row.value)
            return super().process(key, row)

    with Harness(lambda s: s.key_by("key").process(Sees), "key string, value long") as harness:
        with pytest.raises(Crash, match="a task of epoch 1 died in the middle"):
            harness.epoch([("a", 1), ("a", 2), ("a", 3)], crash_at_row=2)
        assert seen == [1, 2]
        assert harness.redo() == [("a", 1), ("a", 3), ("a", 6)]


def test_instances_come_and_go_and_snapshots_fold() -> None:
    with sums() as harness:
        for number in range(1, 7):
            harness.rescale(1 + number % 4)
            harness.epoch([(f"k{key}", 1) for key in range(20)])
            if number % 2:
                harness.snapshot()
            if number % 3 == 0:
                harness.restart()
        assert harness.state() == sorted(({"key": f"k{key}", "n": 6} for key in range(20)), key=lambda row: row["key"])


def test_time_travel() -> None:
    with sums() as harness:
        for _ in range(3):
            harness.epoch([("a", 1)])
        harness.rewind(1)
        assert harness.epoch([("a", 10)]) == [("a", 11)]
        assert harness.epochs == 2


class Reminder(Operator):
    last = Value(int, 0)
    output = "key string, what string, at long"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.cancel(self.last)
        self.last = self.now_ms + 1000
        self.call_at(self.last)
        yield key, "seen", self.now_ms

    def due(self, key: Any, at: int) -> Iterator[Any]:
        self.clear()
        yield key, "due", at


def test_a_call_by_the_clock() -> None:
    with Harness(lambda s: s.key_by("key").process(Reminder), "key string", now_ms=0, instances=2) as harness:
        assert sorted(harness.epoch([("a",), ("b",)])) == [("a", "seen", 0), ("b", "seen", 0)]
        harness.now_ms = 500
        assert harness.epoch([("b",)]) == [("b", "seen", 500)]
        assert harness.tick(499) == []
        assert harness.tick(1) == [("a", "due", 1000)]
        harness.restart()
        assert harness.tick(10_000) == [("b", "due", 1500)]
        assert harness.tick(10_000) == []
        assert harness.state() == []
        assert harness.state("Reminder._time") == []


class Late(Operator):
    by_event_time = True
    n = Value(int, 0)
    output = "key string, what string"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.n += 1
        self.call_at(int(row.time.timestamp() * 1000) // 10_000 * 10_000 + 10_000)
        return iter(())

    def due(self, key: Any, at: int) -> Iterator[Any]:
        seconds = at // 1000 - int(START.timestamp())
        yield key, f"{self.n} by {seconds}"


def after(seconds: int) -> datetime.datetime:
    return START + datetime.timedelta(seconds=seconds)


def test_a_call_by_event_time_and_late_rows() -> None:
    def build(stream: Any) -> Any:
        return stream.with_watermark("time", "2 seconds").key_by("key").process(Late)

    with Harness(build, "key string, time timestamp", instances=2) as harness:
        assert harness.epoch([("a", after(1)), ("a", after(3)), ("b", after(11))]) == []
        assert harness.watermark_ms == int(after(9).timestamp() * 1000)
        # Rows are late by what the epoch before went by, as on Spark: this one still counts.
        assert harness.epoch([("a", after(5))]) == []
        assert harness.epoch([("c", after(12)), ("late", after(4))]) == []
        assert harness.checkpoint.manifest(3).operators["Late"].late == 1
        assert harness.epoch([("d", after(35))]) == [("a", "3 by 10")]
        assert sorted(harness.epoch()) == [("b", "1 by 20"), ("c", "1 by 20")]


def test_two_operators_in_a_row() -> None:
    class Twice(Operator):
        total = Value(int, 0)
        output = "parity string, total long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self.total += row.n
            yield key, self.total

    class Parity(Sums):
        output = "parity string, n long"

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self.n += row.value
            yield "odd" if self.n % 2 else "even", self.n

    def build(stream: Any) -> Any:
        return stream.key_by("key").process(Parity).key_by("parity").process(Twice)

    with Harness(build, "key string, value long") as harness:
        assert harness.epoch([("a", 1), ("b", 2), ("c", 3)]) == [("odd", 1), ("odd", 4), ("even", 2)]
        assert harness.state("Twice") == [{"parity": "even", "total": 2}, {"parity": "odd", "total": 4}]


@pytest.mark.parametrize("states", [{}, {"seen": Counter(str)}])
def test_an_attribute_that_is_not_declared_is_refused(states: Any) -> None:
    class Leaks(Sums):
        def __init__(self) -> None:
            self.factor = 2

        def process(self, key: Any, row: Any) -> Iterator[Any]:
            self._scratch = row.value * self.factor
            self.last = self._scratch
            yield key, 1

    operator = type("Leaks", (Leaks,), states)
    with Harness(lambda s: s.key_by("key").process(operator), "key string, value long") as harness:
        with pytest.raises(StateMisused, match=r"`process` sets self\.last, which is not declared.*Value\("):
            harness.epoch([("a", 1)])
        assert harness.epochs == 0


# -- processors that are wrong ------------------------------------------------------------------------


class Wrong(StatefulProcessor):
    """Do what the test says."""

    def __init__(self, what: Any) -> None:
        self.what = what

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long, tags array<string>")
        self.map = handle.getMapState("map", "k string", "n int")
        self.list = handle.getListState("list", "n int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        yield from self.what(self, key, rows) or ()

    def close(self) -> None:
        pass


def wrong(what: Any, time_mode: str = "None") -> Harness:
    def build(stream: Any) -> Any:
        return stream.groupBy("key").transformWithState(Wrong(what), "key string, n long", "Update", time_mode)

    return Harness(build, "key string, value long")


@pytest.mark.parametrize(
    ("what", "error", "says"),
    [
        (lambda self, key, rows: self.value.update((1,)), OperatorFailed, "'value' takes a tuple of 2 .* key .'a',"),
        (lambda self, key, rows: self.value.update(5), OperatorFailed, "'value' takes a tuple .* got a int"),
        (lambda self, key, rows: self.value.update(("x", None)), OutputMismatch, "key .'a',.*'value'.*'n'.*int64.*'x'"),
        (lambda self, key, rows: self.map.updateValue(("k",), (1 << 40,)), OutputMismatch, "'a'.*'map'.*int32"),
        (lambda self, key, rows: self.map.getValue(("k", 1)), OperatorFailed, "'map' takes a tuple of 1"),
        (lambda self, key, rows: self.list.appendValue(("no",)), OutputMismatch, "'a'.*'list'.*int32.*'no'"),
        (lambda self, key, rows: self.handle.registerTimer(1), OperatorFailed, "timers are not available.*timeMode"),
        (lambda self, key, rows: self.handle.getValueState("new", "n int"), OperatorFailed, "'new' was not declared"),
        (lambda self, key, rows: [Row(other=1)], OutputMismatch, "none of the declared fields key, n"),
        (lambda self, key, rows: [("a", 1)], OutputMismatch, "without field names"),
        (lambda self, key, rows: [Row(key=key[0], n="many")], OutputMismatch, "column 'n' is declared as int64"),
    ],
)
def test_what_a_processor_does_wrong_is_named_and_nothing_is_committed(what: Any, error: Any, says: str) -> None:
    with wrong(what) as harness:
        with pytest.raises(error, match=says) as caught:
            harness.epoch([("a", 1)])
        assert "epoch 1" in str(caught.value)
        assert harness.epochs == 0


def test_a_value_that_is_changed_in_place_is_an_error() -> None:
    def mutate(self: Any, key: Any, rows: Any) -> None:
        if not self.value.exists():
            self.value.update((1, ["x"]))
        else:
            self.value.get()[1].append("y")

    with wrong(mutate) as harness:
        harness.epoch([("a", 1)])
        with pytest.raises(StateMisused, match=r"'Wrong', state 'value', key \('a',\), epoch 2.*`update`"):
            harness.epoch([("a", 1)])


class UsesStateInInit(Wrong):
    def init(self, handle: Any) -> None:
        super().init(handle)
        self.value.get()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda s: s.groupBy("key").transformWithState(Wrong, "key string", "Update", "None"), "not the class"),
        (
            lambda s: s.groupBy("key").transformWithState(Wrong(0), "key string", "Sometimes", "None"),
            "outputMode=",
        ),
        (lambda s: s.groupBy("key").transformWithState(Wrong(0), "key string", "Update", "Sometimes"), "timeMode="),
        (lambda s: s.groupBy("key").transformWithState(Wrong(0), "key string", "Update", "EventTime"), "no watermark"),
        (
            lambda s: s.groupBy("key").transformWithState(UsesStateInInit(0), "key string", "Update", "None"),
            r"operator '\w+': `init` or `close` used state '\w+' while no key is at hand",
        ),
    ],
)
def test_a_call_that_cannot_work_is_refused_at_once(build: Any, says: str) -> None:
    with pytest.raises(InvalidConfiguration, match=says):
        Harness(build, "key string, value long")
