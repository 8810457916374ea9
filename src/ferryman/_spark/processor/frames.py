"""Rows between Arrow and a processor, as pandas frames.

A processor gets and gives a frame per key, often of a row or two: here it counts what is done to a frame, not to
a row. So both ways go past what pandas looks at first, by its blocks, and by its public methods where it
has no such blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import _create_converter_to_pandas

from ferryman._model.errors import OutputMismatch
from ferryman._operator.run import Given, Misfit, to_column
from ferryman._spark.processor.local_times import localised
from ferryman._spark.processor.rows import WhoseRow, shape
from ferryman._spark.schema import to_spark

# Rows that are turned into Arrow at once.
_ROWS = 4096


def to_frame(rows: pa.Table, timezone: str, *, wide: bool = False) -> pd.DataFrame:
    """Make a pandas frame as Spark does: times without a zone, as the session's clock shows them; maps as dicts.

    With `wide`, numbers are of 64 bits, as transformWithStateInPandas has them and applyInPandasWithState has not.
    """
    nested: dict[int, pd.Series] = {}
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            local = pc.local_timestamp(rows.column(number).cast(pa.timestamp("us", timezone)))
            rows = rows.set_column(number, field.name, local)
        elif wide and (pa.types.is_signed_integer(field.type) or pa.types.is_float32(field.type)):
            kind = pa.float64() if pa.types.is_float32(field.type) else pa.int64()
            rows = rows.set_column(number, field.name, rows.column(number).cast(kind))
        elif pa.types.is_nested(field.type):
            # Whole numbers stay whole beside nulls.
            plain = rows.column(number).to_pandas(integer_object_nulls=True, **_TIMES)
            nested[number] = _to_local(field, timezone)(plain)
    if not nested:
        frame: pd.DataFrame = rows.to_pandas(**_TIMES)
        return frame
    names = rows.column_names
    flat = [number for number in range(len(names)) if number not in nested]
    frame = rows.select(flat).to_pandas(**_TIMES) if flat else pd.DataFrame(index=pd.RangeIndex(rows.num_rows))
    for number, series in nested.items():
        frame.insert(number, names[number], series, allow_duplicates=True)
    return frame


_TIMES: dict[str, Any] = {"coerce_temporal_nanoseconds": True}


def _to_local(field: pa.Field, timezone: str) -> Callable[[pd.Series], pd.Series]:
    kind = to_spark(pa.schema([field]))[0].dataType
    convert: Callable[[pd.Series], pd.Series] = _create_converter_to_pandas(
        kind, timezone=timezone, struct_in_pandas="dict", error_on_duplicated_field_names=False
    )
    return convert


@dataclass(frozen=True)
class Batches:
    """How large frames may get, by Spark's settings: in rows, and in bytes as far as the rows' average tells.

    Examples
    --------
    >>> Batches(rows=2).pieces([1, 5], pa.table({"n": range(6)}))
    [[1], [2, 2, 1]]
    """

    rows: int | None = None
    bytes: int | None = None

    def pieces(self, counts: list[int], table: pa.Table) -> list[list[int]]:
        """Say how many rows the frames of each key have."""
        most = self._most(table)
        if most is None or max(counts, default=0) <= most:
            return [[count] for count in counts]
        return [[min(most, count - begin) for begin in range(0, count, most)] for count in counts]

    def _most(self, table: pa.Table) -> int | None:
        if self.bytes is None or table.nbytes <= self.bytes:
            return self.rows
        fit: int = max(1, math.ceil(self.bytes * table.num_rows / table.nbytes))
        return fit if self.rows is None else min(fit, self.rows)


def cut(whole: pd.DataFrame, counts: list[int]) -> Iterator[pd.DataFrame]:
    """Cut one frame into one per key: converting once costs far less than converting each."""
    blocks: Any = getattr(whole, "_mgr", None)
    quick = hasattr(blocks, "get_slice") and hasattr(pd.DataFrame, "_from_mgr")
    indexes = {count: pd.RangeIndex(count) for count in set(counts)}
    begin = 0
    for count in counts:
        rows = slice(begin, begin + count)
        if quick:
            # What the other way does, without what it looks at first: that would be most of the time.
            part = blocks.get_slice(rows, axis=1)
            # Views, as an index can be given a name.
            part.axes[:] = part.axes[0].view(), indexes[count].view()
            yield pd.DataFrame._from_mgr(part, part.axes)  # type: ignore[attr-defined]
        else:
            yield whole.iloc[rows].reset_index(drop=True)
        begin += count


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
            arrays = [_array(one, field, self._timezone) for one, field in zip(columns, self._schema, strict=True)]
        except Misfit as misfit:
            subject = f"output row {self._whose(self._done + misfit.position)}".rstrip()
            raise misfit.named(self._given.operator, self._given.epoch, subject) from misfit
        self._tables.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._done += len(columns[0])

    def _places(self, have: list[Any]) -> list[int]:
        """Tell where in a frame the declared columns are."""
        names = self._schema.names
        if len(have) >= len(names) and not (self._by_name and any(isinstance(one, str) for one in have)):
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
                raise _misfit(values, array.is_valid(), field)
            if pa.types.is_timestamp(array.type) and array.type.tz is None and getattr(kind, "tz", None):
                array = _of_session(array, values, field, timezone)
            if array.type == kind:
                return array
            # Spark, too, cuts off what is smaller than a microsecond.
            return array.cast(kind, safe=not (_is_time(array.type) and _is_time(kind)))
    except (pa.ArrowException, TypeError, ValueError):
        pass
    # Objects of mixed or nested types go value by value, and the one that does not fit is named.
    # As Python's own: numpy's whole numbers make no decimals.
    listed = [_value(one) for one in values.tolist()]
    for convert in (shape(kind), local):
        if convert is not None:
            listed = [convert(one) for one in listed]
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


def _misfit(values: Any, wrong: pa.Array, field: pa.Field) -> Misfit:
    position = pc.index(wrong, True).as_py()
    return Misfit(position, pd.Series(values).iloc[position], field, "column")


def _of_session(times: pa.Array, values: Any, field: pa.Field, timezone: str) -> pa.Array:
    """Put a zone to times without one, as Spark does: an hour that comes twice is the second, by the winter's clock.

    Times that pandas keeps as Python's own objects Spark takes for UTC. An hour that the clock leaves out is none.
    """
    if values.dtype == object:
        return pc.assume_timezone(times, "UTC")
    before, after = (
        pc.assume_timezone(times, timezone, ambiguous="latest", nonexistent=one) for one in ("earliest", "latest")
    )
    left_out = pc.fill_null(pc.not_equal(before, after), False)
    if pc.any(left_out).as_py():
        raise _misfit(values, left_out, field)
    return after


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_duration(kind))
