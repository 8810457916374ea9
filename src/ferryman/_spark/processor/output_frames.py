"""The frames that a processor gives: copied by pandas' blocks, and turned into Arrow many at once.

A frame often has a row or two: it counts what is done to a frame, not to a row. Where pandas has no such blocks, its
public methods do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ferryman._model.errors import OutputMismatch
from ferryman._operator.run.ambiguous_hours import in_session_zone, misfit
from ferryman._operator.run.nested_times import localised
from ferryman._operator.run.python_columns import Misfit, to_column
from ferryman._operator.run.runner import Given
from ferryman._spark.processor.processor_rows import WhoseRow, shape

# Rows that are turned into Arrow at once.
_ROWS = 4096


class Frames:
    """Take the frames that a processor gives, and make a table of them.

    By name, or by position where names are no strings, or where Spark is set so (`by_name`). What a frame holds is
    copied at once, as the processor may go on to use it for the next key; and a task does not hold as many frames as
    it has keys, some kilobytes each.
    """

    def __init__(
        self, schema: pa.Schema, given: Given, timezone: str, whose: WhoseRow, *, by_name: bool = True
    ) -> None:
        self._by_name = by_name
        self._schema = schema
        self._given = given
        self._timezone = timezone
        self._whose = whose
        self._tables: list[pa.Table] = []
        self._done = 0
        # Frames alike are copied one behind the other, block by block.
        self._layout: Any = None
        self._buffers: list[Any] = []
        self._filled = self._room = 0

    def __len__(self) -> int:
        return self._done + self._filled

    def extend(self, frames: Iterable[Any]) -> None:
        """Take some frames."""
        for frame in frames:
            if not isinstance(frame, pd.DataFrame):
                raise self._mismatch(f"a {type(frame).__name__}")
            blocks = _blocks(frame)
            if blocks is None:
                self._convert(frame)
            else:
                self._copy(frame, blocks)

    def table(self) -> pa.Table:
        """Give the rows of all frames."""
        self._flush()
        if not self._tables:
            return self._schema.empty_table()
        return pa.concat_tables(self._tables).combine_chunks()

    def _copy(self, frame: pd.DataFrame, blocks: list[tuple[list[int], Any]]) -> None:
        """Put a frame behind those before it."""
        count = blocks[0][1].shape[1]
        if not count:
            return
        layout = (frame.columns.tolist(), [(places, values.dtype) for places, values in blocks])
        if layout != self._layout or self._filled + count > self._room:
            self._flush()
            self._places(layout[0])
            self._layout, self._room = layout, max(count, _ROWS)
            self._buffers = [np.empty((len(values), self._room), values.dtype) for _, values in blocks]
        begin = self._filled
        self._filled = end = begin + count
        for buffer, (_, values) in zip(self._buffers, blocks, strict=True):
            buffer[:, begin:end] = values

    def _flush(self) -> None:
        if self._filled:
            columns, blocks = self._layout
            found: dict[int, Any] = {}
            for buffer, (places, _) in zip(self._buffers, blocks, strict=True):
                found.update(zip(places, buffer[:, : self._filled], strict=True))
            self._add([found[place] for place in self._places(columns)])
        # The buffers are Arrow's now.
        self._layout, self._buffers, self._filled, self._room = None, [], 0, 0

    def _convert(self, frame: pd.DataFrame) -> None:
        """Turn a frame into Arrow by itself: one with columns of pandas' own types."""
        self._flush()
        if len(frame):
            frame = frame.copy()
            self._add([frame.iloc[:, place] for place in self._places(frame.columns.tolist())])

    def _add(self, columns: list[Any]) -> None:
        try:
            arrays = [
                _array(column, field, self._timezone) for column, field in zip(columns, self._schema, strict=True)
            ]
        except Misfit as misfit:
            subject = f"output row {self._whose(self._done + misfit.position)}".rstrip()
            raise misfit.named(self._given.operator, self._given.epoch, subject) from misfit
        self._tables.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._done += len(columns[0])

    def _places(self, have: list[Any]) -> list[int]:
        """Tell where in a frame the declared columns are."""
        names = self._schema.names
        if len(have) >= len(names) and not (self._by_name and any(isinstance(name, str) for name in have)):
            return list(range(len(names)))
        if any(name not in have for name in names):
            raise self._mismatch(f"a frame with the columns {have}")
        return [have.index(name) for name in names]

    def _mismatch(self, what: str) -> OutputMismatch:
        return OutputMismatch(
            f"operator {self._given.operator!r}, epoch {self._given.epoch}: {self._whose(len(self))}it gave {what}. "
            f"Give pandas DataFrames with the columns {', '.join(self._schema.names)}, as in outputStructType. The "
            "epoch was not committed."
        )


def _blocks(frame: pd.DataFrame) -> list[tuple[list[int], Any]] | None:
    """Give the columns of a frame as pandas keeps them, by type: their places, and an array with a row for each.

    None if it keeps them otherwise, or has types that are not numpy's.
    """
    try:
        blocks = [(block.mgr_locs.as_array.tolist(), block.values) for block in frame._mgr.blocks]
    except AttributeError:
        return None
    for _, values in blocks:
        if not isinstance(values.dtype, np.dtype):
            return None
    return blocks or None


def _array(values: Any, field: pa.Field, timezone: str) -> pa.Array:
    kind = field.type
    local = localised(kind, timezone) if pa.types.is_nested(kind) else None
    try:
        if local is None:
            array = pa.array(values, from_pandas=True)
            if array.null_count == len(array):
                # pandas has floats for a column of nothing but nulls.
                return pa.nulls(len(array), kind)
            if not _taken(array.type, kind, objects=values.dtype == object):
                raise misfit(values, array.is_valid(), field)
            if pa.types.is_timestamp(array.type) and array.type.tz is None and getattr(kind, "tz", None):
                array = in_session_zone(array, values, field, timezone)
            if array.type == kind:
                return array
            # Spark, too, cuts off what is smaller than a microsecond.
            return array.cast(kind, safe=not (_is_time(array.type) and _is_time(kind)))
    except (pa.ArrowException, TypeError, ValueError):
        pass
    # Objects of mixed or nested types go value by value, and the one that does not fit is named.
    # As Python's own: numpy's whole numbers make no decimals.
    listed = [_value(value) for value in values.tolist()]
    for convert in (shape(kind), local):
        if convert is not None:
            listed = [convert(value) for value in listed]
    return to_column(listed, field, "column")


def _value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        # Of times in nanoseconds numpy would make numbers.
        return list(value) if value.dtype.kind in "mM" else value.tolist()
    # NaN, NaT and the like differ from themselves.
    return None if value is None or value is pd.NA or value != value else value


def _taken(given: pa.DataType, kind: pa.DataType, *, objects: bool) -> bool:
    """Tell whether Spark takes values of one type for a column of another; Arrow by itself would cast far more.

    Examples
    --------
    >>> _taken(pa.int64(), pa.float64(), objects=False), _taken(pa.int64(), pa.string(), objects=False)
    (True, False)
    """
    t = pa.types
    if t.is_dictionary(given):
        given = given.value_type
    text = bool(t.is_string(given) or t.is_large_string(given))
    if t.is_string(kind):
        return text or bool(t.is_binary(given))
    if t.is_date(kind):
        return bool(t.is_date(given) or t.is_timestamp(given))
    if t.is_timestamp(kind):
        return bool(t.is_timestamp(given) or t.is_int64(given))
    if t.is_decimal(kind):
        return not text
    if t.is_floating(kind):
        return not t.is_duration(given)
    return not (t.is_integer(kind) and t.is_boolean(given) and objects)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind))
