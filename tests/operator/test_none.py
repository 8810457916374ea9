"""A value that was set to None is None, whatever else the operator keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ferryman import List, Map, Operator, Value
from ferryman.testing import Harness

INPUT = "key string, x string"
FAR = 10**15


def build(**attributes: Any) -> Any:
    def process(self: Any, key: Any, row: Any) -> Iterator[Any]:
        seen = self.n
        if row.x == "none":
            self.n = None
        elif row.x == "clear":
            self.clear()
        elif row.x == "call":
            self.call_at(FAR)
        elif row.x == "append":
            self.items.append("x")
        yield key, repr(seen)

    made = {"output": "key string, n string", "process": process, "n": Value(int, 5), **attributes}
    return lambda stream: stream.key_by("key").process(type("Op", (Operator,), made))


OTHERS: dict[str, Any] = {
    "nothing": {},
    "a list": {"items": List(str)},
    "a map": {"entries": Map(str, int)},
    "a timer": {"due": lambda self, key, at: None},
    "what expires": {"items": List(str, ttl=1000)},
}


@pytest.mark.parametrize("others", OTHERS)
def test_none_stays_none(others: str) -> None:
    with Harness(build(**OTHERS[others]), INPUT) as harness:
        found = [harness.epoch([("a", what)])[0][1] for what in ("", "none", "", "", "clear", "")]
        assert found == ["5", "5", "None", "None", "None", "5"]


@pytest.mark.parametrize("others", OTHERS)
def test_a_cleared_key_is_gone_also_if_its_values_were_never_set(others: str) -> None:
    with Harness(build(**OTHERS[others]), INPUT) as harness:
        harness.epoch([("a", ""), ("b", "")])
        assert [row["key"] for row in harness.state()] == ["a", "b"]
        harness.epoch([("a", "clear"), ("c", "clear")])
        assert [row["key"] for row in harness.state()] == ["b"]


def test_a_cleared_key_has_its_default_again_though_its_row_is_needed() -> None:
    with Harness(build(items=List(str), due=lambda self, key, at: None), INPUT) as harness:
        found = [harness.epoch([("a", what)])[0][1] for what in ("call", "none", "clear", "", "none", "append", "")]
        assert found == ["5", "5", "None", "5", "5", "None", "None"]


def test_a_key_that_was_cleared_is_gone_when_what_kept_its_row_is() -> None:
    with Harness(build(items=List(str, ttl=1000)), INPUT) as harness:
        harness.epoch([("a", "append"), ("b", "append"), ("b", "none")])
        harness.epoch([("a", "clear")])
        assert [row["key"] for row in harness.state()] == ["a", "b"]
        harness.tick(2000)
        assert [(row["key"], row["n"]) for row in harness.state()] == [("b", None)]
