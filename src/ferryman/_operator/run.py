"""What every way of running an operator takes and gives, and the columns between Arrow and Python."""

from __future__ import annotations

import decimal
import functools
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._model.errors import OutputMismatch
from ferryman._state.tables import Changes, Entries, Parts

# Numbers that need not be whole.
BROKEN = (float, decimal.Decimal, np.floating)

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


def late_bound(times: pa.ChunkedArray, late_ms: int) -> pa.Scalar:
    """Give up to where rows are late, as a time of the rows' own type."""
    return pa.scalar(late_ms * 1000, pa.timestamp("us", "UTC")).cast(times.type)


def in_time(times: pa.ChunkedArray, late_ms: int) -> pa.ChunkedArray:
    """Tell which rows are not late, by their times.

    A row without a time is never late: it is for the operator to say what such a row means.
    """
    return pc.fill_null(pc.greater(times, late_bound(times, late_ms)), True)


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Made:
    """Take back an operator's output and the state it changed.

    `positions` are the changed keys (None: all of them, in order); `state` has a row for each, and
    `deleted` marks those whose state is gone. `changes` has what changed in the operator's other tables,
    `sides` the rows of side outputs.
    """

    output: pa.Table
    state: pa.Table
    positions: npt.NDArray[np.int64] | None = None
    deleted: npt.NDArray[np.bool_] | None = None
    changes: Mapping[str, Changes | Parts] = field(default_factory=dict)
    sides: Mapping[str, pa.Table] = field(default_factory=dict)


def whose(made: Sequence[Any], ends: Sequence[int], keys: Sequence[Any]) -> Whose:
    """Tell, when a row does not fit, for which key it was given: by how many rows there were after each key."""

    def find(row: Any) -> str:
        place = next((n for n, one in enumerate(made) if one is row or getattr(one, "row", None) is row), None)
        number = len(ends) if place is None else bisect_right(ends, place)
        return f"for key {keys[number]!r} " if number < len(ends) else ""

    return find


class Runner(Protocol):
    """Run an operator; picklable, as it travels to the Python workers with Spark's function."""

    def run(self, given: Given) -> Made:
        """Run the operator once, on all rows of the instance in the epoch."""


def to_list(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Turn a column into Python values, by the short way where there is one."""
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values: list[Any] = column.to_numpy().tolist()
        return values
    listed: list[Any] = column.to_pylist()
    return listed


def key_values(columns: list[pa.Array]) -> list[Any]:
    """Give each key as the user sees it: one column as its value, several as a tuple."""
    if len(columns) == 1:
        return to_list(columns[0])
    return list(zip(*(to_list(column) for column in columns), strict=True))


def to_column(values: list[Any], field: pa.Field, where: str) -> pa.Array:
    """Turn Python values into a column of the declared type, or say which value does not fit."""
    try:
        if _has_integers(field.type):
            for position, value in enumerate(values) if _cuts(values, field.type) else ():
                if _cuts((value,), field.type):
                    raise Misfit(position, value, field, where)
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError, ValueError):
        for position, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
                raise Misfit(position, value, field, where) from error
        raise


@functools.cache
def _has_integers(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_integers(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_integer(kind))


def _cuts(values: Collection[Any], kind: pa.DataType) -> bool:
    """Tell whether Arrow would cut a number among some values to a whole one, at any depth; it does so in silence."""
    t = pa.types
    if t.is_integer(kind):
        if isinstance(values, np.ndarray) and values.dtype.kind in "iub":
            return False
        broken = any(issubclass(one, BROKEN) for one in set(map(type, values)))
        return broken and any(isinstance(one, BROKEN) and one != one // 1 for one in values)
    if not _has_integers(kind):
        return False
    if t.is_map(kind):
        each = (one.items() if isinstance(one, Mapping) else one for one in values if isinstance(one, Collection))
        pairs = [pair for one in each for pair in one if isinstance(pair, tuple) and len(pair) == 2]
        return any(_cuts([pair[n] for pair in pairs], part) for n, part in enumerate((kind.key_type, kind.item_type)))
    if t.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return any(_cuts(_parts(values, number, one.name), one.type) for number, one in enumerate(fields))
    return any(_cuts(one, kind.value_type) for one in values if isinstance(one, (Collection, np.ndarray)))


def _parts(values: Collection[Any], number: int, name: str) -> list[Any]:
    """Give a field of structs, however they are given; what is none does not fit anyway."""
    found = [one[name] for one in values if isinstance(one, Mapping) and name in one]
    return found + [one[number] for one in values if isinstance(one, (tuple, list)) and number < len(one)]


class Misfit(Exception):
    """A value that its declared column cannot hold; turned into an `OutputMismatch` with its key."""

    def __init__(self, position: int, value: Any, field: pa.Field, where: str) -> None:
        super().__init__(f"{where} {field.name!r} is declared as {field.type}, and got {value!r}")
        self.position = position

    def named(self, operator: str, epoch: int, subject: str) -> OutputMismatch:
        """Say it with the operator, the epoch, and the key or row."""
        return OutputMismatch(
            f"operator {operator!r}, epoch {epoch}, {subject}: {self}. Give a value of that type, or change "
            "the declared type. The epoch was not committed."
        )


def conform(table: pa.Table | pa.RecordBatch, schema: pa.Schema, operator: str, epoch: int, what: str) -> pa.Table:
    """Cast a table that a user made to the declared columns, or say what does not fit."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise OutputMismatch(
            f"operator {operator!r}, epoch {epoch}: its {what} is a {type(table).__name__}. Return a pyarrow Table."
        )
    if table.schema.equals(schema):
        return table
    try:
        return table.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowException) as error:
        have = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        want = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise OutputMismatch(
            f"operator {operator!r}, epoch {epoch}: its {what} has the columns ({have}) and is declared as ({want}): "
            f"{error}. Return the declared columns, or change the declaration. The epoch was not committed."
        ) from error
