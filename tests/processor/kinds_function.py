"""Functions of applyInPandasWithState: keys, frames, states, and each kind of timeout."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from processor.kind import Kind, at, shown
from processor.kinds_pandas import DAY, NAMES, NEW_YORK, NULLS, TYPES, D, described, told


def handed(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    """Say what comes in, with all its types."""
    listed = list(frames)
    state.update(((state.getOption or (0,))[0] + sum(map(len, listed)),))
    yield told(f"{shown(key)} {state.get} {state}", *map(described, listed))


def every_state(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 678)
    before = f"{state.exists} {shown(state.getOption)}"
    flat = (True, np.int8(1), np.int64(2**62), np.float32(0.5), D("1.50"), "ü", b"ab", DAY, pd.Timestamp(moment))
    if key[0] == "empty":
        state.update((None,) * 10)
    else:
        # No arrays and maps: Spark 4.3 cannot read its own schema of them here.
        state.update((*flat, (1, "x")))
    yield told(f"{before} -> {shown(state.get)}")


def removing(key: Any, frames: Any, state: Any) -> Any:
    before = f"{state.exists} {state.getOption}"
    state.update((1,))
    state.remove()
    after = f"{state.exists} {state.getOption} {state}"
    if before.startswith("False"):
        state.update((2,))
    return [told(f"{before} {after}"), pd.DataFrame()]


def misusing(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    said = []
    for call in (
        lambda: state.get,
        lambda: state.setTimeoutDuration(5),
        lambda: state.setTimeoutDuration("5 seconds"),
        lambda: state.setTimeoutTimestamp(0),
        lambda: state.getCurrentWatermarkMs(),
        lambda: state.update(None),
    ):
        try:
            said.append(str(call()))
        except Exception as error:
            said.append(type(error).__name__)
    yield told(f"{shown(key)} {said}")


def timed(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    """Time out 30 seconds after the beginning."""
    if state.hasTimedOut:
        columns = [list(frame.columns) for frame in frames]
        what = f"{shown(key)} timed out, {len(frames)} {columns} {state.get}"
        state.remove()
    else:
        rows = sum(map(len, frames))
        what = f"{shown(key)} {rows} {state.getOption} {state.getCurrentWatermarkMs()} {state.oldTimeoutTimestamp}"
        state.update(((state.getOption or (0,))[0] + rows,))
        if state.getCurrentWatermarkMs() < at(30).timestamp() * 1000:
            state.setTimeoutTimestamp(at(30))
    yield told(what)


def by_the_clock(key: Any, frames: Any, state: Any) -> Iterator[Any]:
    state.setTimeoutDuration(3_600_000)
    state.update(((state.getOption or (0,))[0] + 1,))
    yield told(f"{shown(key)} {state.get} {state.hasTimedOut} {state.getCurrentProcessingTimeMs() > 1.6e12}")


STATE = (
    "b boolean, y byte, l long, f float, e decimal(10,2), s string, x binary, a date, t timestamp, "
    "st struct<a:int,b:string>"
)
KEYS = "i int, l long, y byte, b boolean, f float, d double, e decimal(5,1), a date, t timestamp, s string"
SOME_KEY = (1, 2**60 + 1, -1, True, 0.1, 1.5, D("1.5"), DAY, at(0), "ü")
SOME_ROWS = [[("a",), ("empty",)], [("a",), ("empty",)], [("a",)]]
TIMES = [[(1, at(0)), (2, at(0))], [(1, at(20))], [(3, at(40))], [(1, at(50))], [(4, at(100))]]
GIVEN: dict[str, Any] = {"how": "function"}

KINDS = [
    Kind("a function's frames with nulls", f"k string, {TYPES}", NULLS, handed, **GIVEN),
    Kind("a function's frames in another zone", f"k string, {TYPES}", NULLS, handed, conf=NEW_YORK, **GIVEN),
    Kind("a function's frames and their names", NAMES, [[("a", 1, 2, 3, 4, 5)]], handed, **GIVEN),
    Kind(
        "a function's keys",
        KEYS,
        [[SOME_KEY, (None,) * 10], [SOME_KEY, (*SOME_KEY[:5], math.nan, *SOME_KEY[6:])], [(None,) * 10]],
        handed,
        key=tuple(column.split()[0] for column in KEYS.split(", ")),
        **GIVEN,
    ),
    Kind("a function's state", "k string", SOME_ROWS, every_state, state=STATE, **GIVEN),
    Kind("a state that is removed", "k string", SOME_ROWS, removing, **GIVEN),
    Kind("a lambda", "k string", SOME_ROWS, lambda key, frames, state: [told(shown(key), str(state))], **GIVEN),
    Kind("what a state refuses", "k string", SOME_ROWS, misusing, **GIVEN),
    Kind(
        "what a state with a watermark refuses",
        "k string, t timestamp",
        [[("a", at(0))], [("a", at(100))], [("a", at(200))]],
        misusing,
        time="EventTime",
        watermark=("t", "1 second"),
        **GIVEN,
    ),
    Kind(
        "timeouts by event time",
        "k int, t timestamp",
        TIMES,
        timed,
        time="EventTime",
        watermark=("t", "1 second"),
        **GIVEN,
    ),
    Kind("timeouts by the clock", "k int, t timestamp", TIMES, by_the_clock, time="ProcessingTime", until=6, **GIVEN),
]
