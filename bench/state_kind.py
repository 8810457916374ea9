"""What the types of state that are measured have in common: rows, an operator, and the same in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import eq
from typing import Any, ClassVar, NamedTuple

import ferryman as fm

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
# What tells the entries, windows or values of one key apart.
SUBKEYS = 8


class Row(NamedTuple):
    """An input row; `data` is there for the type that keeps it."""

    key: int
    part: int
    n: int
    data: bytes = b""


class Held(fm.Operator):
    """What all operators here share: one state, and one operation on it for every row."""

    columns: ClassVar[str] = "key long, part long, n long"
    output = "key long, content string"
    held: Any


@dataclass(frozen=True)
class Kind:
    """A type of state.

    Attributes
    ----------
    operator
        An operator that keeps such state.
    content
        What it holds of a key, as JSON can write it.
    plain
        The same, computed from all rows of the key.
    agrees
        Whether a content is right, given the plain one.
    per_instance
        Whether it is one for all keys: then the plain one is computed from all rows.
    """

    operator: type[Held]
    content: Callable[[Any], Any]
    plain: Callable[[list[Row]], Any]
    agrees: Callable[[Any, Any], bool] = eq
    per_instance: bool = False

    @property
    def wide(self) -> bool:
        """Tell whether its rows have `data`."""
        return "data" in self.operator.columns


def values(rows: list[Row]) -> list[int]:
    return [row.n for row in rows]


def parts(rows: list[Row]) -> list[int]:
    return [row.part for row in rows]
