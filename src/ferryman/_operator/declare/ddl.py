"""Read schemas in DDL, as Spark writes them, into Arrow types: where no Spark runs that could."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

_PLAIN = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[A-Za-z0-9_]+|'(?:[^'\\]|\\.)*'|\S)")


def parse(text: str) -> pa.Schema:
    """Read columns and their types.

    Examples
    --------
    >>> parse("a int, b array<struct<c: string>>").field("b").type
    ListType(list<element: struct<c: string>>)
    """
    tokens = _Tokens(text)
    fields = list(_fields(tokens, ""))
    if not fields:
        raise ValueError(f"{text!r} has no columns")
    return pa.schema(fields)


def parse_type(text: str) -> pa.DataType:
    """Read one type."""
    tokens = _Tokens(text)
    found = _type(tokens)
    if tokens.peek():
        raise ValueError(f"{text!r} is not a type: it goes on at {tokens.peek()!r}")
    return found


class _Tokens:
    def __init__(self, text: str) -> None:
        self.text = text
        self._all = [found[1] for found in _TOKEN.finditer(text)]
        self._at = 0

    def peek(self) -> str:
        return self._all[self._at] if self._at < len(self._all) else ""

    def take(self, *wanted: str) -> str:
        found = self.peek()
        if not found or (wanted and found.lower() not in wanted):
            what = f"expected {' or '.join(wanted)}" if wanted else "it ends too soon"
            raise ValueError(f"{self.text!r} is not a schema: {what} at {found or 'its end'!r}")
        self._at += 1
        return found


def _fields(tokens: _Tokens, end: str) -> Iterator[pa.Field]:
    while tokens.peek() != end:
        name = tokens.take()
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        if tokens.peek() == ":":
            tokens.take()
        kind, nullable = _type(tokens), True
        if tokens.peek().lower() == "not":
            tokens.take()
            tokens.take("null")
            nullable = False
        if tokens.peek().lower() == "comment":
            tokens.take()
            tokens.take()
        yield pa.field(name, kind, nullable)
        if tokens.peek() != end:
            tokens.take(",")


def _type(tokens: _Tokens) -> pa.DataType:
    name = tokens.take().lower()
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "array":
        tokens.take("<")
        inner = _type(tokens)
        tokens.take(">")
        return pa.list_(pa.field("element", inner))
    if name == "map":
        tokens.take("<")
        key = _type(tokens)
        tokens.take(",")
        value = _type(tokens)
        tokens.take(">")
        return pa.map_(key, value)
    if name == "struct":
        tokens.take("<")
        fields = list(_fields(tokens, ">"))
        tokens.take(">")
        return pa.struct(fields)
    if name in ("decimal", "dec", "numeric"):
        return _decimal(tokens)
    raise ValueError(f"{tokens.text!r} is not a schema: there is no type {name!r}")


def _decimal(tokens: _Tokens) -> pa.DataType:
    if tokens.peek() != "(":
        return pa.decimal128(10, 0)
    tokens.take()
    precision, scale = int(tokens.take()), 0
    if tokens.peek() == ",":
        tokens.take()
        scale = int(tokens.take())
    tokens.take(")")
    return pa.decimal128(precision, scale)
