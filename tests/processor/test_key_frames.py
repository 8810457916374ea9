"""The frames of single keys: their types depend on where there are nulls, as on Spark."""

from __future__ import annotations

import datetime
import time
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ferryman._spark.processor.input_frames import key_frames
from ferryman._spark.processor.processor_keys import input_keys

ROWS = pa.table(
    {
        "n": pa.array([2**53 + 1, None, 3, None, 5, None], pa.int64()),
        "b": pa.array([True, False, None, None, True, False]),
        "s": ["a", "b", "c", "d", "e", "f"],
    }
)
COUNTS = [1, 2, 1, 1, 1]


def types(frames: list[pd.DataFrame], name: str) -> list[str]:
    return [str(frame[name].dtype) for frame in frames]


def test_a_function_gets_floats_only_for_the_keys_that_have_nulls() -> None:
    frames = list(key_frames(ROWS, COUNTS, "UTC", group_state=True))
    assert types(frames, "n") == ["int64", "float64", "float64", "int64", "float64"]
    assert types(frames, "b") == ["bool", "object", "object", "bool", "bool"]
    # It is no float, and would be another as one.
    assert frames[0]["n"].tolist() == [2**53 + 1]
    assert [frame["s"].tolist() for frame in frames] == [["a"], ["b", "c"], ["d"], ["e"], ["f"]]
    assert all(isinstance(frame.index, pd.RangeIndex) for frame in frames)


def test_a_processor_gets_floats_for_all_and_booleans_for_the_keys_without_nulls() -> None:
    frames = list(key_frames(ROWS, COUNTS, "UTC", group_state=False))
    assert types(frames, "n") == ["float64"] * 5
    assert types(frames, "b") == ["bool", "object", "object", "bool", "bool"]
    assert [frame["s"].tolist() for frame in frames] == [["a"], ["b", "c"], ["d"], ["e"], ["f"]]


@pytest.mark.parametrize("group_state", [True, False])
def test_whole_numbers_inside_of_others_stay_whole_beside_nulls(group_state: bool) -> None:
    big = 2**53 + 1
    kind = pa.struct([("a", pa.int64())])
    rows = pa.table(
        {
            "list": pa.array([[big, None], [big]], pa.list_(pa.int64())),
            "map": pa.array([[("x", big), ("y", None)], []], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array([{"a": big}, {"a": None}], kind),
        }
    )
    first, second = key_frames(rows, [1, 1], "UTC", group_state=group_state)
    assert first["list"][0].tolist() == [big, None]
    assert second["list"][0].tolist() == [big]
    assert first["map"][0] == {"x": big, "y": None}
    assert first["struct"][0] == {"a": big}
    assert type(first["struct"][0]["a"]) is int
    assert str(second["list"][0].dtype) == ("int64" if group_state else "object")


LIST, PAIRS = pa.list_(pa.int64()), pa.map_(pa.string(), pa.list_(pa.bool_()))
DEEP = pa.struct([("x", pa.list_(pa.list_(pa.int64()))), ("y", pa.int64())])


def test_a_null_in_an_array_is_a_matter_of_its_own_key() -> None:
    rows = pa.table(
        {
            "n": pa.array([1, None, 3, 4, 5, 6, 7], pa.int64()),
            "list": pa.array([[1], [2], [3, None], None, [], [6], [7]], LIST),
            "map": pa.array(
                [[], [("a", [True])], [("a", [False])], None, [("a", None)], [("b", [True, None])], []], PAIRS
            ),
            "deep": pa.array([{"x": [[1]]}, {"x": []}, None, {"x": [[4], [None]]}, {}, {}, {"x": [[7], None]}], DEEP),
        }
    ).slice(1)
    counts = [1, 1, 1, 2, 1]
    frames = list(key_frames(rows, counts, "UTC", group_state=True))
    # As when each is converted for itself.
    begins = np.cumsum([0, *counts[:-1]]).tolist()
    for frame, begin, count in zip(frames, begins, counts, strict=True):
        (alone,) = key_frames(rows.slice(begin, count), [count], "UTC", group_state=True)
        assert [str(dtype) for dtype in frame.dtypes] == [str(dtype) for dtype in alone.dtypes]
        assert repr(frame.to_dict("list")) == repr(alone.to_dict("list"))
    assert [str(frame["list"].iloc[0].dtype) for frame in (frames[0], frames[1], frames[4])] == [
        "int64",
        "object",
        "int64",
    ]
    assert str(frames[1]["map"].iloc[0]["a"].dtype) == "bool"
    assert str(frames[2]["deep"].iloc[0]["x"][1].dtype) == "object"


def test_one_null_in_one_array_costs_the_other_keys_nothing() -> None:
    keys = 3000
    even = pa.table({"list": pa.array([[1, 2]] * keys, LIST), "n": range(keys)})
    uneven = even.set_column(0, "list", pa.array([[1, None], *[[1, 2]] * (keys - 1)], LIST))

    def taken(rows: pa.Table) -> float:
        began = time.process_time()
        assert sum(map(len, key_frames(rows, [1] * keys, "UTC", group_state=True))) == keys
        return time.process_time() - began

    # Converting every key alone takes more than ten times as long.
    assert min(taken(uneven) for _ in range(3)) < 4 * min(taken(even) for _ in range(3))


def test_a_functions_key_has_numpys_own_numbers() -> None:
    day = datetime.date(2024, 1, 1)
    columns: list[Any] = [
        pa.array([7, None], pa.int32()),
        pa.array([True, None]),
        pa.array([0.5, None], pa.float32()),
        pa.array(["a", None]),
        pa.array([day, None]),
    ]
    first, second = input_keys(columns, "UTC", pandas=True, numpy=True)
    assert [type(value) for value in first] == [np.int32, np.bool_, np.float32, str, datetime.date]
    assert [type(value) for value in second] == [np.float64, type(None), np.float32, type(None), type(None)]
    assert first == (7, True, 0.5, "a", day)
