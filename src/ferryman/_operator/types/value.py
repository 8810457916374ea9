"""Declare state: one typed value per key."""

from __future__ import annotations

import copy
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa

from ferryman._operator.declare.declared_types import arrow_type, dumper, loader

T = TypeVar("T")


class Value(Generic[T]):
    """Declare one value per key; inside `process` it is a plain attribute.

    Parameters
    ----------
    kind
        A Python type (`int`, `float`, `str`, `list[float]`, a dataclass, ...) or a pyarrow type.
    default
        What a key that was never seen starts with; None if left out. A key that had state before the value was
        declared has it too.
    alias
        The name that the value had before; with a `ttl`, as for other states, the name that it had first.
    ttl
        After how many milliseconds a value that was not set again is the default again; None for never.

    A dict, a set or a dataclass comes back as such, at any depth.

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

    def __new__(
        cls, kind: Any = None, default: Any = None, *, alias: str | None = None, ttl: int | None = None
    ) -> Value[T]:
        """Give one that is an attribute and no more; or, with a time to live, one that notices when it is set."""
        if ttl is None:
            return super().__new__(cls)
        # Only here: it is built on all that other states are built on, which are built on this.
        from ferryman._operator.types.timed_value import TimedValue

        return TimedValue(kind, default, alias, ttl)  # type: ignore[return-value]

    @overload
    def __init__(self, kind: type[T], default: T, *, alias: str | None = None, ttl: int | None = None) -> None: ...
    @overload
    def __init__(self, kind: Any, default: Any = None, *, alias: str | None = None, ttl: int | None = None) -> None: ...
    def __init__(self, kind: Any, default: Any = None, *, alias: str | None = None, ttl: int | None = None) -> None:
        self.type = arrow_type(kind)
        self.kind = kind
        self.default = default
        self.alias = alias
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
        convert = loader(self.kind)
        return stored if convert is None else [convert(value) for value in stored]

    def dump(self, values: list[Any]) -> list[Any]:
        """Turn values as declared into what Arrow takes."""
        convert = dumper(self.kind)
        return values if convert is None else [_or_as_it_is(convert, value) for value in values]

    @property
    def mutable(self) -> bool:
        """Tell whether a value could be changed in place."""
        return bool(pa.types.is_nested(self.type))

    def fresh(self) -> Any:
        """Give a new key its default, never shared between keys."""
        return copy.deepcopy(self.default) if self.mutable else self.default


def _or_as_it_is(plain: Any, value: Any) -> Any:
    # A value of another type than declared goes on as it is, and is refused with its key where columns are made.
    try:
        return plain(value)
    except (AttributeError, TypeError, ValueError):
        return value
