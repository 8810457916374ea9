"""What a processor is handed is what Spark hands it: types, time zones, nulls; what it keeps comes back the same."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from typer.testing import CliRunner

from ferryman._cli import app

UTC = datetime.timezone.utc
INPUT = (
    "k string, i int, t timestamp, n timestamp_ntz, d date, e decimal(10,2), b binary, f float, a array<timestamp>, "
    "m map<string, timestamp>, s struct<t timestamp, l array<int>>"
)


def row(key: str | None, second: int) -> tuple[Any, ...]:
    at = datetime.datetime(2024, 7, 1, 12, 0, second, 123456, UTC)
    plain = at.replace(tzinfo=None)
    times = ([at], {"x": at}, {"t": at, "l": [1, 2]})
    return (key, second, at, plain, at.date(), decimal.Decimal("1.50"), b"x", 1.5, *times)


def nothing(key: str | None) -> tuple[Any, ...]:
    return (key, *(None,) * 10)


@pytest.fixture
def beside(spark: Any, tmp_path: Path) -> Iterator[Beside]:
    """Run where the session's zone is not that of the machine."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield Beside(spark, tmp_path, INPUT)
    spark.conf.set("spark.sql.session.timeZone", before)


def shown(value: Any) -> str:
    """Write a value with its type, as it is inside too."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shown(item)}' for key, item in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    return f"{type(value).__name__} {value!r}"


class Keeping(StatefulProcessor):
    """Keep times in every kind of state, and tell what comes in and what comes back."""

    def init(self, handle: Any) -> None:
        self.one = handle.getValueState("one", "t timestamp, n timestamp_ntz, d date, a array<struct<t timestamp>>")
        self.some = handle.getListState("some", "t timestamp")
        self.many = handle.getMapState("many", "t timestamp", "t timestamp, i int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for each in rows:
            yield Row(what=f"{shown(key)} {shown(tuple(each))}", t=each.t)
            if each.t is not None:
                self.one.update((each.t, each.n, each.d, [Row(t=time) for time in each.a]))
                self.some.appendValue((each.t,))
                self.many.updateValue((each.t,), (datetime.datetime(2024, 1, 1, tzinfo=UTC), each.i))
            yield from self.kept()

    def kept(self) -> Iterator[Row]:
        if self.one.exists():
            yield Row(what=f"one {shown(self.one.get())}", t=self.one.get()[0])
        for time in self.some.get():
            yield Row(what=f"some {shown(time)} {self.many.containsKey(time)} {self.many.getValue(time)!r}", t=time[0])
        for key, value in self.many.iterator():
            yield Row(what=f"many {shown(key)} {shown(value)}", t=value[0])

    def close(self) -> None:
        pass


def test_rows_keys_and_state_have_the_types_and_zones_of_spark(beside: Beside) -> None:
    beside.give([row("a", 1), nothing("a")], [row("a", 1), row("b", 2)])

    def build(df: Any) -> Any:
        return df.groupBy("k", "t").transformWithState(Keeping(), "what string, t timestamp", "Update", "None")

    same(beside.on_ferryman(build), beside.on_spark(build))


class PandasKeeping(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.one = handle.getValueState("one", "t timestamp, n timestamp_ntz, a array<timestamp>, i long, f double")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        told: list[tuple[str, Any]] = []
        for frame in rows:
            told.append((f"{shown(key)} {dict(frame.dtypes.astype(str))}", None))
            told += [(f"{name} {shown(value)}", None) for name in frame.columns for value in frame[name]]
            first = frame.iloc[0]
            if not pd.isna(first.t):
                # What pandas and numpy have, as it comes.
                self.one.update((first.t, first.n, list(first.a), frame["i"].sum(), frame["f"].mean()))
            if self.one.exists():
                told.append((f"one {shown(self.one.get())}", self.one.get()[0]))
        yield pd.DataFrame({"what": [what for what, _ in told], "t": [at for _, at in told]})

    def close(self) -> None:
        pass


def test_pandas_frames_and_their_keys_have_the_types_and_zones_of_spark(beside: Beside) -> None:
    beside.give([row("a", 1)], [nothing("a")], [row("a", 1), row("a", 1)])

    def build(df: Any) -> Any:
        return df.groupBy("k", "d").transformWithStateInPandas(
            PandasKeeping(), "what string, t timestamp", "Update", "None"
        )

    same(beside.on_ferryman(build), beside.on_spark(build))


def test_a_function_is_handed_what_spark_hands_it(beside: Beside) -> None:
    beside.give([row("a", 1)], [nothing("a")], [nothing("a")], [row("a", 1)])

    def tell(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        import pandas as pd

        told = [f"key {shown(key)}"]
        for frame in frames:
            told.append(str(dict(frame.dtypes.astype(str))))
            told += [f"{name} {shown(value)}" for name in frame.columns for value in frame[name]]
        if state.exists:
            told.append(f"state {shown(state.get)}")
        state.update((datetime.datetime(2024, 1, 1, 3, 4, 5), len(told)))
        yield pd.DataFrame({"what": told, "t": [datetime.datetime(2024, 1, 1, 3, 4, 5)] * len(told)})

    def build(df: Any) -> Any:
        return df.groupBy("t").applyInPandasWithState(
            tell, "what string, t timestamp", "t timestamp, n long", "update", "NoTimeout"
        )

    same(beside.on_ferryman(build), beside.on_spark(build))


class Timed(StatefulProcessor):
    """Count rows, tell map entries under keys with nulls, and call each key back."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.seen = handle.getValueState("seen", "n long")
        self.last = handle.getListState("last", "i int")
        self.by = handle.getMapState("by", "k string, i int, f float", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for each in rows:
            self.seen.update(((self.seen.get() or (0,))[0] + 1,))
            self.last.appendValue((each.i,))
            for entry in ((each.k, each.i, each.f), (None, None, None), (None, None, math.nan)):
                self.by.updateValue(entry, ((self.by.getValue(entry) or (0,))[0] + 1,))
            self.handle.registerTimer(1_000 + (each.i or 0))
        told = (self.seen.get(), list(self.last.get()), sorted(map(str, self.by.iterator())))
        yield Row(key=repr(key), told=f"{told} {list(self.handle.listTimers())}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(key=repr(key), told=f"due {expiredTimerInfo.getExpiryTimeInMs()} {self.seen.get()}")

    def close(self) -> None:
        pass


def test_rows_without_a_key_have_a_group_of_their_own(beside: Beside) -> None:
    batches = [row("a", 1), nothing("a"), nothing(None), row(None, 2)], [nothing(None), row(None, 2), nothing("a")]
    beside.give(*batches)

    def build(df: Any) -> Any:
        marked = df.withWatermark("t", "5 seconds")
        return marked.groupBy("k", "i").transformWithState(Timed(), "key string, told string", "Update", "EventTime")

    same(beside.on_ferryman(build), beside.on_spark(build))


def test_a_key_that_is_null_survives_restarts_snapshots_and_other_numbers_of_instances(beside: Beside) -> None:
    class Counting(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            self.seen.update(((self.seen.get() or (0,))[0] + len(list(rows)),))
            yield Row(i=key[0], n=self.seen.get()[0])

        def close(self) -> None:
            pass

    def build(df: Any) -> Any:
        return df.groupBy("i").transformWithState(Counting(), "i int, n long", "Update", "None")

    found = []
    for instances in (1, 3, 2):
        beside.give([row("a", 1), nothing("a")], [nothing("b")])
        found += beside.on_ferryman(build, instances=instances)
    assert sorted(n for i, n in found if i is None) == [1, 2, 3, 4, 5, 6]
    assert sorted(n for i, n in found if i == 1) == [1, 2, 3]

    result = CliRunner().invoke(app, ["verify", str(beside.place / "ferried")])
    assert result.exit_code == 0, result.output
