"""Make tables of the rows that an operator gave: its own, and those of its sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ferryman._model.errors import OutputMismatch
from ferryman._operator.declare.side_outputs import Aside
from ferryman._operator.run.python_columns import Misfit, to_column
from ferryman._operator.run.runner import Given, Whose, whose


def output_tables(
    given: Given,
    made: list[Any],
    ends: Sequence[int],
    keys: Sequence[Any],
    schema: pa.Schema,
    sides: Mapping[str, pa.Schema],
) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Give an operator's own rows and those of its sides; `ends` says how many there were after each of the keys."""
    find = whose(made, ends, keys)
    own, aside = _parted(given, made, sides, find)
    return _output_rows(given, own, schema, find), aside


def _parted(
    given: Given, made: list[Any], sides: Mapping[str, pa.Schema], find: Whose
) -> tuple[list[Any], dict[str, pa.Table]]:
    """Part the rows an operator gave into its own and those of its sides."""
    if not sides:
        return made, {}
    own = [row for row in made if not isinstance(row, Aside)]
    aside: dict[str, list[Any]] = {name: [] for name in sides}
    for row in made:
        if isinstance(row, Aside):
            if row.name not in aside:
                raise OutputMismatch(
                    f"operator {given.operator!r}, epoch {given.epoch}: {find(row)}it gave a row to the side "
                    f"{row.name!r}, and declares {', '.join(sides)}. Declare it in `sides`. The epoch was not "
                    "committed."
                )
            aside[row.name].append(row.row)
    return own, {name: _output_rows(given, rows, sides[name], find) for name, rows in aside.items()}


def _output_rows(given: Given, made: list[Any], schema: pa.Schema, find: Whose) -> pa.Table:
    """Make a table of the rows an operator gave, tuples or dicts."""
    if not made:
        return schema.empty_table()
    names = schema.names
    try:
        if isinstance(made[0], dict):
            columns = [[row[name] for row in made] for name in names]
        else:
            columns = [list(column) for column in zip(*made, strict=True)]
            if len(columns) != len(names):
                raise ValueError(f"{len(columns)} values")
            if _alike(schema) and not all(isinstance(row, (tuple, list)) for row in made):
                raise TypeError("a row that is neither a tuple nor a list")
    except (KeyError, TypeError, ValueError) as error:
        kind = dict if isinstance(made[0], dict) else (tuple, list)
        wrong = next((row for row in made if not (isinstance(row, kind) and _fits(row, names))), made[0])
        raise OutputMismatch(
            f"operator {given.operator!r}, epoch {given.epoch}: {find(wrong)}it gave the row {wrong!r}, which does "
            f"not have the {len(names)} declared columns ({', '.join(names)}). Give tuples in that order, or dicts "
            "with those names, and not both. The epoch was not committed."
        ) from error
    try:
        arrays = [to_column(column, field, "output column") for column, field in zip(columns, schema, strict=True)]
    except Misfit as misfit:
        row = made[misfit.position]
        raise misfit.named(given.operator, given.epoch, f"row {row!r} {find(row)}".rstrip()) from misfit
    return pa.Table.from_arrays(arrays, schema=schema)


def _alike(schema: pa.Schema) -> bool:
    """Tell whether a text, a set or the names of a dict could pass for a row: their parts are all of one type."""
    return len({pa.binary() if _is_text(kind) else kind for kind in schema.types}) == 1


def _fits(row: Any, names: list[str]) -> bool:
    if isinstance(row, dict):
        return all(name in row for name in names)
    return isinstance(row, (tuple, list)) and len(row) == len(names)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
