"""Declared types: their Arrow type, and how Python values come out of Arrow and go in again, at any depth."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.declare import ddl
from ferryman._state.earlier_columns import named

Convert = Callable[[Any], Any]

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
    """Give the Arrow type of a declared one: a Python type, a dataclass, an Arrow type, or one in DDL.

    Examples
    --------
    >>> arrow_type(list[float])
    ListType(list<item: double>)
    """
    if isinstance(declared, pa.DataType):
        if not _can_be_kept(declared):
            raise InvalidConfiguration(
                f"{declared} is a type that files of state cannot hold. Use one of Arrow's plain layouts: string for "
                "string_view, list_ for list_view, three integers for an interval."
            )
        return declared
    if isinstance(declared, str):
        try:
            return ddl.parse_type(declared)
        except ValueError as error:
            raise InvalidConfiguration(f"{error}. Write a type as Spark does, for example 'array<double>'.") from error
    if declared in _PLAIN:
        return _PLAIN[declared]
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin in (list, set, frozenset) and len(arguments) == 1:
        return pa.list_(arrow_type(arguments[0]))
    if origin is dict and len(arguments) == 2:
        return pa.map_(arrow_type(arguments[0]), arrow_type(arguments[1]))
    if (inner := _optional(declared)) is not None:
        return arrow_type(inner)
    if dataclasses.is_dataclass(declared) and isinstance(declared, type):
        aliases = {field.name: _aliases(field) for field in dataclasses.fields(declared)}
        refuse_shared(f"dataclass {declared.__name__!r}", aliases)
        return pa.struct([named(name, arrow_type(kind), aliases[name]) for name, kind in _fields(declared).items()])
    raise InvalidConfiguration(
        f"{declared!r} is not a type that state can have. Use int, float, bool, str, bytes, a date or time, "
        "list[...], dict[...], a dataclass, a pyarrow type, or a type in DDL such as 'array<double>'."
    )


def _can_be_kept(kind: pa.DataType) -> bool:
    t = pa.types
    if t.is_nested(kind) and not t.is_union(kind) and not t.is_list_view(kind) and not t.is_large_list_view(kind):
        return all(_can_be_kept(kind.field(number).type) for number in range(kind.num_fields))
    views = (t.is_string_view, t.is_binary_view, t.is_list_view, t.is_large_list_view)
    return not any(test(kind) for test in (*views, t.is_union, t.is_interval, t.is_run_end_encoded))


def refuse_shared(where: str, aliases: Mapping[str, Sequence[str]]) -> None:
    """Refuse a name that is one's own and another's alias, or the alias of two: both would read the same old values."""
    seen: dict[str, str] = {}
    for name, earlier in aliases.items():
        for known in {name, *earlier}:
            if known in seen:
                raise InvalidConfiguration(
                    f"{where}: {seen[known]!r} and {name!r} are both called {known!r}, now or by their alias, so both "
                    "would get what was kept under that name. Give the new one another name."
                )
            seen[known] = name


def loader(declared: Any) -> Convert | None:
    """Give what turns Arrow's Python values into those of a declared type; None where they are the same."""
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if (inner := _optional(declared)) is not None:
        return loader(inner)
    if origin in (list, set, frozenset):
        return _loads_many(origin, loader(arguments[0]))
    if origin is dict:
        return _loads_pairs(loader(arguments[0]) or _same, loader(arguments[1]) or _same)
    if isinstance(declared, (str, pa.DataType)) and pa.types.is_map(arrow_type(declared)):
        return lambda value: None if value is None else dict(value)
    if dataclasses.is_dataclass(declared) and isinstance(declared, type):
        parts = {name: loader(kind) or _same for name, kind in _fields(declared).items()}
        defaults = _defaults(declared)
        return lambda value: (
            None
            if value is None
            else declared(
                **{
                    name: defaults[name]() if item is None and name in defaults else parts[name](item)
                    for name, item in value.items()
                }
            )
        )
    return None


def dumper(declared: Any) -> Convert | None:
    """Give what turns values of a declared type into what Arrow takes; None where they are the same.

    A set is put in order, as deltas are compared by their bytes. A value of another type than declared raises, or is
    refused by Arrow.
    """
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if (inner := _optional(declared)) is not None:
        return dumper(inner)
    if origin in (set, frozenset):
        part = dumper(arguments[0]) or _same
        return lambda value: None if value is None else sorted(part(item) for item in _of(value, (set, frozenset)))
    if origin is list:
        convert = dumper(arguments[0])
        return None if convert is None else lambda value: None if value is None else [convert(item) for item in value]
    if origin is dict or (isinstance(declared, (str, pa.DataType)) and pa.types.is_map(arrow_type(declared))):
        key, item = ((dumper(kind) or _same) for kind in arguments) if arguments else (_same, _same)
        return lambda value: (
            None if value is None else [(key(name), item(entry)) for name, entry in _of(value, dict).items()]
        )
    if dataclasses.is_dataclass(declared) and isinstance(declared, type):
        parts = {name: dumper(kind) or _same for name, kind in _fields(declared).items()}
        return lambda value: (
            None if value is None else {name: part(getattr(_of(value, declared), name)) for name, part in parts.items()}
        )
    return None


def _same(value: Any) -> Any:
    return value


def _of(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"a {type(value).__name__}")
    return value


def _loads_many(make: Any, part: Convert | None) -> Convert | None:
    if part is None:
        return None if make is list else lambda value: None if value is None else make(value)
    return lambda value: None if value is None else make([part(item) for item in value])


def _loads_pairs(key: Convert, item: Convert) -> Convert:
    return lambda value: None if value is None else {key(name): item(entry) for name, entry in value}


def _optional(declared: Any) -> Any:
    """Give what a type is besides None; None if it is no such type."""
    if typing.get_origin(declared) in (typing.Union, types.UnionType):
        inner = [kind for kind in typing.get_args(declared) if kind is not type(None)]
        if len(inner) == 1:
            return inner[0]
    return None


def _defaults(declared: type) -> dict[str, Callable[[], Any]]:
    """Give the defaults of the fields that cannot be None: what they have where they were not declared yet."""
    hints, found = _fields(declared), {}
    for field in dataclasses.fields(declared):
        if _optional(hints[field.name]) is None:
            if field.default_factory is not dataclasses.MISSING:
                found[field.name] = field.default_factory
            elif field.default is not dataclasses.MISSING:
                found[field.name] = functools.partial(_same, field.default)
    return found


def _aliases(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    alias = field.metadata.get("alias", ())
    aliases = (alias,) if isinstance(alias, str) else tuple(alias)
    if not all(isinstance(name, str) for name in aliases):
        raise InvalidConfiguration(
            f"field {field.name!r}: alias={alias!r}. Give the name it had before, or several, newest first."
        )
    return aliases


def _fields(declared: type) -> dict[str, Any]:
    hints = typing.get_type_hints(declared)
    return {field.name: hints[field.name] for field in dataclasses.fields(declared)}
