"""Rows between Arrow and a processor, as Spark's `Row` objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from ferryman._model.errors import OutputMismatch
from ferryman._operator.run import Given, Misfit, to_column, to_list

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
            values = [plain(one) for one in listed] if _nested(field) else list(listed)
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
