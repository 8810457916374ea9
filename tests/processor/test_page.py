"""The page on migrating is true: its two programs give equal rows, and its table is what the tests found."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from processor import test_deleted, test_processor, test_time
from processor.beside import Beside, same
from processor.calls import GROUPED, STATES
from processor.page import ALONE, BESIDE, PAGE, lines
from processor.test_processor import at
from pyspark.sql import GroupedData
from pyspark.sql.streaming import state, stateful_processor


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


def test_the_state_of_a_query_is_taken_over(spark: Any, tmp_path: Path) -> None:
    first = [("a", "x", 101.0, at(0)), ("a", "y", 150.0, at(1)), ("b", "x", 120.0, at(2))], [("c", "z", 130.0, at(20))]
    then = (
        [("a", "x", 140.0, at(30)), ("d", "z", 99.0, at(31))],
        [("c", "z", 200.0, at(95))],
        [("d", "z", 101.0, at(300))],
    )
    page = programs()
    alone, both = (Beside(spark, tmp_path / name, "sensor string, room string, value double, time timestamp")
                   for name in ("alone", "both"))  # fmt: skip
    whole: list[Any] = []
    parts: list[Any] = []

    alone.give(*first, *then)
    page["before"](alone.stream(), str(tmp_path / "w"), lambda frame, _: whole.extend(map(tuple, frame.collect())))
    both.give(*first)
    page["before"](both.stream(), str(tmp_path / "p"), lambda frame, _: parts.extend(map(tuple, frame.collect())))
    rest = Beside(spark, tmp_path / "rest", "sensor string, room string, value double, time timestamp")
    rest.give(*then)
    resuming = type("Resuming", (page["Resumed"], page["Violations"]), {})
    page["resume"](
        resuming(),
        spark,
        rest.stream(),
        str(tmp_path / "p"),
        tmp_path / "f",
        lambda frame, _: parts.extend(map(tuple, frame.collect())),
    )

    assert ("a", 3, 2) in whole, "it went on counting"
    same(parts, whole)


CLASSES = (
    stateful_processor.ValueState,
    stateful_processor.ListState,
    stateful_processor.MapState,
    stateful_processor.StatefulProcessorHandle,
    stateful_processor.StatefulProcessor,
    stateful_processor.TimerValues,
    stateful_processor.ExpiredTimerInfo,
    state.GroupState,
)
# Where Spark offers it to others than the user.
INTERNAL = {"json", "oldTimeoutTimestamp", "NO_TIMESTAMP"}


def methods() -> list[str]:
    """List every argument of the calls, every public method, and the times to live that can be asked for."""
    found = []
    for call in GROUPED:
        found += [
            f"groupBy().{call}.{name}" for name in list(inspect.signature(getattr(GroupedData, call)).parameters)[1:]
        ]
    for kind in CLASSES:
        for name, member in vars(kind).items():
            if not name.startswith("_") and name not in INTERNAL:
                found.append(f"{kind.__name__}.{name}")
                if name in STATES and "ttlDurationMs" in inspect.signature(member).parameters:
                    found.append(f"{kind.__name__}.{name}(ttlDurationMs)")
    return found


def test_the_table_has_every_method_and_every_test_is_there() -> None:
    table = lines()
    assert [method for method, _, _ in table] == methods()
    assert {status for _, status, _ in table} <= {BESIDE, ALONE}
    for _, _, test in table:
        # Each of these tests looks itself whether it called what the table says of it: see conftest.py.
        name = test.partition("[")[0]
        assert any(hasattr(module, name) for module in (test_processor, test_time, test_deleted)), (
            f"there is no test {test}"
        )
