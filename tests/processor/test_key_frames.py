"""The frames of single keys: their types depend on where there are nulls, as on Spark."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ferryman._spark.processor.key_frames import key_frames
from ferryman._spark.processor.keys import input_keys

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
    assert [type(one) for one in first] == [np.int32, np.bool_, np.float32, str, datetime.date]
    assert [type(one) for one in second] == [np.float64, type(None), np.float32, type(None), type(None)]
    assert first == (7, True, 0.5, "a", day)
