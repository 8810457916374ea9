"""Time to live: when something expires, how that is stored, and when to look for it again.

Whatever has a time to live goes by this: values, lists and maps of a key, and the rows of a broadcast state. When it
expires stands beside it in a column of its own, and moves on with every write. What has no such time was written
before there was a time to live, and begins to live when it is seen.
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ferryman._model.errors import InvalidConfiguration
from ferryman._model.interval import seconds

# When a value expires: in its struct, or in its row, beside the fields that were declared.
EXPIRES = "_expires"


def check_ttl(ttl: Any) -> None:
    """Refuse a time to live that is no number of milliseconds; None is for ever.

    Examples
    --------
    >>> check_ttl(3_600_000)
    """
    if ttl is None:
        return
    number = isinstance(ttl, numbers.Real) and not isinstance(ttl, bool)
    if not number or ttl <= 0 or ttl != ttl // 1:
        meant = _milliseconds(ttl)
        hint = "" if meant is None else f" ({meant})"
        raise InvalidConfiguration(f"ttl={ttl!r}: give milliseconds above 0{hint}, or leave it out.")


def _milliseconds(ttl: Any) -> int | None:
    """Guess what was meant by an interval that is not a number."""
    if isinstance(ttl, datetime.timedelta):
        return int(ttl.total_seconds() * 1000) if ttl > datetime.timedelta(0) else None
    try:
        meant = seconds(ttl) if isinstance(ttl, str) else None
    except InvalidConfiguration:
        return None
    return int(meant * 1000) if meant else None


def stored_fields(ttl_ms: int | None) -> list[pa.Field]:
    """Give the fields that are stored beside a value: when it expires, if it ever does."""
    return [] if ttl_ms is None else [pa.field(EXPIRES, pa.int64())]


def look_column(name: str) -> str:
    """Name the column of an operator's first table that says when a state is looked at next for what has expired."""
    return f"_due.{name}"


def look_fields(name: str, ttl_ms: int | None) -> list[pa.Field]:
    """Give the fields that a state has for that in the first table."""
    return [] if ttl_ms is None else [pa.field(look_column(name), pa.int64())]


def expires_at(now_ms: int, ttl_ms: int) -> int:
    """Tell when something expires that is written now."""
    return now_ms + ttl_ms


def has_expired(expires: int | None, now_ms: int) -> bool:
    """Tell whether something is gone, whenever it is taken out of the state."""
    return expires is not None and expires <= now_ms


def look_at(expires: int, ttl_ms: int) -> int:
    """Tell when to look for something that expires: a little later, so that many keys have that time in common.

    What has expired is not seen in between, and an epoch need not come for each.

    Examples
    --------
    >>> look_at(1001, 160), look_at(1009, 160)
    (1010, 1010)
    """
    grid = max(ttl_ms // 16, 1)
    return -(-expires // grid) * grid


def changed_by_time(rows: pa.Table, now_ms: int, ttl_ms: int) -> Iterator[tuple[pa.Table, bool]]:
    """Give the rows that time alone changes, and whether they are gone: those that have expired, and those that begin.

    Each with when it expires, if it was written now.
    """
    expires = rows.column(EXPIRES)
    number = rows.column_names.index(EXPIRES)
    for which, gone in ((pc.less_equal(expires, now_ms), True), (expires.is_null(), False)):
        found = rows.filter(which)
        again = pa.repeat(pa.scalar(expires_at(now_ms, ttl_ms)), found.num_rows)
        yield found.set_column(number, EXPIRES, again), gone
