"""The page on migrating is true: its two programs give equal rows, and its table is what the tests found."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from processor import test_processor, test_time
from processor.beside import Beside, same
from processor.test_processor import at
from pyspark.sql import GroupedData
from pyspark.sql.streaming import state, stateful_processor

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating-from-transformWithState.md"


def programs() -> dict[str, Any]:
    """Run the page's Python, and give what it defines."""
    names: dict[str, Any] = {"__name__": "page"}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_before_and_after_give_equal_rows(spark: Any, tmp_path: Path) -> None:
    beside = Beside(spark, tmp_path, "sensor string, room string, value double, time timestamp")
    beside.give(
        [("a", "x", 101.0, at(0)), ("a", "y", 50.0, at(1)), ("b", "x", 120.0, at(2))],
        [("a", "x", 130.0, at(30)), ("c", "z", 99.0, at(31))],
        [("c", "z", 200.0, at(90)), ("late", "z", 300.0, at(3))],
        [("d", "z", 101.0, at(200))],
    )
    page = programs()
    one: list[Any] = []
    other: list[Any] = []

    page["before"](beside.stream(), str(tmp_path / "spark"), lambda frame, _: one.extend(map(tuple, frame.collect())))
    page["after"](spark, beside.stream(), tmp_path / "f", lambda frame, _: other.extend(map(tuple, frame.collect())))

    assert ("a", 0, 0) in one, "a timer fired"
    same(one, other)


BESIDE = "same rows as Spark"
ALONE = "tested on Ferryman alone"

# Every public method of Spark's classes: what was found out about it, and by which test.
CLASSES = {
    "ValueState": (stateful_processor.ValueState, {}, (BESIDE, "test_a_value")),
    "ListState": (
        stateful_processor.ListState,
        {},
        (BESIDE, "test_lists_and_maps_with_all_their_methods"),
    ),
    "MapState": (stateful_processor.MapState, {}, (BESIDE, "test_lists_and_maps_with_all_their_methods")),
    "StatefulProcessorHandle": (
        stateful_processor.StatefulProcessorHandle,
        {
            "getValueState": (BESIDE, "test_a_value"),
            "getListState": (BESIDE, "test_lists_and_maps_with_all_their_methods"),
            "getMapState": (BESIDE, "test_lists_and_maps_with_all_their_methods"),
            "deleteIfExists": (ALONE, "test_a_state_that_is_deleted_is_gone"),
        },
        (BESIDE, "test_event_time_timers_and_late_rows"),
    ),
    "StatefulProcessor": (
        stateful_processor.StatefulProcessor,
        {
            "handleExpiredTimer": (BESIDE, "test_event_time_timers_and_late_rows"),
            "handleInitialState": (BESIDE, "test_initial_state"),
        },
        (BESIDE, "test_a_value"),
    ),
    "TimerValues": (
        stateful_processor.TimerValues,
        {"getCurrentProcessingTimeInMs": (ALONE, "test_a_timer_by_the_clock_fires_without_data")},
        (BESIDE, "test_event_time_timers_and_late_rows"),
    ),
    "ExpiredTimerInfo": (stateful_processor.ExpiredTimerInfo, {}, (BESIDE, "test_event_time_timers_and_late_rows")),
    "GroupState": (
        state.GroupState,
        {
            "setTimeoutDuration": (ALONE, "test_a_timeout_by_the_clock"),
            "getCurrentProcessingTimeMs": (ALONE, "test_a_timeout_by_the_clock"),
        },
        (BESIDE, "test_a_function_with_a_group_state_and_timeouts"),
    ),
}
# What `groupBy` gives, and the arguments of each.
CALLS = {
    "transformWithState": {
        "initialState": (BESIDE, "test_initial_state"),
        "eventTimeColumnName": (BESIDE, "test_chained_processors_share_the_watermark"),
    },
    "transformWithStateInPandas": {
        "initialState": (BESIDE, "test_pandas_with_an_initial_state"),
        "eventTimeColumnName": (BESIDE, "test_chained_processors_share_the_watermark"),
    },
    "applyInPandasWithState": {},
}
CALLED = {
    "transformWithState": (BESIDE, "test_a_value"),
    "transformWithStateInPandas": (BESIDE, "test_pandas"),
    "applyInPandasWithState": (BESIDE, "test_a_function_with_a_group_state_and_timeouts"),
}
# Where Spark offers it to others than the user.
INTERNAL = {"json", "oldTimeoutTimestamp", "NO_TIMESTAMP"}


def table() -> list[str]:
    lines = ["| Spark | method or argument | status | shown by |", "| --- | --- | --- | --- |"]
    for call, special in CALLS.items():
        for name in list(inspect.signature(getattr(GroupedData, call)).parameters)[1:]:
            status, test = special.get(name, CALLED[call])
            lines.append(f"| `groupBy().{call}` | `{name}` | {status} | `{test}` |")
    for label, (kind, special, otherwise) in CLASSES.items():
        for name in vars(kind):
            if not name.startswith("_") and name not in INTERNAL:
                status, test = special.get(name, otherwise)
                lines.append(f"| `{label}` | `{name}` | {status} | `{test}` |")
    return lines


def test_the_table_has_every_method_and_every_test_is_there() -> None:
    written = PAGE.read_text()
    begin, end = "<!-- methods: begin -->\n", "<!-- methods: end -->"
    lines = table()
    for line in lines[2:]:
        test = line.rsplit("`", 2)[1]
        assert hasattr(test_processor, test) or hasattr(test_time, test), f"there is no test {test}"

    found = written.split(begin)[1].split(end)[0].splitlines()

    assert found == lines, "put this between the marks:\n" + "\n".join(lines)
