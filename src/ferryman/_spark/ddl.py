"""Read a schema in DDL without Spark: for the testing harness, which starts none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.sql import types as t

_PLAIN: dict[str, type[t.DataType]] = {
    "boolean": t.BooleanType,
    "tinyint": t.ByteType,
    "byte": t.ByteType,
    "smallint": t.ShortType,
    "short": t.ShortType,
    "int": t.IntegerType,
    "integer": t.IntegerType,
    "bigint": t.LongType,
    "long": t.LongType,
    "float": t.FloatType,
    "real": t.FloatType,
    "double": t.DoubleType,
    "string": t.StringType,
    "binary": t.BinaryType,
    "date": t.DateType,
    "timestamp": t.TimestampType,
    "timestamp_ltz": t.TimestampType,
    "timestamp_ntz": t.TimestampNTZType,
    "void": t.NullType,
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[A-Za-z0-9_]+|'(?:[^'\\]|\\.)*'|\S)")


def parse(text: str) -> t.StructType:
    """Read columns and their types.

    Examples
    --------
    >>> parse("a int, b array<struct<c: string>>").simpleString()
    'struct<a:int,b:array<struct<c:string>>>'
    """
    tokens = _Tokens(text)
    fields = list(_fields(tokens, ""))
    if not fields:
        raise ValueError(f"{text!r} has no columns")
    return t.StructType(fields)


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


def _fields(tokens: _Tokens, end: str) -> Iterator[t.StructField]:
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
        metadata = {}
        if tokens.peek().lower() == "comment":
            tokens.take()
            metadata = {"comment": tokens.take()[1:-1]}
        yield t.StructField(name, kind, nullable, metadata)
        if tokens.peek() != end:
            tokens.take(",")


def _type(tokens: _Tokens) -> t.DataType:
    name = tokens.take().lower()
    if name in _PLAIN:
        return _PLAIN[name]()
    if name == "array":
        tokens.take("<")
        inner = _type(tokens)
        tokens.take(">")
        return t.ArrayType(inner)
    if name == "map":
        tokens.take("<")
        key = _type(tokens)
        tokens.take(",")
        value = _type(tokens)
        tokens.take(">")
        return t.MapType(key, value)
    if name == "struct":
        tokens.take("<")
        fields = list(_fields(tokens, ">"))
        tokens.take(">")
        return t.StructType(fields)
    if name in ("decimal", "dec", "numeric"):
        return _decimal(tokens)
    raise ValueError(f"{tokens.text!r} is not a schema: there is no type {name!r}")


def _decimal(tokens: _Tokens) -> t.DecimalType:
    if tokens.peek() != "(":
        return t.DecimalType(10, 0)
    tokens.take()
    precision, scale = int(tokens.take()), 0
    if tokens.peek() == ",":
        tokens.take()
        scale = int(tokens.take())
    tokens.take(")")
    return t.DecimalType(precision, scale)
