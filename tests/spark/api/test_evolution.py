"""A state that is declared anew: it gains, widens, renames and drops, and old epochs stay readable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from processor.beside import Beside
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import Ferry, Operator, Value
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import LocalDirectory
from ferryman._log.fold.fold import rebuild
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._spark.sinks.sinks import MemorySink
from ferryman._state.earlier_columns import Evolution, fit_array, widens
from ferryman.errors import OperatorFailed, StateSchemaChanged


class First(Operator):
    n = Value(pa.int32(), 0)
    total = Value(int, 0)
    old = Value(str, "x")
    output = "sensor string, found string"

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.n += 1
        self.total += row.value
        yield key, f"{self.n} {self.total}"


class Second(Operator):
    n = Value(int, 0)
    amount = Value(int, 0, alias="total")
    tags = Value(list[str], ["new"])
    output = "sensor string, found string"
    dropped = ("old",)

    def process(self, key: Any, row: Any) -> Iterator[Any]:
        self.n += 1
        self.amount += row.value
        self.tags.append(str(row.value))
        yield key, f"{self.n} {self.amount} {self.tags}"


class Careless(Second):
    dropped = ()


def of(operator: Any) -> Any:
    return lambda stream: stream.key_by("sensor").process(operator, name="Counts")


@pytest.mark.parametrize("folded", [False, True])
def test_a_state_gains_widens_renames_and_drops(spark: Any, tmp_path: Path, folded: bool) -> None:
    beside = Beside(spark, tmp_path, "sensor string, value long")
    beside.give([("a", 1), ("b", 2), ("untouched", 9)])
    assert sorted(beside.on_ferryman(of(First))) == [("a", "1 1"), ("b", "1 2"), ("untouched", "1 9")]
    log = Checkpoint(LocalDirectory(tmp_path / "ferried"))
    if folded:
        write_snapshot(log, 1)
    beside.give([("a", 5)], [("a", 6), ("b", 7)])

    with pytest.raises(StateSchemaChanged, match=r"state 'old': string -> not there\n.*dropped"):
        beside.on_ferryman(of(Careless))
    rows = beside.on_ferryman(of(Second))

    assert sorted(rows) == [
        ("a", "2 6 ['new', '5']"),
        ("a", "3 12 ['new', '5', '6']"),
        ("b", "2 9 ['new', '7']"),
    ]
    # Old epochs, and keys that nobody touched since, are read as they are declared now.
    assert rebuild(log, "Counts", 1).drop_columns(["_hash"]).sort_by("sensor").to_pylist() == [
        {"sensor": "a", "n": 1, "amount": 1, "tags": ["new"]},
        {"sensor": "b", "n": 1, "amount": 2, "tags": ["new"]},
        {"sensor": "untouched", "n": 1, "amount": 9, "tags": ["new"]},
    ]
    write_snapshot(log, 3)
    assert verify(log).faults == ()
    with pytest.raises(StateSchemaChanged, match="'total' of 'Counts' was given up by an earlier start"):
        beside.on_ferryman(of(First))


class Failing(Second):
    def process(self, key: Any, row: Any) -> Iterator[Any]:
        raise RuntimeError("not ready yet")


def test_a_new_declaration_that_fails_in_its_first_epoch_leaves_the_old_one_in_force(
    spark: Any, tmp_path: Path
) -> None:
    beside = Beside(spark, tmp_path, "sensor string, value long")
    beside.give([("a", 1)])
    beside.on_ferryman(of(First))
    beside.give([("a", 5)])

    with pytest.raises(OperatorFailed, match="not ready yet"):
        beside.on_ferryman(of(Failing))

    assert beside.on_ferryman(of(First)) == [("a", "2 6")]
    assert verify(Checkpoint(LocalDirectory(tmp_path / "ferried"))).faults == ()


class Overtaken(MemorySink):
    """A sink that is asked whose rows come: then a run that is alive commits its first epoch."""

    def __init__(self, first_epoch: Callable[[], None]) -> None:
        super().__init__()
        self._first_epoch = first_epoch

    def claim(self, job_id: str) -> int:
        self._first_epoch()
        return super().claim(job_id)


def test_a_card_that_the_run_before_writes_while_it_is_taken_over_is_judged_too(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, value long")
    beside.give([("a", 1)])
    beside.on_ferryman(of(First))
    log = Checkpoint(LocalDirectory(tmp_path / "ferried"))
    card = log.job_card()
    more = replace(card, tables={**card.tables, "Counts.more": card.tables["Counts"]})

    stream = beside.watched(Ferry(spark, tmp_path / "ferried"), of(First))
    with pytest.raises(StateSchemaChanged, match=r"holds 'Counts\.more', and operator 'Counts' no longer declares"):
        stream.write(Overtaken(lambda: log.create(more))).start("ferried", trigger={"availableNow": True}).wait()

    assert log.job_card() == more


class Kept(StatefulProcessor):
    schema = "n int"

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", self.schema)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self.seen.get()
        after = (sum(row.value for row in rows) + (before[0] if before else 0),)
        if before is not None and len(before) > 1:
            after = (*after, "more")
        self.seen.update(after)
        yield Row(sensor=key[0], found=str((tuple(before) if before else None, after)))

    def close(self) -> None:
        pass


class Widened(Kept):
    schema = "n long, note string"


def test_a_processor_adds_a_field_and_widens_another(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, value long")
    beside.give([("a", 1)])

    def build(processor: Any) -> Any:
        return lambda stream: stream.groupBy("sensor").transformWithState(
            processor, "sensor string, found string", "Update", "None", name="Kept"
        )

    beside.on_ferryman(build(Kept()))
    beside.give([("a", 2)])

    assert beside.on_ferryman(build(Widened())) == [("a", "((1, None), (3, 'more'))")]
    with pytest.raises(StateSchemaChanged, match="state 'seen'"):
        beside.on_ferryman(build(Kept()))


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.int64(), pa.int8(), False),
        (pa.int64(), pa.float64(), False),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 3), True),
        (pa.decimal128(10, 2), pa.decimal128(10, 3), False),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16()), ("b", pa.string())]), True),
        (pa.struct([("a", pa.int8()), ("b", pa.string())]), pa.struct([("a", pa.int8())]), False),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), True),
        (pa.map_(pa.int32(), pa.list_(pa.float32())), pa.map_(pa.int64(), pa.list_(pa.float64())), True),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int32()), False),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.int64(), pa.int64()), False),
        (pa.string(), pa.int64(), False),
    ],
)
def test_what_widens_and_what_does_not(old: pa.DataType, new: pa.DataType, fits: bool) -> None:
    assert widens(old, new) is fits


def test_nested_values_are_fitted_in_slices_too() -> None:
    old = pa.array([[{"a": 1}], None, [], [{"a": 2}, {"a": 3}]], pa.list_(pa.struct([("a", pa.int8())])))
    new = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))

    assert fit_array(old.slice(1), new).to_pylist() == [None, [], [{"a": 2, "b": None}, {"a": 3, "b": None}]]
    assert Evolution().fit(pa.table({"x": old}), pa.schema([("x", new)])).num_rows == 4


@pytest.mark.parametrize("begin", [0, 1, 2])
def test_maps_are_fitted_in_slices_too(begin: int) -> None:
    rows = [[("a", {"x": 1})], None, [], [("b", {"x": 2}), ("c", None)]]
    old = pa.array(rows, pa.map_(pa.string(), pa.struct([("x", pa.int8())])))
    new = pa.map_(pa.string(), pa.struct([("x", pa.int64()), ("y", pa.string())]))
    fitted = [[("a", {"x": 1, "y": None})], None, [], [("b", {"x": 2, "y": None}), ("c", None)]]

    found = fit_array(old.slice(begin), new)
    found.validate(full=True)
    assert found.type == new
    assert found.to_pylist() == fitted[begin:]
