"""Processors on pandas frames: what they are handed, what they may give."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from processor.kind import Kind, Telling, at, shown

D = decimal.Decimal
NEW_YORK = {"spark.sql.session.timeZone": "America/New_York"}


def described(frame: pd.DataFrame) -> str:
    rows = [shown(row) for row in frame.itertuples(index=False, name=None)]
    return f"{dict(frame.dtypes.astype(str))} {frame.index!r} {rows}"


def told(*what: str) -> pd.DataFrame:
    return pd.DataFrame({"what": list(what)})


class Handed(Telling):
    """Say what comes in, with all its types."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        frames = list(rows)
        self.seen.update(((self.seen.get() or (0,))[0] + sum(map(len, frames)),))
        yield told(f"{shown(key)} {self.seen.get()}", *map(described, frames))


class Means(Telling):
    """Running figures by pandas, kept as numpy's numbers."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long, total double, last timestamp")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        n, total, _ = self.total.get() or (0, 0.0, None)
        whole = pd.concat(rows)
        self.total.update((n + whole["f"].count(), total + whole["f"].sum(), whole["t"].max()))
        n, total, last = self.total.get()
        yield pd.DataFrame({"k": [key[0]], "n": [n], "mean": [total / n if n else None], "last": [last]})


class Due(Telling):
    """Timers, with keys of several columns."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        self.handle.registerTimer(1000)
        yield told(f"{shown(key)} {sum(map(len, rows))} {timerValues.getCurrentWatermarkInMs()}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        yield told(f"due {shown(key)} {expiredTimerInfo.getExpiryTimeInMs()}")


class Begun(Telling):
    def init(self, handle: Any) -> None:
        self.list = handle.getListState("list", "what string")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.list.appendValue((f"{shown(key)} {described(initialState)}",))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        yield told(f"{shown(key)} {sum(map(len, rows))} {sorted(self.list.get())}")


def initial(spark: Any) -> Any:
    return spark.createDataFrame([("a", 1), ("a", None), ("z", 3)], "name string, n int").groupBy("name")


def giving(*frames: pd.DataFrame) -> type[Telling]:
    """Give some frames for every key."""

    class Giving(Telling):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            yield from frames

    return Giving


def column(*values: Any, dtype: Any = None) -> pd.DataFrame:
    return pd.DataFrame({"v": pd.Series(list(values), dtype=dtype)})


TYPES = (
    "i int, b boolean, f double, s string, y byte, d date, t timestamp, e decimal(5,1), x binary, ar array<int>, "
    "m map<string,int>, st struct<a:int,b:string>"
)
DAY = datetime.date(2024, 1, 1)
# A float of 32 bits could not hold it.
BIG = 2**30 + 1
NULLS = [
    [
        ("a", 1, True, 1.5, "x", 1, DAY, at(0), D("1.5"), b"x", [1, None], {"a": BIG}, {"a": BIG, "b": None}),
        ("a", 2, False, 2.5, "y", 2, DAY, at(0), D("1.5"), b"x", [], {}, {"a": 1, "b": None}),
        ("b", *(None,) * 12),
        ("c", 3, True, 3.5, "x", 1, DAY, at(0), D("1.5"), b"x", [1], {"a": None}, None),
        ("d", None, False, math.nan, "", -1, None, None, None, b"", None, None, {"a": None, "b": "q"}),
    ],
    [("a", 1, True, 1.5, "x", 1, DAY, at(0), D("1.5"), b"x", [1, 2], {"a": 1}, {"a": 1, "b": None})],
    [("b", 1, None, 1.5, "x", 1, None, None, D("1.5"), b"x", [1, 2], None, None), ("c", *(None,) * 12)],
]  # fmt: skip
FIGURES = [[("a", 1.5, at(0)), ("a", None, at(5)), ("b", 2.0, at(9))], [("a", 0.25, at(3)), ("b", None, at(9))]]
KEYS = "k int, u timestamp, x binary, t timestamp"
WHOLE = [
    column(1, 2), column(1.0, np.nan), column(1, None, dtype="Int64"), column(1, None, dtype=object), column(True),
    column("12"), column(2**62 + 1), column(None),
]  # fmt: skip
TIMES = [
    column(pd.Timestamp("2024-07-01"), None), column(pd.Timestamp("2024-01-01", tz="Asia/Tokyo")),
    # An hour that comes twice, and objects of Python's own.
    column(pd.Timestamp("2024-11-03 01:30")), column(datetime.datetime(2024, 1, 1), dtype=object), column(pd.NaT, None),
]  # fmt: skip
PLACES = [
    pd.DataFrame([[1, "by place"]]), pd.DataFrame([[2, "with more", 0]]),
    pd.DataFrame({"b": ["by name"], "a": [3], "c": [0]}),
    pd.DataFrame({"a": [4, 5], "b": ["x", "y"]})[::-1], pd.DataFrame({"a": [6.0], "b": [None]}),
]  # fmt: skip
NAMES = "k string, `a b` long, _x long, class long, `ü` long, count long"

KINDS = [
    Kind("frames with nulls", f"k string, {TYPES}", NULLS, Handed, how="pandas"),
    Kind("frames in another zone", f"k string, {TYPES}", NULLS, Handed, how="pandas", conf=NEW_YORK),
    Kind("frames and their names", NAMES, [[("a", 1, 2, 3, 4, 5)]], Handed, how="pandas"),
    Kind(
        "means", "k string, f double, t timestamp", FIGURES, Means, how="pandas",
        output="k string, n long, mean double, last timestamp", conf=NEW_YORK,
    ),
    Kind(
        "frames and timers", KEYS,
        [[(1, at(5), b"x", at(0)), (2, at(6), None, at(0))], [(1, at(5), b"x", at(99))], [(3, at(1), b"", at(200))]],
        Due, key=("k", "u", "x"), how="pandas", time="EventTime", watermark=("t", "1 second"),
    ),
    Kind(
        "frames of an initial state", "k string, n long", [[("a", 1), ("b", 1)], [("z", 1)]], Begun, how="pandas",
        initial=initial,
    ),
    Kind("whole numbers of many types", "k string", [[("a",)]], giving(*WHOLE), how="pandas", output="v long"),
    Kind("times of many kinds", "k string", [[("a",)]], giving(*TIMES), how="pandas", output="v timestamp",
         conf=NEW_YORK),
    Kind("times in arrays", "k string", [[("a",)]],
         giving(column([pd.Timestamp("2024-01-01"), None], [at(0)], [datetime.datetime(2024, 1, 1)])),
         how="pandas", output="v array<timestamp>", conf=NEW_YORK),
    Kind("times in maps and structs", "k string", [[("a",)]],
         giving(pd.DataFrame({"m": [{"x": pd.Timestamp("2024-01-01")}], "s": [{"t": pd.Timestamp("2024-07-01")}]})),
         how="pandas", output="m map<string,timestamp>, s struct<t timestamp, n int>", conf=NEW_YORK),
    Kind("columns by place and by name", "k string", [[("a",)]], giving(*PLACES), how="pandas",
         output="a long, b string"),
    Kind("columns by place alone", "k string", [[("a",)]], giving(pd.DataFrame({"b": ["x"], "a": ["y"], "c": ["z"]})),
         how="pandas", output="a string, b string",
         conf={"spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": "false"}),
]  # fmt: skip
