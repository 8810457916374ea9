"""Times inside of nested values that a processor gives in frames: those without a zone are of the session's clock."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

Convert = Callable[[Any], Any]


@lru_cache(maxsize=256)
def localised(kind: pa.DataType, timezone: str) -> Convert | None:
    """Give what puts the session's zone to times without one; None for a type that has no such times.

    Examples
    --------
    >>> convert = localised(pa.list_(pa.timestamp("us", "UTC")), "Asia/Tokyo")
    >>> convert([datetime.datetime(2024, 1, 1)])[0].isoformat()
    '2024-01-01T00:00:00+09:00'
    >>> localised(pa.list_(pa.int64()), "Asia/Tokyo")
    """
    t = pa.types
    if t.is_timestamp(kind):
        return _time(timezone) if kind.tz is not None else None
    if not t.is_nested(kind):
        return None
    if t.is_map(kind):
        return _pairs(localised(kind.key_type, timezone), localised(kind.item_type, timezone))
    if t.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return _struct([field.name for field in fields], [localised(field.type, timezone) for field in fields])
    return _list(localised(kind.value_type, timezone))


def _time(timezone: str) -> Convert:
    def convert(value: Any) -> Any:
        if value is None or value is pd.NaT:
            return None
        if isinstance(value, (datetime.datetime, np.datetime64)):
            time = pd.Timestamp(value)
            return (time if time.tzinfo is not None else time.tz_localize(timezone)).to_pydatetime(warn=False)
        return value

    return convert


def _list(part: Convert | None) -> Convert | None:
    if part is None:
        return None
    return lambda value: [part(item) for item in value] if isinstance(value, (list, tuple, np.ndarray)) else value


def _pairs(key: Convert | None, item: Convert | None) -> Convert | None:
    if key is None and item is None:
        return None
    key, item = key or _same, item or _same

    def convert(value: Any) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        return [(key(left), item(right)) for left, right in (value.items() if isinstance(value, dict) else value)]

    return convert


def _struct(names: list[str], parts: list[Convert | None]) -> Convert | None:
    if not any(parts):
        return None
    converts = [part or _same for part in parts]

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: part(value.get(name)) for name, part in zip(names, converts, strict=True)}
        if isinstance(value, tuple) and len(value) == len(converts):
            return tuple(part(item) for part, item in zip(converts, value, strict=True))
        # It does not fit, and is refused by what comes next.
        return value

    return convert


def _same(value: Any) -> Any:
    return value
