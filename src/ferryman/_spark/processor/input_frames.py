"""The frames that a processor gets, with the types that Spark gives them: they depend on where there are nulls.

pandas has no null among numpy's whole numbers and booleans. Spark converts the rows of each key for themselves for a
function of applyInPandasWithState, so that a null makes floats of its own key's numbers alone; for
transformWithStateInPandas all rows of an Arrow batch are converted at once, and pandas then finds out the types of each
key's frame anew, which makes booleans of those without a null. Which rows come in one batch follows from the order in
which Spark sorts keys; here it is all rows of an instance.

A frame often has a row or two: it counts what is done to a frame, not to a row. So one frame is cut by pandas' blocks,
past what pandas looks at first, and by its public methods where it has no such blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._spark.compat.conversion import into_pandas
from ferryman._spark.plan.schema import to_spark


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
            kind = to_spark(pa.schema([field]))[0].dataType
            nested[number] = into_pandas(kind, timezone)(plain)
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


def key_frames(rows: pa.Table, counts: list[int], timezone: str, *, group_state: bool) -> Iterator[pd.DataFrame]:
    """Cut rows into one frame per key, by the number of its rows."""
    if not group_state:
        return _together(_with_floats(rows).rename_columns(spark_names(rows.column_names)), counts, timezone, wide=True)
    # An array's own type is another where there is a null in it, or in one that is converted with it.
    nested = [column.combine_chunks() for column in rows.columns if pa.types.is_nested(column.type)]
    masks = [_null_in_array(column) for column in nested if _list_with_nulls(column)]
    if not masks:
        return _together(rows, counts, timezone, wide=False)
    return _some_alone(rows, counts, np.logical_or.reduce(masks), timezone)


def _together(rows: pa.Table, counts: list[int], timezone: str, *, wide: bool) -> Iterator[pd.DataFrame]:
    """Convert the rows of all keys at once, or of those that have nulls in the same columns."""
    uneven = [
        number
        for number, field in enumerate(rows.schema)
        if rows.column(number).null_count and _changes_with_nulls(field.type)
    ]
    if not uneven:
        return cut(to_frame(rows, timezone, wide=wide), counts)
    return _by_pattern(rows, counts, uneven, timezone, wide=wide)


def _some_alone(
    rows: pa.Table, counts: list[int], mask: npt.NDArray[np.bool_], timezone: str
) -> Iterator[pd.DataFrame]:
    """Convert the keys alone that have a row in the mask; hand the frames out in the order of the keys."""
    ends = np.cumsum(np.array(counts, np.int64))
    begins = ends - np.array(counts, np.int64)
    alone = np.logical_or.reduceat(mask, begins)
    others = np.flatnonzero(~alone)
    rest: Iterator[pd.DataFrame] = iter(())
    if len(others):
        taken = rows.take(pa.array(_rows_of(begins[others], ends[others])))
        rest = _together(taken, (ends - begins)[others].tolist(), timezone, wide=False)
    for by_itself, begin, end in zip(alone.tolist(), begins.tolist(), ends.tolist(), strict=True):
        # A slice of maps would still have the others' values behind it, and their nulls.
        yield to_frame(rows.take(pa.array(range(begin, end))), timezone) if by_itself else next(rest)


def _by_pattern(
    rows: pa.Table, counts: list[int], uneven: list[int], timezone: str, *, wide: bool
) -> Iterator[pd.DataFrame]:
    """Convert together the keys that have nulls in the same columns; hand the frames out in the order of the keys."""
    ends = np.cumsum(np.array(counts, np.int64))
    begins = ends - np.array(counts, np.int64)
    masks = [rows.column(number).is_null().to_numpy() for number in uneven]
    # For every key, in which of these columns it has a null.
    patterns = np.stack([np.logical_or.reduceat(mask, begins) for mask in masks], axis=1)
    kinds, which = np.unique(patterns, axis=0, return_inverse=True)
    which = which.reshape(-1)
    frames = []
    for kind in range(len(kinds)):
        mine = np.flatnonzero(which == kind)
        taken = rows.take(pa.array(_rows_of(begins[mine], ends[mine])))
        frames.append(cut(to_frame(taken, timezone, wide=wide), (ends - begins)[mine].tolist()))
    for kind in which.tolist():
        yield next(frames[kind])


def _rows_of(begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.arange(begin, end) for begin, end in zip(begins, ends, strict=True)])


def _with_floats(rows: pa.Table) -> pa.Table:
    """Make floats of whole numbers with a null among them, for all keys alike."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_integer(field.type) and rows.column(number).null_count:
            rows = rows.set_column(number, field.name, rows.column(number).cast(pa.float64(), safe=False))
    return rows


def _changes_with_nulls(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _list_with_nulls(column: pa.Array | pa.ChunkedArray) -> bool:
    """Tell whether there is an array of whole numbers or booleans with a null in it, at any depth."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        return any(_list_with_nulls(chunk) for chunk in column.chunks)
    if pa.types.is_struct(kind):
        return any(_list_with_nulls(column.field(number)) for number in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _list_with_nulls(column.items)
    if pa.types.is_nested(kind):
        values = column.flatten()
        return bool(values.null_count and _changes_with_nulls(values.type)) or _list_with_nulls(values)
    return False


def _null_in_array(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Tell of each row whether it has an array of whole numbers or booleans with a null in it, at any depth."""
    kind = column.type
    if pa.types.is_struct(kind):
        masks = [_null_in_array(column.field(number)) for number in range(kind.num_fields)]
        return np.logical_or.reduce(masks) if masks else np.zeros(len(column), np.bool_)
    if not pa.types.is_nested(kind):
        return np.zeros(len(column), np.bool_)
    offsets = column.offsets.to_numpy()
    inner = (column.items if pa.types.is_map(kind) else column.values).slice(offsets[0], offsets[-1] - offsets[0])
    mask = _null_in_array(inner)
    if not pa.types.is_map(kind) and _changes_with_nulls(inner.type):
        mask = mask | inner.is_null().to_numpy(zero_copy_only=False)
    # How many there are before each array, and behind it.
    before = np.concatenate([[0], np.cumsum(mask)])[offsets - offsets[0]]
    return np.asarray(np.diff(before) > 0)


def spark_names(names: list[str]) -> list[str]:
    """Name columns as transformWithStateInPandas does: one that could be no attribute in Python goes by its place.

    Examples
    --------
    >>> spark_names(["key", "my count", "_x", "class"])
    ['key', '_1', '_2', '_3']
    """
    seen: set[str] = set()
    made = []
    for place, name in enumerate(names):
        bad = not name.isidentifier() or iskeyword(name) or name.startswith("_") or name in seen
        seen.add(name)
        made.append(f"_{place}" if bad else name)
    return made
