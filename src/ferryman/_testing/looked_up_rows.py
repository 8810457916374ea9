"""Put a table that is looked up beside rows without Spark, as Spark's join on columns does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ferryman._spark.api.lookups import Looked


def looked_up_rows(looked: Looked, rows: pa.Table) -> pa.Table:
    """Give each row with those of the table that have its key; in the order of both."""
    table = looked.table.rows
    assert table is not None, "an epoch has a version of it"
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(_keys(table, looked.table.on)):
        if None not in key:
            places.setdefault(key, []).append(place)
    none: list[int | None] = [None] if looked.table.how == "left" else []
    ours: list[int] = []
    theirs: list[int | None] = []
    for place, key in enumerate(_keys(rows, looked.on)):
        found = places.get(key, none)
        ours += [place] * len(found)
        theirs += found
    mine = rows.take(pa.array(ours, pa.int64()))
    beside = table.take(pa.array(theirs, pa.int64()))
    columns = {name: mine.column(name) for name in (*looked.on, *rows.column_names)}
    columns |= {name: beside.column(name) for name in table.column_names if name not in looked.table.on}
    return pa.table(columns)


def _keys(rows: pa.Table, on: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Give keys such that equal ones are one: no number is no number to itself."""
    columns = [rows.column(name).to_pylist() for name in on]
    return [tuple("NaN" if value != value else value for value in key) for key in zip(*columns, strict=True)]
