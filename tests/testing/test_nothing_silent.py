"""Nothing is lost, cut or brought back in silence: names used again, what Arrow converts, lives that are changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ferryman import Counter, Deque, List, Map, Operator, Value
from ferryman._log.check.verify import verify
from ferryman.errors import InvalidConfiguration, OutputMismatch, StateMisused, StateSchemaChanged
from ferryman.testing import Harness


def built(does: Callable[[Any, Any], Any], **body: Any) -> Callable[[Any], Any]:
    """Make a pipeline of one operator that puts out what a function of it and a row gives."""
    body = {"output": "k string, v string", "process": lambda self, key, row: [(key, repr(does(self, row)))], **body}
    return lambda stream: stream.key_by("k").process(type("Op", (Operator,), body))


def harness(build: Callable[[Any], Any]) -> Harness:
    return Harness(build, "k string, a long")


@dataclass
class Both:
    x: int = 0
    y: int = 0


@dataclass
class OnlyY:
    y: int = 0


@dataclass
class XFromY:
    x: int = field(default=0, metadata={"alias": "y"})


@dataclass
class CFromX:
    y: int = 0
    c: int = field(default=0, metadata={"alias": "x"})


def set_both(op: Any, row: Any) -> None:
    op.s = Both(111, 222)


@pytest.mark.parametrize("dropped", [(), ("s.x",)])
def test_a_field_cannot_take_the_name_of_one_and_be_another(dropped: tuple[str, ...]) -> None:
    with harness(built(set_both, s=Value(Both))) as one:
        one.epoch([("a", 1)])
        with pytest.raises(StateSchemaChanged, match="does not fit its state"):
            one.redeclare(built(lambda op, row: op.s, s=Value(XFromY), dropped=dropped))


@pytest.mark.parametrize("kind", [XFromY, CFromX])
def test_what_was_given_up_does_not_come_back_by_an_alias(kind: Any) -> None:
    with harness(built(set_both, s=Value(Both))) as one:
        one.epoch([("a", 1)])
        one.redeclare(built(lambda op, row: op.s, s=Value(OnlyY), dropped=("s.x",)))
        one.epoch([("b", 1)])
        with pytest.raises(StateSchemaChanged, match=r"'s\.x' of 'Op' was given up.*no alias of that name"):
            one.redeclare(built(lambda op, row: op.s, s=Value(kind), dropped=("s.x",)))


def test_a_value_that_was_given_up_does_not_come_back_by_an_alias() -> None:
    with harness(built(lambda op, row: setattr(op, "a", 111), a=Value(int, 0), b=Value(int, 0))) as one:
        one.epoch([("k", 1)])
        one.redeclare(built(lambda op, row: op.b, b=Value(int, 0), dropped=("a",)))
        one.epoch([("other", 1)])
        with pytest.raises(StateSchemaChanged, match="'a' of 'Op' was given up"):
            one.redeclare(built(lambda op, row: op.c, b=Value(int, 0), c=Value(int, 0, alias="a")))


def test_a_rename_can_be_taken_back() -> None:
    with harness(built(lambda op, row: setattr(op, "n", 5), n=Value(int, 0))) as one:
        one.epoch([("k", 1)])
        one.redeclare(built(lambda op, row: op.m, m=Value(int, 0, alias="n")))
        assert one.epoch([("other", 1), ("k", 1)]) == [("other", "0"), ("k", "5")]
        one.redeclare(built(lambda op, row: op.n, n=Value(int, 0, alias="m")))
        assert one.epoch([("k", 1)]) == [("k", "5")]


def test_a_version_that_had_no_epoch_has_changed_nothing() -> None:
    with harness(built(lambda op, row: setattr(op, "n", 5), n=Value(int, 0))) as one:
        one.epoch([("k", 1)])
        one.redeclare(built(lambda op, row: op.m, m=Value(int, 0, alias="n")))
        one.redeclare(built(lambda op, row: op.n, n=Value(int, 0)))
        assert one.epoch([("k", 1)]) == [("k", "5")]


def test_calls_that_were_given_up_do_not_come_back() -> None:
    with harness(built(lambda op, row: op.call_at(op.now_ms + 100), due=lambda op, key, at: None)) as one:
        one.epoch([("k", 1)])
        one.redeclare(built(lambda op, row: None))
        one.epoch([("k", 1)])
        with pytest.raises(StateSchemaChanged, match=r"was started without `due`.*another name"):
            one.redeclare(built(lambda op, row: None, due=lambda op, key, at: None))


DAY = dt.datetime(2024, 1, 1)
KEYS: dict[str, tuple[Any, list[Any], dict[Any, int]]] = {
    "times for dates": (dt.date, [DAY.replace(hour=hour) for hour in (1, 2, 3)], {DAY.date(): 3}),
    "bytes for text": (str, ["a", b"a"], {"a": 2}),
    "text for bytes": (bytes, ["a", b"a"], {b"a": 2}),
    "numbers of numpy": (int, [1, np.int64(1), np.int8(2)], {1: 2, 2: 1}),
    "parts of a second": (pa.timestamp("s"), [DAY, DAY.replace(microsecond=5)], {DAY: 2}),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_are_kept_as_the_same_are_the_same_at_once(name: str) -> None:
    kind, given, kept = KEYS[name]

    def fill(op: Any, row: Any) -> Any:
        for key in given if row.a else ():
            op.seen[key] += 1
        return dict(op.seen)

    with harness(built(fill, seen=Counter(kind))) as one:
        assert one.epoch([("k", 1)]) == [("k", repr(kept))]
        assert one.epoch([("k", 0)]) == [("k", repr(kept))]
        assert verify(one.checkpoint).faults == ()


def in_a_value(op: Any, value: Any) -> None:
    op.v = value


def in_a_map(op: Any, value: Any) -> None:
    op.v["x"] = value


BROKEN: dict[str, tuple[Any, Any, Any]] = {
    "of numpy": (Value(int, 0), in_a_value, np.float64(2.9)),
    "in a list": (Value(list[int]), in_a_value, [1, 2.9]),
    "in an array": (Value(list[int]), in_a_value, np.array([2.9])),
    "in a dict": (Value(dict[str, int]), in_a_value, {"q": 0.9}),
    "in a list in a dict": (Value(dict[str, list[int]]), in_a_value, {"q": [1], "r": [0.9]}),
    "in a dataclass": (Value(Both), in_a_value, Both(1, 2.5)),  # type: ignore[arg-type]
    "in a map": (Map(str, int), in_a_map, np.mean([2, 3.8])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_numbers_are_not_cut_to_whole_ones(name: str) -> None:
    state, does, value = BROKEN[name]
    with (
        harness(built(lambda op, row: does(op, value), v=state)) as one,
        pytest.raises(OutputMismatch, match=r"key 'k'.*'v'"),
    ):
        one.epoch([("k", 1)])


def test_numbers_that_are_whole_are_taken_however_they_are_written() -> None:
    def write(op: Any, row: Any) -> Any:
        if row.a:
            op.n, op.some = np.float64(2.0), [3.0, np.int32(4)]
        return op.n, op.some

    with harness(built(write, n=Value(int, 0), some=Value(list[int]))) as one:
        one.epoch([("k", 1)])
        assert one.epoch([("k", 0)]) == [("k", "(2, [3, 4])")]


def test_numbers_in_output_are_not_cut_either() -> None:
    made = {"output": "k string, l array<long>", "process": lambda self, key, row: [(key, [2.9])]}
    with (
        harness(lambda stream: stream.key_by("k").process(type("Op", (Operator,), made))) as one,
        pytest.raises(OutputMismatch, match=r"\[2\.9\]"),
    ):
        one.epoch([("k", 1)])


@pytest.mark.parametrize("first", [List(str), List(str, ttl=60_000)], ids=["added", "shortened"])
def test_a_new_time_to_live_holds_for_what_was_written_under_it(first: Any) -> None:
    with harness(built(lambda op, row: op.some.append("old"), some=first)) as one:
        one.epoch([("k", 1)])
        does = built(lambda op, row: op.some.append("new") if row.a else list(op.some), some=List(str, ttl=1000))
        one.redeclare(does)
        one.epoch([("k", 1)])
        one.now_ms += 5000
        assert one.epoch([("k", 0)]) == [("k", "['old']")]


def test_a_change_in_place_is_noticed_also_when_another_was_taken_out() -> None:
    def work(op: Any, row: Any) -> Any:
        if row.a == 1:
            op.some.extend([[1], [2], [3]])
        elif row.a == 2:
            # What was taken out may be changed.
            op.some.popleft().append(99)
        else:
            op.some[1].append(99)
            op.some.popleft()
        return list(op.some)

    with harness(built(work, some=Deque(list[int], 5))) as one:
        one.epoch([("k", 1)])
        assert one.epoch([("k", 2)]) == [("k", "[[2], [3]]")]
        with pytest.raises(StateMisused, match="changed in place"):
            one.epoch([("k", 3)])


def test_a_deque_is_no_longer_than_it_is_declared_now() -> None:
    with harness(built(lambda op, row: op.some.append(row.a), some=Deque(int, 5))) as one:
        one.epoch([("k", number) for number in range(5)])
        one.redeclare(built(lambda op, row: (len(op.some), list(op.some)), some=Deque(int, 2)))
        assert one.epoch([("k", 9)]) == [("k", "(2, [3, 4])")]


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.string_view(), pa.list_(pa.string_view())], ids=str)
def test_a_type_that_files_cannot_hold_is_refused_where_it_is_declared(kind: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="a type that files of state cannot hold"):
        Value(kind)
