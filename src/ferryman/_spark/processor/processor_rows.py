"""Rows between Arrow and a processor, as Spark's `Row` objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from ferryman._model.errors import OutputMismatch
from ferryman._operator.run.python_columns import Misfit, to_column, to_list
from ferryman._operator.run.runner import Given

# From the number of a row that a processor gave to "for key ... ".
WhoseRow = Callable[[int], str]


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

    def __init__(self, schema: pa.Schema, given: Given, whose: WhoseRow) -> None:
        super().__init__()
        self._schema = schema
        self._given = given
        self._whose = whose

    def table(self) -> pa.Table:
        """Make a table of them: by name, as Spark does; what a row does not have is null."""
        names = list(self._schema.names)
        made: list[Any] = self
        if any(getattr(row, "__fields__", None) != names for row in self):
            made = [
                row if getattr(row, "__fields__", None) == names else self._by_name(number, row, names)
                for number, row in enumerate(self)
            ]
        columns: Sequence[Any] = list(zip(*made, strict=True)) if made else [()] * len(names)
        arrays = []
        for listed, field in zip(columns, self._schema, strict=True):
            bring = shape(field.type)
            values = list(listed) if bring is None else [bring(value) for value in listed]
            try:
                arrays.append(to_column(values, field, "column"))
            except Misfit as misfit:
                subject = f"output row {self._whose(misfit.position)}".rstrip()
                raise misfit.named(self._given.operator, self._given.epoch, subject) from misfit
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def _by_name(self, number: int, row: Any, names: list[str]) -> tuple[Any, ...]:
        subject = f"operator {self._given.operator!r}, epoch {self._given.epoch}: {self._whose(number)}it gave {row!r}"
        fields = getattr(row, "__fields__", None)
        if not isinstance(row, Row) or fields is None:
            raise OutputMismatch(
                f"{subject}, a {type(row).__name__} without field names. Give pyspark.sql.Row objects with the fields "
                f"{', '.join(names)}. The epoch was not committed."
            )
        if not set(fields) & set(names):
            raise OutputMismatch(
                f"{subject}, which has none of the declared fields {', '.join(names)}. Name the fields as in "
                "outputStructType. The epoch was not committed."
            )
        values = dict(zip(fields, row, strict=True))
        return tuple(values.get(name) for name in names)


Shape = Callable[[Any], Any]


@lru_cache(maxsize=256)
def shape(kind: pa.DataType) -> Shape | None:
    """Give what brings values of a nested type into one shape, as Arrow takes no mixture; None for other types.

    A struct may be a row or a dict, by name, or another tuple, by position; a map a dict or pairs.

    Examples
    --------
    >>> bring = shape(pa.struct([("x", pa.int64()), ("y", pa.string())]))
    >>> bring(Row(y="b", x=1)), bring({"x": 1}), bring((1, "b"))
    ((1, 'b'), (1, None), (1, 'b'))
    """
    t = pa.types
    if t.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return _struct([field.name for field in fields], [shape(field.type) or _same for field in fields])
    if t.is_map(kind):
        return _pairs(shape(kind.key_type) or _same, shape(kind.item_type) or _same)
    return _list(shape(kind.value_type) or _same) if t.is_nested(kind) else None


def _same(value: Any) -> Any:
    return value


def _struct(names: list[str], parts: list[Shape]) -> Shape:
    def bring(value: Any) -> Any:
        if isinstance(value, Row):
            value = value.asDict()
        if isinstance(value, dict):
            value = tuple(map(value.get, names))
        if isinstance(value, tuple) and len(value) == len(parts):
            return tuple(part(item) for part, item in zip(parts, value, strict=True))
        # It does not fit, and is refused by what comes next.
        return value

    return bring


def _pairs(key: Shape, item: Shape) -> Shape:
    def bring(value: Any) -> Any:
        if isinstance(value, dict):
            return [(key(left), item(right)) for left, right in value.items()]
        if isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return [(key(left), item(right)) for left, right in value]
        if isinstance(value, (list, tuple)) and any(pair is None for pair in value):
            # A pair that is null ends the process in Arrow; a key that is null is refused.
            return [(None, None)]
        return value

    return bring


def _list(part: Shape) -> Shape:
    return lambda value: [part(item) for item in value] if isinstance(value, (list, tuple)) else value
