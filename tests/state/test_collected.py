"""Aggregates that keep values, or one row's: against a plain Python model, however the rows are split."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferryman import aggregates as a
from ferryman._model.errors import InvalidConfiguration
from ferryman._state.aggregates import compile_aggregates

KEYS = 3
DECLARED = {
    "listed": a.collect_list("v"),
    "once": a.collect_set("v"),
    "distinct": a.count_distinct("v"),
    "dearest": a.top("v", 2),
    "cheapest": a.bottom("v", 2),
    "latest": a.max_by("v", "t"),
    "earliest": a.min_by("v", "t"),
}
TYPES = {
    pa.int64(): st.integers(-3, 3),
    pa.string(): st.sampled_from(["", "a", "b", "\u00e9"]),
    pa.float64(): st.floats(0, 1),
}


def expected(rows: list[tuple[int, Any, Any]]) -> dict[str, Any]:
    values = [value for _, value, _ in rows if value is not None]
    timed = [(value, time) for _, value, time in rows if time is not None]
    once = list(dict.fromkeys(values))
    return {
        "listed": values,
        "once": once,
        "distinct": len(once),
        "dearest": sorted(values, reverse=True)[:2],
        "cheapest": sorted(values)[:2],
        "latest": max(timed, key=lambda pair: pair[1])[0] if timed else None,
        "earliest": min(timed, key=lambda pair: pair[1])[0] if timed else None,
    }


@pytest.mark.parametrize("type", list(TYPES), ids=str)
@given(data=st.data())
def test_any_split_gives_what_python_gives(type: pa.DataType, data: st.DataObject) -> None:
    row = st.tuples(st.integers(0, KEYS - 1), st.none() | TYPES[type], st.none() | st.integers(0, 4))
    rows = data.draw(st.lists(row, max_size=30))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    declared = DECLARED if pa.types.is_string(type) else {**DECLARED, "middle": a.median("v")}
    aggregation = compile_aggregates(declared, pa.schema([("v", type), ("t", pa.int64())]))
    state = pa.table([pa.nulls(KEYS, kind) for kind in aggregation.state.types], schema=aggregation.state)
    for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        some = rows[begin:end]
        table = pa.table(
            {"v": pa.array([v for _, v, _ in some], type), "t": pa.array([t for _, _, t in some], pa.int64())}
        )
        partial = aggregation.partial(table, np.array([key for key, _, _ in some], np.int64), KEYS)
        state = aggregation.merge(state, partial, np.arange(KEYS), KEYS)
    for key, found in enumerate(aggregation.result(state).to_pylist()):
        mine = [each for each in rows if each[0] == key]
        middle = found.pop("middle", None)
        assert found == expected(mine)
        if "middle" in declared:
            values = [value for _, value, _ in mine if value is not None]
            assert middle == (pytest.approx(np.percentile(values, 50)) if values else None)


def test_a_percentile_of_infinite_values_is_one_of_them() -> None:
    aggregation = compile_aggregates({"p": a.percentile("v", 0.9)}, pa.schema([("v", pa.float64())]))
    rows = pa.table({"v": [1.0, math.inf, math.inf]})
    assert aggregation.result(aggregation.partial(rows, np.zeros(3, np.int64), 1)).to_pylist() == [{"p": math.inf}]


def test_what_cannot_be_is_refused_all_at_once() -> None:
    declared = {
        "x": a.top("v", 0),
        "y": a.percentile("v", 2),
        "z": a.max_by("v", "nothing"),
        "w": a.collect_list("nested"),
    }
    with pytest.raises(InvalidConfiguration) as refused:
        compile_aggregates(declared, pa.schema([("v", pa.int64()), ("nested", pa.list_(pa.int64()))]))
    for why in ("top(n=0)", "part=2", "max_by('nothing')", "collect_list('nested')"):
        assert why in str(refused.value)
