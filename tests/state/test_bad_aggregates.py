"""Aggregates that cannot be declared: every fault is found, and says what to do."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ferryman import aggregates as declare
from ferryman._model.errors import InvalidConfiguration
from ferryman._state.aggregates import compile_aggregates

OTHERS = ("sum", "avg", "variance", "stddev", "min", "max", "first", "last")


def test_every_fault_of_a_declaration_is_listed_at_once() -> None:
    schema = pa.schema(
        [
            ("money", pa.decimal128(10, 2)),
            ("tags", pa.list_(pa.string())),
            ("name", pa.string()),
            ("flag", pa.bool_()),
            ("big", pa.uint64()),
        ]
    )
    declared: dict[str, Any] = {
        "a": declare.sum("money"),
        "b": declare.max("tags"),
        "c": declare.avg("name"),
        "d": declare.sum("flag"),
        "e": declare.min("nowhere"),
        "f": declare.Aggregate("median", "name"),
        "g": declare.count,
        "h": declare.approx_distinct("name", lg_k=40),
        "i": declare.sum("big"),
        "j": declare.Aggregate("first"),
        "k": declare.count("tags"),
        "m": declare.min("money"),
    }
    with pytest.raises(InvalidConfiguration) as raised:
        compile_aggregates(declared, schema)
    faults = raised.value.message.splitlines()[1:]
    assert [fault.strip(" -")[0] for fault in faults] == list("abcdefghijm")
    text = raised.value.message
    assert "cast the column to double" in text
    assert "cast the column to int" in text
    assert "money, tags, name, flag, big" in text
    assert "from 7 to 21" in text


def test_two_aggregates_cannot_share_a_state_column() -> None:
    declared = {"v": declare.avg("v"), "v_sum": declare.sum("v")}
    with pytest.raises(InvalidConfiguration, match="v and v_sum would both keep a state column 'v_sum'; rename"):
        compile_aggregates(declared, pa.schema([("v", pa.float64())]))


def test_no_aggregate_and_an_ambiguous_column_are_faults() -> None:
    with pytest.raises(InvalidConfiguration, match="at least one"):
        compile_aggregates({}, pa.schema([]))
    with pytest.raises(InvalidConfiguration, match="2 columns of that name"):
        compile_aggregates({"n": declare.sum("v")}, pa.schema([("v", pa.int64()), ("v", pa.int64())]))


def test_decimals_are_refused_by_every_kind_but_count() -> None:
    schema = pa.schema([("v", pa.decimal128(5, 2))])
    for kind in (*OTHERS, "approx_distinct"):
        with pytest.raises(InvalidConfiguration, match="cast the column to double"):
            compile_aggregates({"x": getattr(declare, kind)("v")}, schema)
    counting = compile_aggregates({"x": declare.count("v")}, schema)
    rows = pa.table({"v": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2))})
    assert counting.partial(rows, np.zeros(2, np.int64), 1)["x"].to_pylist() == [1]
