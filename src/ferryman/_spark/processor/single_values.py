"""Single values on their way into a state: as Spark keeps them, or refused where it would keep something else.

Arrow by itself takes a number for a day, and cuts fractions off.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark.sql.types import (
    BinaryType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    FloatType,
    FractionalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    VarcharType,
)

Convert = Callable[[Any], Any]

# More digits than any decimal of Spark's has.
_WIDE = decimal.Context(prec=100)


def leaf(kind: DataType) -> Convert | None:
    """Give what makes a value one of its type, or raises TypeError; None where nothing is to be done.

    Examples
    --------
    >>> leaf(DecimalType(10, 2))(decimal.Decimal("1.555"))
    Decimal('1.56')
    >>> leaf(DateType())(datetime.datetime(2024, 1, 1, 12))
    datetime.date(2024, 1, 1)
    """
    if isinstance(kind, DecimalType):
        return _rounded(decimal.Decimal(1).scaleb(-kind.scale))
    return next((convert for types, convert in _LEAVES if isinstance(kind, types)), None)


def _rounded(unit: decimal.Decimal) -> Convert:
    """As Spark does: more digits than declared are rounded, a half up."""

    def convert(value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            value = decimal.Decimal(value)
        if isinstance(value, decimal.Decimal) and value.is_finite():
            return value.quantize(unit, decimal.ROUND_HALF_UP, _WIDE)
        return value

    return convert


def _text(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is no text")


def _whole(value: Any) -> Any:
    if not isinstance(value, (float, decimal.Decimal)):
        return value
    if value != int(value):
        raise TypeError(f"{value!r} is no whole number")
    return int(value)


def _real(value: Any) -> Any:
    if not isinstance(value, int):
        return value
    if int(made := float(value)) != value:
        raise TypeError(f"{value!r} has more digits than a float")
    return made


def _single(value: Any) -> Any:
    if isinstance(value, int):
        with np.errstate(over="ignore"):
            rounded = float(np.float32(value))
        if rounded != value:
            raise TypeError(f"{value!r} has more digits than a float of 32 bits")
    return _real(value)


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _day(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.date()
    if value is None or isinstance(value, datetime.date):
        return value
    raise TypeError(f"{value!r} is no date")


def _wall_clock(value: Any) -> Any:
    """As Spark does: a time with a zone is what the clock shows there."""
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value


def _span(value: Any) -> Any:
    if value is None or isinstance(value, datetime.timedelta):
        return value
    raise TypeError(f"{value!r} is no interval")


_LEAVES: tuple[tuple[type[DataType] | tuple[type[DataType], ...], Convert], ...] = (
    ((StringType, CharType, VarcharType), _text),
    (IntegralType, _whole),
    (FloatType, _single),
    (FractionalType, _real),
    (BinaryType, _bytes),
    (DateType, _day),
    (TimestampNTZType, _wall_clock),
    (DayTimeIntervalType, _span),
)
