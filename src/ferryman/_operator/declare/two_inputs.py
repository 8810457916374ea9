"""The class that a user derives an operator on two streams from, and how its rows are told apart."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from ferryman._operator.declare.operator import Operator
from ferryman._operator.run.python_columns import to_list

# Which of two streams a row is of: 0 for the left one, 1 for the right one.
INPUT = "_input"


class TwoInputOperator(Operator):
    """Process two streams of one key, with state that both share.

    `left.key_by("k").connect(right.key_by("k")).process(MyOperator)` calls `process_left` for every row of the first
    stream and `process_right` for every row of the second. All else is as in `Operator`.

    Examples
    --------
    >>> from ferryman import TwoInputOperator, Value
    >>> class Priced(TwoInputOperator):
    ...     price = Value(float, 0.0)
    ...     output = "item string, cost double"
    ...     def process_left(self, key, row):
    ...         yield key, row.pieces * self.price
    ...     def process_right(self, key, row):
    ...         self.price = row.price
    """

    def process_left(self, key: Any, row: Any) -> Iterable[Any] | None:
        """Handle one row of the left stream."""
        raise NotImplementedError(f"{type(self).__name__} needs a `process_left(self, key, row)` method")

    def process_right(self, key: Any, row: Any) -> Iterable[Any] | None:
        """Handle one row of the right stream."""
        raise NotImplementedError(f"{type(self).__name__} needs a `process_right(self, key, row)` method")

    def process(self, key: Any, row: Any) -> Iterable[Any] | None:
        """Hand a row to the method of its stream."""
        right, own = row
        return self.process_right(key, own) if right else self.process_left(key, own)


@dataclass(frozen=True)
class TwoInputs:
    """What the rows of two streams are called, and in which columns of an operator's input they are."""

    left: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...]

    def rows(self, table: pa.Table) -> Iterator[tuple[int, Any]]:
        """Give the rows as named tuples, each with the number of its stream."""
        of = to_list(table.column(INPUT))
        parts = [
            self._rows(table.filter(pa.array([number == side for number in of], pa.bool_())), columns)
            for side, columns in enumerate((self.left, self.right))
        ]
        return ((side, next(parts[side])) for side in of)

    @staticmethod
    def _rows(table: pa.Table, columns: tuple[tuple[str, str], ...]) -> Iterator[Any]:
        row = namedtuple("Row", [name for name, _ in columns], rename=True)  # type: ignore[misc]
        lists = (to_list(table.column(column)) for _, column in columns)
        return map(partial(tuple.__new__, row), zip(*lists, strict=True))
