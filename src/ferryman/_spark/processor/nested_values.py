"""Values of nested types on their way into a state: what Spark's own conversion would refuse for no reason, or bend."""

from __future__ import annotations

import array
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ferryman._spark.processor.single_values import Convert, leaf


def prepared(kind: DataType) -> Convert | None:
    """Give what makes lists of other sequences, and values of the parts' types; None where nothing is to be done.

    Spark's conversion takes lists alone, and makes a text of anything that is to be one.

    Examples
    --------
    >>> from pyspark.sql.types import ArrayType, StringType
    >>> prepared(ArrayType(StringType()))(("a", "b"))
    ['a', 'b']
    """
    if isinstance(kind, ArrayType):
        return _array(prepared(kind.elementType))
    if isinstance(kind, StructType):
        return _struct(kind.names, [prepared(field.dataType) or _same for field in kind])
    if isinstance(kind, MapType):
        return _map(prepared(kind.keyType) or _same, prepared(kind.valueType) or _same)
    return leaf(kind)


def _same(value: Any) -> Any:
    return value


def _array(part: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (list, tuple, array.array, bytes, bytearray)):
            raise TypeError(f"{value!r} is no array")
        return list(value) if part is None else [part(item) for item in value]

    return convert


def _struct(names: list[str], parts: list[Convert]) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            # Of another length it is refused by what comes next.
            return tuple(map(_call, parts, value)) if len(value) == len(parts) else value
        if isinstance(value, dict) or hasattr(value, "__dict__"):
            own = value if isinstance(value, dict) else vars(value)
            return {name: part(own.get(name)) for name, part in zip(names, parts, strict=True)}
        return value

    return convert


def _call(part: Convert, value: Any) -> Any:
    return part(value)


def _key(part: Convert, name: Any) -> Any:
    made = part(name)
    try:
        hash(made)
    except TypeError:
        # A list could be no key; it is looked at and no more.
        return name
    return made


def _map(key: Convert, item: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        made = {_key(key, name): item(part) for name, part in value.items()}
        if len(made) != len(value):
            raise TypeError(f"{value!r} has keys that become one")
        return made

    return convert
