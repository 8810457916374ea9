"""Check the values that JSON from a file holds before anything goes by them: their types, ranges and names. No I/O.

A checkpoint may have been written by somebody who wants harm. Whatever is not of its shape raises `Misshapen`, which
is a ValueError: who reads a file makes it the error that names the file.
"""

from __future__ import annotations

import re
from typing import Any

# What a job can have at the most; `Ferry(groups=)` refuses more.
MOST_GROUPS = 32768
_LONG = (1 << 63) - 1
# The last millisecond of the year 9999, which is as far as a date can be written.
MOST_TIME_MS = 253_402_300_799_999
# Far more than offsets and sinks need, and far less than what ends in a RecursionError.
_MOST_DEPTH = 64
# A file of ours is in one of these folders, and never hidden.
_FILE = re.compile(r"(deltas|held|lookups|snapshots)/[^./\x00-\x1f\x7f\\][^/\x00-\x1f\x7f\\]*")
# Of the name of an operator or a table.
MOST_LETTERS = 200
_LABEL = re.compile(rf"[^./\x00-\x1f\x7f\\][^/\x00-\x1f\x7f\\]{{0,{MOST_LETTERS - 1}}}")


class Misshapen(ValueError):
    """A value that is not of the shape it must have."""


def whole(value: Any, what: str, low: int = 0, high: int = _LONG) -> int:
    """Expect a whole number of a range.

    Examples
    --------
    >>> whole(7, "epoch")
    7
    >>> whole(True, "epoch")
    Traceback (most recent call last):
    ...
    ferryman._model.json_values.Misshapen: epoch is not a whole number from 0 to 9223372036854775807
    """
    if type(value) is not int or not low <= value <= high:
        raise Misshapen(f"{what} is not a whole number from {low} to {high}")
    return value


def long(value: Any, what: str) -> int:
    """Expect a whole number of 64 bits."""
    return whole(value, what, -_LONG - 1)


def flag(value: Any, what: str) -> bool:
    """Expect true or false."""
    if type(value) is not bool:
        raise Misshapen(f"{what} is neither true nor false")
    return value


def text(value: Any, what: str) -> str:
    """Expect text that can be written as UTF-8."""
    if type(value) is not str:
        raise Misshapen(f"{what} is not text")
    value.encode()
    return value


def listed(value: Any, what: str) -> list[Any]:
    """Expect a list."""
    if type(value) is not list:
        raise Misshapen(f"{what} is not a list")
    return value


def mapped(value: Any, what: str) -> dict[str, Any]:
    """Expect an object."""
    if type(value) is not dict:
        raise Misshapen(f"{what} is not an object")
    return value


def texts(value: Any, what: str) -> tuple[str, ...]:
    """Expect a list of text."""
    return tuple(text(item, what) for item in listed(value, what))


def label(value: Any, what: str) -> str:
    """Expect the name of an operator or a table: it becomes part of the names of files."""
    if type(value) is not str or not _LABEL.fullmatch(value):
        raise Misshapen(f"{what} is no name of an operator or a table")
    return text(value, what)


def file_name(value: Any, what: str = "file") -> str:
    """Expect the name of a file inside the checkpoint's folders.

    Examples
    --------
    >>> file_name("deltas/000000000001-Counts-0-ab.arrow")
    'deltas/000000000001-Counts-0-ab.arrow'
    >>> file_name("deltas/../../secret")
    Traceback (most recent call last):
    ...
    ferryman._model.json_values.Misshapen: file is no file of this checkpoint
    """
    if type(value) is not str or not _FILE.fullmatch(value):
        raise Misshapen(f"{what} is no file of this checkpoint")
    return text(value, what)


def shallow(value: Any, what: str) -> Any:
    """Expect JSON of any kind that is not nested so deep that going through it would fail."""
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return value
    raise Misshapen(f"{what} is nested deeper than {_MOST_DEPTH} levels")


def groups_of(value: Any) -> tuple[int, ...]:
    """Read a list of key groups, none twice."""
    groups = tuple(whole(group, "a key group", high=MOST_GROUPS - 1) for group in listed(value, "groups"))
    if len(set(groups)) != len(groups):
        raise Misshapen("groups names a key group twice")
    return groups
