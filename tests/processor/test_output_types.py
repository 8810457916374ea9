"""What a processor may give for an output column of a nested type or a decimal: all that Spark takes."""

from __future__ import annotations

import decimal
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processor.beside import Beside, same
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman.errors import OutputMismatch
from ferryman.testing import Harness

INPUT = "k string, v long"
Point = namedtuple("Point", "x y")
OUTPUT = (
    "k string, s struct<x: long, y: string>, a array<struct<x: long, y: string>>, "
    "m map<string, struct<x: long, y: string>>, n struct<x: long, y: struct<z: long>>, p map<string, long>"
)
GIVEN = [
    ((1, "b"), [(1, "b"), (2, None)], {"a": (1, "b")}, (1, (2,)), [("a", 1)]),
    (Point(1, "b"), [Point(2, "c"), (3, "d")], {"a": Point(1, "b")}, Row(x=1, y=(2,)), {"a": 1}),
    (Row(y="b", x=1), [{"x": 1}, Row(x=2, y="c")], {"a": {"y": "b"}}, {"x": 1, "y": {"z": 3}}, None),
]


class Giving(StatefulProcessor):
    """Give each key what was meant for it: Spark takes one way of writing a struct per call, not several."""

    def __init__(self, given: list[Any]) -> None:
        self.given = given

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Any]:
        yield Row(k=key[0], **dict(zip("samnp", self.given[next(rows).v], strict=True)))

    def close(self) -> None:
        pass


class GivingFrames(Giving):
    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        given = self.given[int(next(rows)["v"].iloc[0])]
        yield pd.DataFrame([(key[0], *given)], columns=["k", *"samnp"])


@pytest.mark.parametrize("pandas", [False, True], ids=["rows", "pandas"])
def test_a_struct_may_be_given_as_a_tuple(spark: Any, tmp_path: Path, pandas: bool) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([("a", 0), ("b", 1), ("c", 2)])
    # With pandas Spark takes dicts alone for a map, and a row by position.
    given = [(*values[:4], dict(values[4]) if values[4] else None) for values in GIVEN] if pandas else GIVEN
    given = (
        [(Row(x=1, y="b"), *values[1:]) if isinstance(values[0], Row) else values for values in given]
        if pandas
        else given
    )

    def build(df: Any) -> Any:
        if pandas:
            return df.groupBy("k").transformWithStateInPandas(GivingFrames(given), OUTPUT, "Update", "None")
        return df.groupBy("k").transformWithState(Giving(given), OUTPUT, "Update", "None")

    same(beside.on_ferryman(build), beside.on_spark(build))


class One(StatefulProcessor):
    """Give one value for column `s`, in a row or a frame."""

    def __init__(self, value: Any, *, pandas: bool) -> None:
        self.value = value
        self.pandas = pandas

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        yield pd.DataFrame({"s": [self.value]}) if self.pandas else Row(s=self.value)

    def close(self) -> None:
        pass


def one(value: Any, kind: str, *, pandas: bool) -> Any:
    def build(df: Any) -> Any:
        grouped = df.groupBy("k")
        call = grouped.transformWithStateInPandas if pandas else grouped.transformWithState
        return call(One(value, pandas=pandas), f"s {kind}", "Update", "None")

    return build


@pytest.mark.parametrize("pandas", [False, True], ids=["rows", "pandas"])
@pytest.mark.parametrize("value", [(1,), (1, "a", "b"), ("a", 1), [1, "a"]])
def test_a_tuple_that_does_not_fit_its_struct_is_refused(value: Any, pandas: bool) -> None:
    with (
        Harness(one(value, "struct<x: long, y: string>", pandas=pandas), INPUT) as harness,
        pytest.raises(OutputMismatch, match=r"output row for key .*'a'.*: column 's' is declared as struct"),
    ):
        harness.epoch([("a", 1)])


@pytest.mark.parametrize("pandas", [False, True], ids=["rows", "pandas"])
@pytest.mark.parametrize(
    ("value", "kind"), [([None], "map<string,int>"), ([[("a", 1), None]], "array<map<string,int>>")]
)
def test_a_map_with_a_pair_that_is_null_is_refused_and_ends_no_worker(value: Any, kind: str, pandas: bool) -> None:
    with (
        Harness(one(value, kind, pandas=pandas), INPUT) as harness,
        pytest.raises(OutputMismatch, match=r"output row for key .*'a'.*: column 's' is declared as"),
    ):
        harness.epoch([("a", 1)])


def test_whole_numbers_make_decimals_as_with_sparks_setting(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, INPUT)
    beside.give([("a", 1)])
    build = one(7, "decimal(10,2)", pandas=True)
    setting = "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
    spark.conf.set(setting, "true")
    try:
        same(beside.on_ferryman(build), beside.on_spark(build))
    finally:
        spark.conf.unset(setting)
    # Without it Spark fails; a value that fits is no reason to.
    assert beside.on_ferryman(build, name="again") == [(decimal.Decimal("7.00"),)]
