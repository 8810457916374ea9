"""Declare state: one typed value per key."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import types
import typing
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa

from ferryman._model.errors import InvalidConfiguration

T = TypeVar("T")

_PLAIN: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us", tz="UTC"),
    datetime.date: pa.date32(),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 18),
}


def arrow_type(declared: Any) -> pa.DataType:
    """Give the Arrow type of a declared one: a Python type, a dataclass or an Arrow type.

    Examples
    --------
    >>> arrow_type(list[float])
    ListType(list<item: double>)
    """
    if isinstance(declared, pa.DataType):
        return declared
    if declared in _PLAIN:
        return _PLAIN[declared]
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin in (list, set, frozenset) and len(arguments) == 1:
        return pa.list_(arrow_type(arguments[0]))
    if origin is dict and len(arguments) == 2:
        return pa.map_(arrow_type(arguments[0]), arrow_type(arguments[1]))
    if origin in (typing.Union, types.UnionType):
        inner = [one for one in arguments if one is not type(None)]
        if len(inner) == 1:
            return arrow_type(inner[0])
    if dataclasses.is_dataclass(declared) and isinstance(declared, type):
        hints = typing.get_type_hints(declared)
        return pa.struct([(one.name, arrow_type(hints[one.name])) for one in dataclasses.fields(declared)])
    raise InvalidConfiguration(
        f"{declared!r} is not a type that state can have. Use int, float, bool, str, bytes, a date or time, "
        "list[...], dict[...], a dataclass, or a pyarrow type."
    )


class Value(Generic[T]):
    """Declare one value per key; inside `process` it is a plain attribute.

    Parameters
    ----------
    kind
        A Python type (`int`, `float`, `str`, `list[float]`, a dataclass, ...) or a pyarrow type.
    default
        What a key that was never seen starts with; None if left out.

    A dict, a set or a dataclass comes back as such; inside another type, as Arrow gives it: a list of pairs,
    a list, a dict of fields.

    Examples
    --------
    >>> from ferryman import Operator, Value
    >>> class Count(Operator):
    ...     n = Value(int, 0)
    ...     output = "key string, n long"
    ...     def process(self, key, row):
    ...         self.n += 1
    ...         yield key, self.n
    >>> Count.n.type
    DataType(int64)
    """

    @overload
    def __init__(self, kind: type[T], default: T) -> None: ...
    @overload
    def __init__(self, kind: Any, default: Any = None) -> None: ...
    def __init__(self, kind: Any, default: Any = None) -> None:
        self.type = arrow_type(kind)
        self.kind = kind
        self.default = default
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    # Only `__get__`, no `__set__`: once the value of a key is in the instance's own dictionary, reading
    # and writing it is as fast as any attribute.
    @overload
    def __get__(self, instance: None, owner: type) -> Value[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Value[T] | T:
        if instance is None:
            return self
        raise AttributeError(
            f"state {self.name!r} has a value only while a key is processed; set it in `process`, not before"
        )

    def load(self, stored: list[Any]) -> list[Any]:
        """Turn what Arrow gives back into what was declared: a map into a dict, a struct into its dataclass."""
        make = self._make()
        return stored if make is None else [None if one is None else make(one) for one in stored]

    def dump(self, values: list[Any]) -> list[Any]:
        """Turn values as declared into what Arrow takes; a set in a fixed order, as deltas are compared by bytes."""
        origin = typing.get_origin(self.kind)
        plain: Any
        if origin in (set, frozenset):
            plain = sorted
        elif origin is dict:
            plain = _pairs
        elif dataclasses.is_dataclass(self.kind):
            plain = dataclasses.asdict
        else:
            return values
        return [None if one is None else _or_as_it_is(plain, one) for one in values]

    def _make(self) -> Any:
        origin = typing.get_origin(self.kind)
        if origin in (set, frozenset, dict):
            return origin
        if dataclasses.is_dataclass(self.kind):
            kind: Any = self.kind
            return lambda fields: kind(**fields)
        return None

    @property
    def mutable(self) -> bool:
        """Tell whether a value could be changed in place."""
        return bool(pa.types.is_nested(self.type))

    def fresh(self) -> Any:
        """Give a new key its default, never shared between keys."""
        return copy.deepcopy(self.default) if self.mutable else self.default


def _pairs(value: Any) -> list[Any]:
    return list(value.items())


def _or_as_it_is(plain: Any, value: Any) -> Any:
    # A value of another type than declared goes on as it is, and is refused with its key where columns are made.
    try:
        return plain(value)
    except (AttributeError, TypeError):
        return value
