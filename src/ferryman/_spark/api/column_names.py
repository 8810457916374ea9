"""Columns by the names that users have for them, as Spark finds them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import StructType

from ferryman._model.errors import InvalidConfiguration


def find_name(name: str, names: Sequence[str], *, exactly: bool) -> str | None:
    """Find a name among others, with backticks or without; None where there is none, or more than one.

    Examples
    --------
    >>> find_name("K", ["k", "v"], exactly=False), find_name("`v`", ["k", "v"], exactly=True)
    ('k', 'v')
    """
    for spelling in (name, name[1:-1] if len(name) > 2 and name[0] == name[-1] == "`" else name):
        if spelling in names:
            return spelling
        alike = [other for other in names if other.lower() == spelling.lower()]
        if len(alike) == 1 and not exactly:
            return alike[0]
    return None


def grouping_name(column: Any, schema: StructType) -> str:
    """Give the name of a column that `groupBy` got: as a name, a column, or its place from 1 on."""
    if isinstance(column, int) and 0 < column <= len(schema.names):
        return schema.names[column - 1]
    found = re.fullmatch(r"Column<'([^'()]+)'>", str(column))
    name = column if isinstance(column, str) else found and found[1]
    if name is None:
        raise InvalidConfiguration(
            f"groupBy got {column!r}. Group by columns of the stream, by name; compute new ones with select before."
        )
    outer, _, inner = name.partition(".")
    if inner and name not in schema.names and outer in schema.names and isinstance(schema[outer].dataType, StructType):
        raise InvalidConfiguration(
            f"groupBy got {name!r}, a field of the struct {outer!r}, and a key is a column. Make one of it before: "
            f'select("*", F.col("{name}").alias("{inner}")).groupBy("{inner}").'
        )
    return name
