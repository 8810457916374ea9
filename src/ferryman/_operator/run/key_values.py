"""The values of an operator that are plain attributes: of all keys as columns, and of one key as a tuple."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ferryman._operator.cells.aliasing import AttributeAliases
from ferryman._operator.declare.operator import Operator
from ferryman._operator.run.python_columns import to_column, to_list
from ferryman._operator.run.runner import Given


class KeyValues:
    """The values of the keys of one epoch.

    Attributes
    ----------
    stored
        A list per value: what each key has.
    defaults
        What a key has that was never seen.
    comparable
        Whether it can be seen that a key's values are what they were: a mutable one may have changed in place.
    aliases
        Which of them are in other attributes as well.
    """

    def __init__(self, operator: type[Operator], names: Sequence[str], given: Given) -> None:
        declared = operator.values()
        self._declared = [declared[name] for name in names]
        self.names = list(names)
        self.stored = [value.load(to_list(given.state.column(value.name))) for value in self._declared]
        self.defaults = tuple(value.default for value in self._declared)
        mutable = {value.name for value in self._declared if value.mutable}
        self.comparable = not mutable
        self.aliases = AttributeAliases(mutable, f"operator {given.operator!r}, epoch {given.epoch}")

    def fresh(self) -> tuple[Any, ...]:
        """Give a new key its values."""
        return tuple(value.fresh() for value in self._declared)

    def columns(self, values: list[tuple[Any, ...]]) -> list[pa.Array]:
        """Make columns of the values of some keys; `Misfit` says which one does not fit."""
        columns = list(zip(*values, strict=True)) if values else [()] * len(self._declared)
        return [
            to_column(value.dump(list(column)), pa.field(value.name, value.type), "state")
            for value, column in zip(self._declared, columns, strict=True)
        ]


def same(values: tuple[Any, ...], other: tuple[Any, ...], signed: Sequence[int]) -> bool:
    """Tell whether values would be kept as the same: to Python, 0.0 equals -0.0, and it is not.

    Parameters
    ----------
    signed
        The positions of floating point numbers, which alone have such a zero.

    Examples
    --------
    >>> same((0.0, "a"), (0.0, "a"), [0]), same((0.0, "a"), (-0.0, "a"), [0])
    (True, False)
    """
    if values != other:
        return False
    for position in signed:
        value = values[position]
        if value == 0.0 and math.copysign(1.0, value) != math.copysign(1.0, other[position]):
            return False
    return True
