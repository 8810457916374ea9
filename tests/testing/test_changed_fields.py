"""A field of a dataclass can be renamed or given up, in every type of state; old values do not come back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import pytest

from ferryman import List, Map, Operator, Reducing, Value
from ferryman._log.check.verify import verify
from ferryman.errors import InvalidConfiguration, StateSchemaChanged
from ferryman.testing import Harness

INPUT = "key string, x long"


@dataclass
class Before:
    n: int = 0
    note: str = ""


@dataclass
class After:
    n: int = 0


@dataclass
class Renamed:
    count: int = field(default=0, metadata={"alias": "n"})
    note: str = ""

    @property
    def n(self) -> int:
        return self.count


@dataclass
class Again:
    total: int = field(default=0, metadata={"alias": ["count", "n"]})
    note: str = ""

    @property
    def n(self) -> int:
        return self.total


@dataclass
class Forgot:
    total: int = field(default=0, metadata={"alias": "count"})
    note: str = ""

    @property
    def n(self) -> int:
        return self.total


@dataclass
class Taken:
    n: int = 0
    note: str = ""


@dataclass
class Back:
    n: int = field(default=0, metadata={"alias": ["total", "count"]})
    note: str = ""


STATES: dict[str, Any] = {
    "Value": lambda kind: Value(kind, kind()),
    "Value with a ttl": lambda kind: Value(kind, kind(), ttl=1000),
    "deep": lambda kind: Value(make_dataclass("Deep", [("some", dict[str, list[kind]])]), None),
    "List": lambda kind: List(kind),
    "Map": lambda kind: Map(str, kind),
    "Reducing": lambda kind: Reducing(kind, lambda one, other: other),
}


def build(name: str, kind: Any, **attributes: Any) -> Any:
    state = STATES[name](kind)

    def process(self: Any, key: Any, row: Any) -> Iterator[Any]:
        found: Any = self.kept
        if name.startswith("Value"):
            found = self.kept.n
            self.kept = kind(row.x)
        elif name == "deep":
            found = self.kept and [value.n for value in self.kept.some["a"]]
            self.kept = state.kind({"a": [kind(row.x)]})
        elif name == "List":
            found = [value.n for value in self.kept]
            self.kept.append(kind(row.x))
        elif name == "Map":
            found = {key: value.n for key, value in self.kept.items()}
            self.kept[str(row.x)] = kind(row.x)
        else:
            found = self.kept.result and self.kept.result.n
            self.kept.add(kind(row.x))
        yield key, repr(found)

    made = {"output": "key string, found string", "process": process, "kept": state, **attributes}
    return lambda stream: stream.key_by("key").process(type("Op", (Operator,), made))


@pytest.mark.parametrize("name", STATES)
def test_a_field_is_given_up_by_name(name: str) -> None:
    with Harness(build(name, Before), INPUT) as plain:
        expected = [plain.epoch([("a", x)]) for x in (1, 2, 3)]
    with Harness(build(name, Before), INPUT) as harness:
        found = [harness.epoch([("a", 1)])]
        with pytest.raises(StateSchemaChanged, match=r'dropped = \("state\.field",\)'):
            harness.redeclare(build(name, After))
        path = "kept.some.note" if name == "deep" else "kept.note"
        strange = ("kept.other", "another.note", "note", "kept.other.note")
        with pytest.raises(StateSchemaChanged, match="does not fit its state"):
            harness.redeclare(build(name, After, dropped=strange))
        harness.redeclare(build(name, After, dropped=(path,)))
        found.append(harness.epoch([("a", 2)]))
        # It need not be named again.
        harness.redeclare(build(name, After))
        harness.snapshot()
        harness.restart()
        found.append(harness.epoch([("a", 3)]))
        assert found == expected
        assert verify(harness.checkpoint).faults == ()
        with pytest.raises(StateSchemaChanged, match=r"note' of 'Op.*' was given up by an earlier start"):
            harness.redeclare(build(name, Before))


@pytest.mark.parametrize("name", STATES)
def test_a_field_is_renamed_and_its_old_values_are_found(name: str) -> None:
    with Harness(build(name, Before), INPUT) as plain:
        expected = [plain.epoch([("a", x)]) for x in (1, 2, 3, 4)]
    with Harness(build(name, Before), INPUT) as harness:
        found = [harness.epoch([("a", 1)])]
        with pytest.raises(StateSchemaChanged, match=r"field\(metadata=\{\"alias\": ...\}\)"):
            harness.redeclare(build(name, make_dataclass("Nameless", [("count", int, 0), ("note", str, "")])))
        harness.redeclare(build(name, Renamed))
        found.append(harness.epoch([("a", 2)]))
        harness.redeclare(build(name, Again))
        found.append(harness.epoch([("a", 3)]))
        # What the first epoch wrote has the first name.
        with pytest.raises(StateSchemaChanged, match=r"'total' of .* was called 'n' once.*Leave that alias"):
            harness.redeclare(build(name, Forgot))
        with pytest.raises(StateSchemaChanged, match=r"n' of 'Op.*' was given up by an earlier start"):
            harness.redeclare(build(name, Taken, dropped=("kept.total", "kept.some.total")))
        harness.redeclare(build(name, Back))
        harness.snapshot()
        harness.restart()
        found.append(harness.epoch([("a", 4)]))
        assert found == expected
        assert verify(harness.checkpoint).faults == ()


def test_only_the_field_with_the_path_is_given_up() -> None:
    inner, less = make_dataclass("Inner", [("x", int)]), make_dataclass("Less", [("y", int, 0)])
    with Harness(build("Value", make_dataclass("Both", [("n", int, 0), ("inner", inner, None)])), INPUT) as harness:
        harness.epoch([("a", 1)])
        other = build("Value", make_dataclass("Both", [("n", int, 0), ("inner", less, None)]), dropped=("kept.x",))
        with pytest.raises(StateSchemaChanged, match="does not fit its state"):
            harness.redeclare(other)
        fine = build("Value", make_dataclass("Both", [("n", int, 0), ("inner", less, None)]), dropped=("kept.inner.x",))
        harness.redeclare(fine)


def test_a_name_that_is_anothers_alias_is_refused() -> None:
    taken = make_dataclass("Swap", [("a", int, field(default=0, metadata={"alias": "b"})), ("b", int, 0)])
    with pytest.raises(InvalidConfiguration, match="'a' and 'b' are both called 'b'"):
        Value(taken, None)
    swap = {"a": Value(int, 0, alias="b"), "b": Value(int, 0)}
    swapped = type("Op", (Operator,), {**swap, "output": "k string", "process": lambda self, key, row: None})
    with pytest.raises(InvalidConfiguration, match="'a' and 'b' are both called 'b'"):
        Harness(lambda stream: stream.key_by("key").process(swapped), INPUT)


def test_an_alias_that_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"field 'n': alias=\[3\]\. Give the name it had before"):
        Value(make_dataclass("Bad", [("n", int, field(default=0, metadata={"alias": [3]}))]), None)


def test_a_field_of_a_renamed_value_does_not_come_back_either() -> None:
    def renamed(kind: Any, **attributes: Any) -> Any:
        def process(self: Any, key: Any, row: Any) -> Iterator[Any]:
            yield key, repr(self.new.n)

        state = Value(kind, kind(), alias="kept")
        made = {"output": "key string, found string", "process": process, "new": state, **attributes}
        return lambda stream: stream.key_by("key").process(type("Op", (Operator,), made))

    with Harness(build("Value", Before), INPUT) as harness:
        harness.epoch([("a", 1)])
        harness.redeclare(renamed(After, dropped=("kept.note",)))
        assert harness.epoch([("a", 2)]) == [("a", "1")]
        with pytest.raises(StateSchemaChanged, match=r"'new\.note' of 'Op' was given up"):
            harness.redeclare(renamed(Before))
