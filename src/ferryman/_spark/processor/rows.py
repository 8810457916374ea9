"""Rows between Arrow and a processor, as Spark's `Row` objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from ferryman._model.errors import OutputMismatch
from ferryman._operator.run import Given, to_column, to_list


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


class OutputRows(list[Any]):
    """The rows that a processor gives."""

    def __init__(self, schema: pa.Schema, given: Given) -> None:
        super().__init__()
        self._schema = schema
        self._given = given

    def table(self) -> pa.Table:
        """Make a table of them: by name, as Spark does; what a row does not have is null."""
        return _table(self, self._schema, self._given)


def _table(made: list[Any], schema: pa.Schema, given: Given) -> pa.Table:
    names = list(schema.names)
    odd: list[Any] = [row for row in made if getattr(row, "__fields__", None) != names]
    if odd:
        made = [row if getattr(row, "__fields__", None) == names else _by_name(row, names, given) for row in made]
    columns: Sequence[Any] = list(zip(*made, strict=True)) if made else [()] * len(names)
    arrays = [to_column([plain(one) for one in listed] if _nested(field) else list(listed), field, "column")
              for listed, field in zip(columns, schema, strict=True)]  # fmt: skip
    return pa.Table.from_arrays(arrays, schema=schema)


def _nested(field: pa.Field) -> bool:
    return bool(pa.types.is_nested(field.type))


def plain(value: Any) -> Any:
    """Turn rows inside rows into what Arrow takes."""
    if isinstance(value, Row):
        return {name: plain(one) for name, one in value.asDict().items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value


def _by_name(row: Any, names: list[str], given: Given) -> tuple[Any, ...]:
    fields = getattr(row, "__fields__", None)
    if not isinstance(row, Row) or fields is None:
        raise OutputMismatch(
            f"operator {given.operator!r}, epoch {given.epoch}: it gave {row!r}, a {type(row).__name__} without field "
            f"names. Give pyspark.sql.Row objects with the fields {', '.join(names)}. The epoch was not committed."
        )
    if not set(fields) & set(names):
        raise OutputMismatch(
            f"operator {given.operator!r}, epoch {given.epoch}: it gave {row!r}, which has none of the declared fields "
            f"{', '.join(names)}. Name the fields as in outputStructType. The epoch was not committed."
        )
    values = dict(zip(fields, row, strict=True))
    return tuple(values.get(name) for name in names)
