"""Frames between Arrow and a processor: what is handed out is the key's own, what is given is taken as it is then."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ferryman._operator.run.runner import Given
from ferryman._spark.processor.input_frames import cut, to_frame
from ferryman._spark.processor.output_frames import Frames, _blocks
from ferryman.errors import OutputMismatch

SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64()), ("total", pa.float64())])
EMPTY = np.empty(0, np.int64)
GIVEN = Given(
    operator="op",
    epoch=3,
    rows=SCHEMA.empty_table(),
    index=EMPTY,
    keys=[],
    present=np.empty(0, np.bool_),
    state=SCHEMA.empty_table(),
)


def whose(number: int) -> str:
    return f"for key {number} "


def taken(*frames: Any, schema: pa.Schema = SCHEMA, timezone: str = "UTC") -> list[tuple[Any, ...]]:
    made = Frames(schema, GIVEN, timezone, whose)
    made.extend(frames)
    table = made.table()
    assert table.schema == schema
    return [tuple(row.values()) for row in table.to_pylist()]


def test_ten_thousand_small_frames_give_their_rows_in_order() -> None:
    frames = [pd.DataFrame({"key": [i, i], "n": [1, 2], "total": [0.5, i / 4]}) for i in range(10_000)]
    assert taken(*frames) == [row for i in range(10_000) for row in ((i, 1, 0.5), (i, 2, i / 4))]


def test_frames_of_any_length_follow_each_other() -> None:
    lengths = [1, 0, 9000, 3, 5000, 0, 4096, 1]
    frames = [pd.DataFrame({"key": i, "n": np.arange(n), "total": 0.0}) for i, n in enumerate(lengths)]
    assert taken(*frames) == [(i, n, 0.0) for i, length in enumerate(lengths) for n in range(length)]


def test_a_frame_that_is_used_again_gives_what_it_held_each_time() -> None:
    frame = pd.DataFrame({"key": [1], "n": [1], "total": [1.0]})
    own_type = frame.astype({"n": "Int64"})

    def again() -> Any:
        for used in (frame, own_type):
            for i in range(3):
                used.loc[0, "n"] = i
                yield used

    made = Frames(SCHEMA, GIVEN, "UTC", whose)
    made.extend(again())
    assert made.table().column("n").to_pylist() == [0, 1, 2, 0, 1, 2]


def test_frames_may_differ_in_types_and_in_the_order_of_columns() -> None:
    assert taken(
        pd.DataFrame({"key": [1], "n": [2], "total": [3.0]}),
        pd.DataFrame({"total": [3], "n": [2.0], "key": [2], "more": ["x"]}),
        pd.DataFrame({"key": [3, 4], "n": [2.0, None], "total": [None, 1.0]}),
        pd.DataFrame({"key": [5], "n": [None], "total": [None]}),
        pd.DataFrame({0: [6], 1: [7], 2: [8.0], 3: ["more"]}),
        pd.DataFrame({"key": pd.array([7, 8], "Int64"), "n": pd.array([None, 1], "Int32"), "total": [1.0, 2.0]}),
        pd.DataFrame({"key": [9], "n": [2], "total": [3.0]}),
    ) == [
        (1, 2, 3.0), (2, 2, 3.0), (3, 2, None), (4, None, 1.0), (5, None, None), (6, 7, 8.0), (7, None, 1.0),
        (8, 1, 2.0), (9, 2, 3.0),
    ]  # fmt: skip


def test_times_are_of_the_sessions_clock_and_objects_are_as_declared() -> None:
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("name", pa.string()),
            ("list", pa.list_(pa.int32())),
            ("took", pa.duration("us")),
        ]
    )
    naive = pd.Timestamp("2024-01-15 12:00")
    frames = [
        pd.DataFrame({"at": [at], "name": [name], "list": [[1, 2]], "took": [pd.Timedelta(seconds=1)]})
        for at, name in [(naive, "a"), (naive.tz_localize("Asia/Tokyo"), "b"), (pd.NaT, None), (naive, "c")]
    ]
    frames[1]["name"] = frames[1]["name"].astype("category")
    noon = datetime.datetime(2024, 1, 15, tzinfo=datetime.timezone.utc)
    hour, rest = datetime.timedelta(hours=1), ([1, 2], datetime.timedelta(seconds=1))
    assert taken(*frames, schema=schema, timezone="Europe/Berlin") == [
        (noon + 11 * hour, "a", *rest), (noon + 3 * hour, "b", *rest), (None, None, *rest),
        (noon + 11 * hour, "c", *rest),
    ]  # fmt: skip


def test_times_inside_of_others_are_of_the_sessions_clock_too() -> None:
    at = pa.timestamp("us", "UTC")
    schema = pa.schema(
        [
            ("list", pa.list_(at)),
            ("map", pa.map_(pa.string(), at)),
            ("struct", pa.struct([("t", at), ("n", pa.int32())])),
        ]
    )
    naive = pd.Timestamp("2024-01-15 12:00")
    given = pd.DataFrame(
        {
            "list": [[naive, None, naive.tz_localize("UTC")], np.array(["2024-01-15T12:00"], "datetime64[us]"), None],
            "map": [{"a": naive}, {}, {"b": None}],
            "struct": [{"t": naive.to_pydatetime(), "n": 1}, {"n": 2}, None],
        }
    )
    berlin, utc = (datetime.datetime(2024, 1, 15, hour, tzinfo=datetime.timezone.utc) for hour in (11, 12))
    assert taken(given, schema=schema, timezone="Europe/Berlin") == [
        ([berlin, None, utc], [("a", berlin)], {"t": berlin, "n": 1}),
        ([berlin], [], {"t": None, "n": 2}),
        (None, [("b", None)], None),
    ]


def test_an_hour_that_comes_twice_is_the_second_and_what_is_finer_than_spark_is_cut_off() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    frames = [
        pd.DataFrame({"at": [pd.Timestamp(time)]}) for time in ("2024-10-27 02:30", "2024-01-15 12:00:00.123456789")
    ]
    utc = datetime.timezone.utc
    assert taken(*frames, schema=schema, timezone="Europe/Berlin") == [
        (datetime.datetime(2024, 10, 27, 1, 30, tzinfo=utc),),
        (datetime.datetime(2024, 1, 15, 11, 0, 0, 123456, tzinfo=utc),),
    ]


def test_nothing_given_is_an_empty_table() -> None:
    assert taken() == taken(pd.DataFrame(), pd.DataFrame({"key": []})) == []


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (pd.DataFrame({"key": [1], "m": [1], "total": [1.0]}), r"a frame with the columns \['key', 'm', 'total'\]"),
        (pd.DataFrame({0: [1], 1: [2]}), r"a frame with the columns \[0, 1\]"),
        (pd.DataFrame({"key": [1], "n": [1]}).astype("Int64"), r"a frame with the columns \['key', 'n'\]"),
        (("a", 1), "it gave a tuple"),
        (None, "it gave a NoneType"),
    ],
)
def test_what_is_no_frame_of_the_declared_columns_is_refused(odd: Any, said: str) -> None:
    good = pd.DataFrame({"key": [1], "n": [1], "total": [1.0]})
    with pytest.raises(OutputMismatch, match=rf"'op', epoch 3: .*{said}.*columns key, n, total"):
        taken(good, odd, good)


@pytest.mark.parametrize("own_type", [False, True])
def test_a_value_that_does_not_fit_is_named_with_its_row(own_type: bool) -> None:
    good = [pd.DataFrame({"key": [i], "n": [1], "total": [1.0]}) for i in range(5000)]
    odd = pd.DataFrame({"key": [1, 1], "n": [1, "many"], "total": [1.0, 1.0]})
    if own_type:
        odd = odd.astype({"key": "Int64"})
    with pytest.raises(
        OutputMismatch, match="output row for key 5001: column 'n' is declared as int64, and got 'many'"
    ):
        taken(*good, odd, *good)


@pytest.mark.parametrize("quick", [True, False], ids=["by blocks", "by public methods"])
def test_each_key_gets_a_frame_of_its_own_rows(quick: bool) -> None:
    table = pa.table(
        {
            "key": [1, 1, 2, 2, 3, 3],
            "value": [0.5, None, 1.5, 2.5, 3.5, 4.5],
            "name": ["a", None, "b", "c", "d", "e"],
            "at": pa.array([0] * 6, pa.timestamp("us", "UTC")),
        }
    )
    whole = to_frame(table, "Asia/Tokyo")
    wanted = [whole.iloc[begin:end].reset_index(drop=True) for begin, end in ((0, 2), (2, 4), (4, 6))]
    given: Any = whole if quick else SimpleNamespace(iloc=whole.iloc)
    found = []
    for frame in cut(given, [2, 2, 2]):
        found.append(frame.copy())
        # What one key does to its frame is nothing to the next.
        frame.columns.name, frame.index.name = "column", "row"
        frame.loc[0, "value"] = -1.0
        frame["more"] = 1
        frame.columns = list("vwxyz")
        frame.index = frame.index + 7
    for one, other in zip(found, wanted, strict=True):
        pd.testing.assert_frame_equal(one, other, check_names=True)
        assert isinstance(one.index, pd.RangeIndex)


def test_a_pandas_that_keeps_no_blocks_is_no_error() -> None:
    assert _blocks(SimpleNamespace(_mgr=SimpleNamespace())) is None  # type: ignore[arg-type]
    assert _blocks(pd.DataFrame({"n": [1]})) is not None
