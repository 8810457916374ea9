"""Keys between Arrow and a processor: as Spark hands them over, with rows, with frames, and with timers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Row

from ferryman._operator.run.python_columns import to_list
from ferryman._spark.processor.input_frames import to_frame
from ferryman._spark.processor.processor_rows import row_class


def input_keys(
    columns: Sequence[pa.Array], timezone: str, *, pandas: bool, numpy: bool = False
) -> list[tuple[Any, ...]]:
    """Give keys as Spark hands them over: their values as in a row, or as in a pandas frame.

    With `numpy`, numbers and booleans are numpy's own, as applyInPandasWithState has them.
    """
    names = [str(number) for number in range(len(columns))]
    table = pa.Table.from_arrays(list(columns), names=names)
    if pandas:
        frame = to_frame(table, timezone)
        values = _numpy_values if numpy else _column_values
        return list(zip(*(values(frame[name], table.column(name)) for name in names), strict=True))
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            table = table.set_column(number, field.name, table.column(number).cast(pa.timestamp("us", timezone)))
    return list(zip(*(to_list(column) for column in table.columns), strict=True))


def expired_keys(columns: Sequence[pa.Array], names: tuple[str, ...]) -> list[Row]:
    """Give keys as Spark hands them over with a timer: as rows, with times as the machine's own clock shows them."""
    lists = [to_list(column) for column in columns]
    for number, column in enumerate(columns):
        if getattr(column.type, "tz", None) is not None:
            lists[number] = [time and time.astimezone().replace(tzinfo=None) for time in lists[number]]
    return list(map(partial(tuple.__new__, row_class(names)), zip(*lists, strict=True)))


def _column_values(column: pd.Series, keys: pa.ChunkedArray) -> list[Any]:
    listed: list[Any] = column.tolist()
    if pa.types.is_integer(keys.type) and column.dtype.kind == "f":
        # A null among whole numbers made floats of all of them.
        return [number if number != number else int(number) for number in listed]
    return listed


def _numpy_values(column: pd.Series, keys: pa.ChunkedArray) -> list[Any]:
    if not (pa.types.is_integer(keys.type) or pa.types.is_floating(keys.type) or pa.types.is_boolean(keys.type)):
        return column.tolist()
    # What is no null keeps its type, also beside one.
    whole = iter(keys.drop_null().to_numpy())
    null: Any = np.float32("nan") if pa.types.is_float32(keys.type) else np.float64("nan")
    if pa.types.is_boolean(keys.type):
        null = None
    return [null if missing else next(whole) for missing in keys.is_null().to_numpy().tolist()]
