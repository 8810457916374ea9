"""Which types of columns each declared aggregate takes, and what to cast others to."""

from __future__ import annotations

import pyarrow as pa

from ferryman._state.aggregates.numpy_columns import is_fixed, is_varying

ADDING = ("sum", "avg", "variance", "stddev")


def type_fault(kind: str, type: pa.DataType) -> str | None:
    """Say why a column of a type cannot be aggregated, and what to do; None if it can."""
    if kind == "count":
        return None
    if kind in (*ADDING, "percentile"):
        if pa.types.is_integer(type) or pa.types.is_float32(type) or pa.types.is_float64(type):
            unsigned = kind == "sum" and pa.types.is_uint64(type)
            return f"a sum of {type} may not fit a long; cast to long or double" if unsigned else None
        to = "int" if pa.types.is_boolean(type) else "double"
        return f"values of type {type} cannot be added up; cast the column to {to}"
    if is_fixed(type) or is_varying(type):
        return None
    if pa.types.is_decimal(type) or pa.types.is_floating(type):
        return f"type {type} is not supported; cast the column to double"
    if pa.types.is_nested(type):
        return f"type {type} is not supported; select the one field or element that is wanted"
    return f"type {type} is not supported; cast the column to a number, a date, a timestamp or a string"
