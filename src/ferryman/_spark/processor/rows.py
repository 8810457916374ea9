"""Rows between Arrow and a processor: Spark's `Row` objects, or pandas frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.pandas.types import _create_converter_to_pandas

from ferryman._model.errors import OutputMismatch
from ferryman._operator.run import Given, Whose, to_column, to_list
from ferryman._spark.schema import to_spark


@lru_cache(maxsize=64)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """Give a kind of `Row` that knows its fields: made without a Python call, read without a search by name."""
    fields: dict[str, Any] = {
        name: property(itemgetter(number)) for number, name in enumerate(names) if not hasattr(Row, name)
    }
    return type("Row", (Row,), {**fields, "__fields__": list(names)})


def input_rows(rows: pa.Table) -> Iterator[Row]:
    """Give the rows of a table as Spark would hand them to Python."""
    make = partial(tuple.__new__, row_class(tuple(rows.column_names)))
    return map(make, zip(*(to_list(column) for column in rows.columns), strict=True))


def output_table(made: list[Any], schema: pa.Schema, given: Given, find: Whose) -> pa.Table:
    """Make a table of the rows a processor gave: by name, as Spark does; what a row does not have is null."""
    names = list(schema.names)
    odd: list[Any] = [row for row in made if getattr(row, "__fields__", None) != names]
    if odd:
        made = [row if getattr(row, "__fields__", None) == names else _by_name(row, names, given, find) for row in made]
    columns: Sequence[Any] = list(zip(*made, strict=True)) if made else [()] * len(names)
    arrays = [to_column([_plain(one) for one in listed] if _nested(field) else list(listed), field, "column")
              for listed, field in zip(columns, schema, strict=True)]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=schema)


def _nested(field: pa.Field) -> bool:
    return bool(pa.types.is_nested(field.type))


def _plain(value: Any) -> Any:
    """Turn rows inside rows into what Arrow takes."""
    if isinstance(value, Row):
        return {name: _plain(one) for name, one in value.asDict().items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value


def _by_name(row: Any, names: list[str], given: Given, find: Whose) -> tuple[Any, ...]:
    fields = getattr(row, "__fields__", None)
    if not isinstance(row, Row) or fields is None:
        raise OutputMismatch(
            f"operator {given.operator!r}, epoch {given.epoch}: {find(row)}it gave {row!r}, a {type(row).__name__} "
            f"without field names. Give pyspark.sql.Row objects with the fields {', '.join(names)}. The epoch was "
            "not committed."
        )
    if not set(fields) & set(names):
        raise OutputMismatch(
            f"operator {given.operator!r}, epoch {given.epoch}: {find(row)}it gave {row!r}, which has none of the "
            f"declared fields {', '.join(names)}. Name the fields as in outputStructType. The epoch was not committed."
        )
    values = dict(zip(fields, row, strict=True))
    return tuple(values.get(name) for name in names)


def input_keys(columns: Sequence[pa.Array], timezone: str, *, pandas: bool) -> list[tuple[Any, ...]]:
    """Give keys as Spark hands them over: their values as in a row, or as in a pandas frame."""
    names = [str(number) for number in range(len(columns))]
    table = pa.Table.from_arrays(list(columns), names=names)
    if pandas:
        frame = to_frame(table, timezone)
        return list(zip(*(_column_values(frame[name], field) for name, field in zip(names, table.schema, strict=True)),
                        strict=True))  # fmt: skip
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            table = table.set_column(number, field.name, table.column(number).cast(pa.timestamp("us", timezone)))
    return list(zip(*(to_list(column) for column in table.columns), strict=True))


def expired_keys(columns: Sequence[pa.Array], names: tuple[str, ...]) -> list[Row]:
    """Give keys as Spark hands them over with a timer: as rows, with times as the machine's own clock shows them."""
    lists = [to_list(column) for column in columns]
    for number, column in enumerate(columns):
        if getattr(column.type, "tz", None) is not None:
            lists[number] = [one and one.astimezone().replace(tzinfo=None) for one in lists[number]]
    return list(map(partial(tuple.__new__, row_class(names)), zip(*lists, strict=True)))


def _column_values(column: pd.Series, field: pa.Field) -> list[Any]:
    listed: list[Any] = column.tolist()
    if pa.types.is_integer(field.type) and column.dtype.kind == "f":
        # A null among whole numbers made floats of all of them.
        return [one if one != one else int(one) for one in listed]
    return listed


def to_frame(rows: pa.Table, timezone: str, *, wide: bool = False) -> pd.DataFrame:
    """Make a pandas frame as Spark does: times without a zone, as the session's clock shows them; maps as dicts.

    With `wide`, numbers are of 64 bits, as transformWithStateInPandas has them and applyInPandasWithState has not.
    """
    nested = {}
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            local = pc.local_timestamp(rows.column(number).cast(pa.timestamp("us", timezone)))
            rows = rows.set_column(number, field.name, local)
        elif wide and (pa.types.is_signed_integer(field.type) or pa.types.is_float32(field.type)):
            kind = pa.float64() if pa.types.is_float32(field.type) else pa.int64()
            rows = rows.set_column(number, field.name, rows.column(number).cast(kind))
        elif pa.types.is_nested(field.type) and "timestamp" in str(field.type):
            nested[field.name] = _to_local(field, timezone)(rows.column(number).to_pandas(**_TIMES))
    frame: pd.DataFrame = rows.to_pandas(maps_as_pydicts="lossy", **_TIMES)
    for name, series in nested.items():
        frame[name] = series
    return frame


_TIMES: dict[str, Any] = {"coerce_temporal_nanoseconds": True}


def _to_local(field: pa.Field, timezone: str) -> Callable[[pd.Series], pd.Series]:
    kind = to_spark(pa.schema([field]))[0].dataType
    convert: Callable[[pd.Series], pd.Series] = _create_converter_to_pandas(
        kind, timezone=timezone, struct_in_pandas="dict", error_on_duplicated_field_names=False
    )
    return convert


def output_frames(made: list[Any], schema: pa.Schema, given: Given, find: Whose, timezone: str = "UTC") -> pa.Table:
    """Make a table of the pandas frames a processor gave: by name, or by position where names are no strings."""
    frames = [_checked(frame, schema.names, given, find) for frame in made if len(frame)]
    if not frames:
        return schema.empty_table()
    arrays = [_series(one, field, timezone) for one, field in zip(_columns(frames, schema.names), schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _columns(frames: list[Any], names: list[str]) -> list[Any]:
    """Join the columns of many frames; to convert a frame costs more than a great many rows do."""
    have = list(frames[0].columns)
    if all(list(frame.columns) == have for frame in frames):
        places = [have.index(name) if name in have else number for number, name in enumerate(names)]
        parts = [[frame._mgr.iget_values(place) for frame in frames] for place in places]
        if all(isinstance(one, np.ndarray) and one.dtype == some[0].dtype for some in parts for one in some):
            return [np.concatenate(some) for some in parts]
    # Columns of pandas' own types, or frames that differ.
    whole = pd.concat(frames, ignore_index=True)
    by_name = isinstance(whole.columns[0], str)
    return [whole[name] if by_name else whole.iloc[:, number] for number, name in enumerate(names)]


def _checked(frame: Any, names: list[str], given: Given, find: Whose) -> Any:
    have = list(getattr(frame, "columns", ()))
    if have == names or (have and not isinstance(have[0], str) and len(have) == len(names)):
        return frame
    missing = [name for name in names if name not in have]
    if missing or not isinstance(frame, pd.DataFrame):
        what = f"a frame with the columns {have}" if isinstance(frame, pd.DataFrame) else f"a {type(frame).__name__}"
        raise OutputMismatch(
            f"operator {given.operator!r}, epoch {given.epoch}: {find(frame)}it gave {what}. Give pandas DataFrames "
            f"with the columns {', '.join(names)}, as in outputStructType. The epoch was not committed."
        )
    return frame


def _series(values: Any, field: pa.Field, timezone: str) -> pa.Array:
    try:
        array = pa.array(values, from_pandas=True)
        if pa.types.is_timestamp(array.type) and array.type.tz is None and getattr(field.type, "tz", None):
            array = pc.assume_timezone(array, timezone, ambiguous="earliest", nonexistent="latest")
        return array if array.type == field.type else array.cast(field.type)
    except (pa.ArrowException, TypeError, ValueError):
        # Objects of mixed or nested types go value by value, and the one that does not fit is named.
        listed = [None if one is None or one != one else _plain(one) for one in list(values)]
        return to_column(listed, field, "column")
