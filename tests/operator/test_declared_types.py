"""Declared types: Python's, dataclasses, Arrow's and DDL, at any depth, come back as they were."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass, field
from typing import Any, Optional

import pyarrow as pa
import pytest

from ferryman._operator.declare.ddl import parse
from ferryman._operator.declare.declared_types import arrow_type, dumper, loader
from ferryman._spark.plan.schema import to_arrow
from ferryman._state.earlier_columns import fit_array
from ferryman.errors import InvalidConfiguration


@dataclass
class Point:
    x: float
    tags: set[str]


@dataclass
class Path:
    name: str
    points: list[Point]
    by_name: dict[str, list[Point]]
    end: Optional[Point] = None  # noqa: UP045  both ways of writing it must do


PATH = Path("p", [Point(1.0, {"b", "a"})], {"k": [Point(2.0, set())]}, None)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 5),
        (bytes, b"x"),
        (datetime.date, datetime.date(2024, 1, 2)),
        (decimal.Decimal, decimal.Decimal("1.5")),
        (list[list[int]], [[1], [], [2, 3]]),
        (set[int], {3, 1, 2}),
        (frozenset[str], frozenset({"a"})),
        (dict[str, dict[int, bool]], {"a": {1: True}}),
        (Path, PATH),
        (dict[str, Path], {"one": PATH}),
        (Path | None, None),
        (pa.list_(pa.int8()), [1, 2]),
        (pa.map_(pa.string(), pa.int8()), {"a": 1}),
        ("array<struct<a: int, b: string>>", [{"a": 1, "b": "x"}]),
        ("map<string, array<double>>", {"a": [1.0]}),
    ],
)
def test_a_value_comes_back_as_it_was(kind: Any, value: Any) -> None:
    load, dump = loader(kind), dumper(kind)
    stored = pa.array([dump(value) if dump else value, None], arrow_type(kind)).to_pylist()
    assert [load(item) if load else item for item in stored] == [value, None]


def test_a_set_is_stored_in_order() -> None:
    dump = dumper(set[str])
    assert dump is not None
    assert dump({"b", "c", "a"}) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [object, dict, "array<nope>", "int int", list[object]])
def test_a_type_that_cannot_be_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidConfiguration):
        arrow_type(kind)


@pytest.mark.parametrize(
    "text",
    [
        "a int",
        "a: int, b: string",
        "a INT NOT NULL, `b c` string COMMENT 'x, y'",
        "a tinyint, b smallint, c bigint, d float, e double, f boolean, g binary, h date",
        "a timestamp, b timestamp_ntz, c decimal, d decimal(20,3)",
        "a array<array<int>>, b map<string,struct<x:int,y:array<string>>>",
        "a struct<b: struct<c: map<int, decimal(5,1)>>>",
    ],
)
def test_ddl_is_read_as_spark_reads_it(spark: Any, text: str) -> None:
    from pyspark.sql.types import StructType

    ours = parse(text)
    theirs = to_arrow(StructType.fromDDL(text))
    assert ours.names == theirs.names
    assert [str(dtype) for dtype in ours.types] == [str(dtype) for dtype in theirs.types]


@pytest.mark.parametrize("text", ["", "a", "a nope", "a array<int", "a int b int", "a decimal(x)"])
def test_what_is_no_ddl_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a schema|has no columns|invalid literal"):
        parse(text)


@dataclass
class Before:
    x: float


@dataclass
class After:
    x: float
    n: int = 7
    tags: list[str] = field(default_factory=list)
    end: Optional[int] = 3  # noqa: UP045  both ways of writing it must do


def test_a_field_that_a_dataclass_gains_has_its_default() -> None:
    dump, load = dumper(Before), loader(After)
    assert dump is not None
    assert load is not None
    kept = fit_array(pa.array([dump(Before(1.5)), None], arrow_type(Before)), arrow_type(After))
    found = [load(item) for item in kept.to_pylist()]
    assert found == [After(1.5, 7, [], None), None]
    assert found[0].tags is not load(kept.to_pylist()[0]).tags
