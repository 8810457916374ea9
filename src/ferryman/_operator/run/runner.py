"""What every way of running an operator takes and gives."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._state.tables import Changes, Entries, Parts

# From a row that an operator gave to "for key ... ".
Whose = Callable[[Any], str]


@dataclass(frozen=True)
class Time:
    """Say what time it is in an epoch, and which keys asked to be called by now.

    Attributes
    ----------
    now_ms
        When the epoch began; the same for all its tasks, however often they run.
    watermark_ms
        How far event time has come; None where there is no watermark, or no row yet.
    late_ms
        Up to where rows are late in this epoch: where the watermark was in the epoch before.
    earliest_ms
        The earliest event time of the rows, while there is no watermark yet.
    due
        What is due, in the order of time: (time, position of the key, what), where what is a state's name if
        something of it may have expired, and empty for a timer.
    """

    now_ms: int = 0
    watermark_ms: int | None = None
    earliest_ms: int | None = None
    late_ms: int | None = None
    due: tuple[tuple[int, int, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Given:
    """Hand an operator the rows of one instance in one epoch, with the state of their keys.

    Attributes
    ----------
    index
        For every row, the position of its key in `keys`, `present` and `state`.
    entries
        The operator's other tables by name, to be read where they are needed.
    time
        What the clock and the watermark say, and what is due.
    groups
        The key groups of the instance.
    parts
        The tables with a row per key group, by name: the rows of those groups.
    broadcasts
        The broadcast states by table name, whole.
    hashes
        Spark's hash of each key.
    """

    operator: str
    epoch: int
    rows: pa.Table
    index: npt.NDArray[np.int64]
    keys: list[pa.Array]
    present: npt.NDArray[np.bool_]
    state: pa.Table
    entries: Mapping[str, Entries] = field(default_factory=dict)
    time: Time = Time()
    groups: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    parts: Mapping[str, pa.Table] = field(default_factory=dict)
    broadcasts: Mapping[str, pa.Table] = field(default_factory=dict)
    hashes: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True, kw_only=True)
class Made:
    """Take back an operator's output and the state it changed.

    `positions` are the changed keys (None: all of them, in order); `state` has a row for each, and
    `deleted` marks those whose state is gone. `changes` has what changed in the operator's other tables,
    `sides` the rows of side outputs. `next_due` is a time before which nothing is due of what it was given: of windows,
    whose runner alone knows, in microseconds.
    """

    output: pa.Table
    state: pa.Table
    positions: npt.NDArray[np.int64] | None = None
    deleted: npt.NDArray[np.bool_] | None = None
    changes: Mapping[str, Changes | Parts] = field(default_factory=dict)
    sides: Mapping[str, pa.Table] = field(default_factory=dict)
    next_due: int | None = None


def whose(made: Sequence[Any], ends: Sequence[int], keys: Sequence[Any]) -> Whose:
    """Tell, when a row does not fit, for which key it was given: by how many rows there were after each key."""

    def find(row: Any) -> str:
        place = next((n for n, output in enumerate(made) if output is row or getattr(output, "row", None) is row), None)
        number = len(ends) if place is None else bisect_right(ends, place)
        return f"for key {keys[number]!r} " if number < len(ends) else ""

    return find


class Runner(Protocol):
    """Run an operator; picklable, as it travels to the Python workers with Spark's function."""

    def run(self, given: Given) -> Made:
        """Run the operator once, on all rows of the instance in the epoch."""
