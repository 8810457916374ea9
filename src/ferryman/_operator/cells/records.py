"""The type of one value of a state: checked when it is taken, and as columns where it is stored."""

from __future__ import annotations

import copy
import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._operator.run.python_columns import BROKEN, Misfit, to_column, to_list

Convert = Callable[[Any], Any]

_PLAIN = (bool, int, float, str, bytes, type(None))


@dataclass(frozen=True)
class Record:
    """The type of one value of a state: a tuple with named, typed fields.

    Attributes
    ----------
    fields
        The fields, as Arrow has them.
    load, dump
        For each field, how its Python values are made of Arrow's, and the other way round; None for as they are.
    row
        The kind of tuple that values are handed out as.
    nulls
        Whether a key of a map may have nulls, and NaNs, in it.
    plain
        Makes a plain Python value of one of another library, before `dump` sees it; None if that is not done.
    """

    fields: tuple[pa.Field, ...]
    load: tuple[Convert | None, ...] = ()
    dump: tuple[Convert | None, ...] = ()
    row: type[tuple[Any, ...]] = tuple
    nulls: bool = False
    plain: Convert | None = None

    @property
    def type(self) -> pa.DataType:
        """Give the Arrow type of a value."""
        return pa.struct(self.fields)

    @property
    def mutable(self) -> bool:
        """Tell whether a value that was handed out could be changed in place."""
        return any(pa.types.is_nested(field.type) for field in self.fields)

    def tuples(self, columns: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
        """Make one tuple of each row of some columns."""
        lists = [to_list(column) for column in columns]
        for number, convert in enumerate(self.load):
            if convert is not None:
                lists[number] = [convert(value) for value in lists[number]]
        rows = zip(*lists, strict=True)
        return list(rows) if self.row is tuple else list(map(partial(tuple.__new__, self.row), rows))

    def subkeys(self, columns: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
        """Make the keys of a map from their columns, as `subkey` gives them."""
        found = self.tuples(columns)
        if self.nulls and any(pa.types.is_floating(field.type) for field in self.fields):
            return [_same_nans(subkey) for subkey in found]
        return found

    def columns(self, values: Sequence[tuple[Any, ...] | None], where: str) -> list[pa.Array]:
        """Make columns of tuples; None gives nulls. `Misfit` says which value does not fit its field."""
        blank = (None,) * len(self.fields)
        lists = list(zip(*(blank if value is None else value for value in values), strict=True)) or [()] * len(
            self.fields
        )
        made = []
        for number, (column, field) in enumerate(zip(lists, self.fields, strict=True)):
            convert = self.dump[number] if self.dump else None
            listed = list(column)
            if convert is not None:
                listed = [_converted(convert, field, position, value, where) for position, value in enumerate(listed)]
            made.append(to_column(listed, field, where))
        return made

    def taken(self, value: Any, name: str) -> tuple[Any, ...]:
        """Check a value and take it: what the user does to it afterwards is not the state's any more."""
        checked = self.checked(value, name)
        if self.plain is not None:
            checked = self._as_read_again(checked)
        if type(checked) is not self.row:
            checked = tuple.__new__(self.row, checked)
        return copy.deepcopy(checked) if self.mutable else checked

    def _as_read_again(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Give values as later epochs will read them, so that this one reads the same."""
        assert self.plain is not None, "the caller looked"
        read: list[Any] = []
        for number, value in enumerate(values):
            if type(value) is self._as_they_are[number] or value is None:
                read.append(value)
                continue
            try:
                value = self.plain(value)
                read.append(self._own(number, self._as_stored(number, value)))
            except Exception:  # What does not fit is refused, with its field, when the key's changes are gathered.
                read.append(value)
        return tuple(read)

    def _own(self, number: int, value: Any) -> Any:
        """Give a value of another type as one of the field's own; one that Arrow would cut stays, to be refused."""
        kind = self.fields[number].type
        if type(value) is self._natives[number] or pa.types.is_nested(kind):
            return value
        if pa.types.is_integer(kind) and isinstance(value, BROKEN) and value != value // 1:
            return value
        return pa.scalar(value, kind).as_py()

    @cached_property
    def _as_they_are(self) -> tuple[Callable[..., Any] | None, ...]:
        """Give the Python type of each field whose values come back as they were; None where some do not."""
        kinds = zip(self._natives, self._rounded, strict=True)
        return tuple(native if native in _PLAIN and not rounded else None for native, rounded in kinds)

    @cached_property
    def _rounded(self) -> tuple[bool, ...]:
        """Tell which fields have floats of 32 bits, which hold less than Python's."""
        return tuple(_has_float32(field.type) for field in self.fields)

    def subkey(self, key: Any, name: str) -> tuple[Any, ...]:
        """Check a key of a map, and give it as it will come back: what is equal there must be equal here."""
        checked = self.checked(key, name)
        if self.plain is not None:
            checked = self._as_read_again(checked)
        for number, (value, field) in enumerate(zip(checked, self.fields, strict=True)):
            if value is None or value != value:
                if self.nulls:
                    checked = _same_nans(checked)
                    continue
                raise ValueError(
                    f"state {name!r}: {value!r} cannot be a key, as {field.name!r} of {checked!r}. Leave such rows "
                    "out, or give them another value"
                )
            stored = self._as_key(number, self._as_stored(number, value))
            if stored is not value:
                checked = (*checked[:number], stored, *checked[number + 1 :])
        return checked

    def _as_stored(self, number: int, value: Any) -> Any:
        """Give a value as it comes back."""
        kind = self.fields[number].type
        load, dump = (side[number] if side else None for side in (self.load, self.dump))
        if pa.types.is_nested(kind) and self._rounded[number]:
            (value,) = to_list(pa.array([value if dump is None else dump(value)], kind))
            return value if load is None else load(value)
        if dump is not None:
            stored = dump(value)
            return stored if load is None else load(stored)
        if isinstance(value, datetime.datetime) and value.tzinfo is None and getattr(kind, "tz", None):
            return value.replace(tzinfo=datetime.timezone.utc)
        if pa.types.is_float32(kind) and isinstance(value, float):
            return float(np.float32(value))
        return bytes(value) if isinstance(value, bytearray) else value

    def _as_key(self, number: int, value: Any) -> Any:
        """Give a value as Arrow gives it back, where it is not of the very type that comes back."""
        if type(value) is self._natives[number] or (self.dump and self.dump[number] is not None):
            return value
        try:
            return pa.scalar(value, self.fields[number].type).as_py()
        except (pa.ArrowException, TypeError, OverflowError, ValueError):
            # What does not fit is refused, with its field, when the key's changes are gathered.
            return value

    @cached_property
    def _natives(self) -> tuple[Callable[..., Any] | None, ...]:
        """Give the Python type of each field; None where not every value of one type comes back as it was."""
        return tuple(_native(field.type) for field in self.fields)

    def checked(self, value: Any, name: str) -> tuple[Any, ...]:
        """Refuse what is not a tuple with a value for each field."""
        if isinstance(value, list):
            value = tuple(value)
        if isinstance(value, tuple) and len(value) == len(self.fields):
            return value
        names = ", ".join(f"{field.name} {field.type}" for field in self.fields)
        got = f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"
        raise ValueError(
            f"state {name!r} takes a tuple of {len(self.fields)} ({names}), and got {got}: {value!r}. Pass a tuple "
            "with a value for each field, None where there is none"
        )


def _native(kind: pa.DataType) -> type | None:
    t = pa.types
    tests: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
        (t.is_integer, int),
        (t.is_floating, float),
        (t.is_string, str),
        (t.is_large_string, str),
        (t.is_binary, bytes),
        (t.is_large_binary, bytes),
        (t.is_boolean, bool),
        (t.is_date, datetime.date),
        (lambda kind: t.is_timestamp(kind) and kind.unit == "us", datetime.datetime),
        (lambda kind: t.is_duration(kind) and kind.unit == "us", datetime.timedelta),
    )
    return next((native for test, native in tests if test(kind)), None)


def _has_float32(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_float32(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_float32(kind))


def _same_nans(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Put one and the same NaN for every NaN: only so are they equal to Python, as they are to Spark."""
    return tuple(math.nan if value != value else value for value in key)


def _converted(convert: Convert, field: pa.Field, position: int, value: Any, where: str) -> Any:
    try:
        return convert(value)
    except Exception as error:
        raise Misfit(position, value, field, where) from error
