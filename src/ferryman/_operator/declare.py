"""The classes a user derives an operator from: row by row, or vectorised over Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.value import Value

_TAKEN = ("output", "values", "state_schema", "process", "finish", "clear")


class Declared:
    """What both kinds of operator share: an output schema and declared state."""

    output: ClassVar[Any] = None

    def __init_subclass__(cls) -> None:
        # Such state would hide what the class itself needs, and fail far from here.
        taken = [name for name, value in vars(cls).items() if isinstance(value, Value) and name in _TAKEN]
        if taken:
            raise InvalidConfiguration(
                f"operator {cls.__name__!r} declares state {', '.join(map(repr, taken))}, a name that operators use "
                "themselves. Give the state another name."
            )

    @classmethod
    def values(cls) -> dict[str, Value[Any]]:
        """List the declared state, base classes first, in the order it was written."""
        found: dict[str, Value[Any]] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if isinstance(value, Value):
                    found[name] = value
        return found

    @classmethod
    def state_schema(cls) -> pa.Schema:
        """Give the columns of the declared state."""
        return pa.schema([pa.field(name, value.type) for name, value in cls.values().items()])


class Operator(Declared):
    """Process a keyed stream row by row, with state.

    Declare state as `Value` attributes and the output's columns as `output` (a DDL string, a Spark
    `StructType` or a pyarrow schema). `process` is called for every row, in the source's order per
    key; `finish`, if defined, once for every key that had rows in the epoch. Both return rows as
    tuples or dicts (an iterable of them, or None).

    Examples
    --------
    >>> from ferryman import Operator, Value
    >>> class RunningAverage(Operator):
    ...     n = Value(int, 0)
    ...     total = Value(float, 0.0)
    ...     output = "sensor string, mean double"
    ...     def process(self, key, row):
    ...         self.n += 1
    ...         self.total += row.value
    ...         yield key, self.total / self.n
    """

    def process(self, key: Any, row: Any) -> Iterable[Any] | None:
        """Handle one row of a key; read and set the declared state as attributes."""
        raise NotImplementedError(f"{type(self).__name__} needs a `process(self, key, row)` method")

    def finish(self, key: Any) -> Iterable[Any] | None:
        """Handle the end of an epoch for a key that had rows in it."""
        return None

    def clear(self) -> None:
        """Delete this key's state, unless it is set again before the epoch ends."""
        own = self.__dict__
        for name, value in type(self).values().items():
            own[name] = value.fresh()
        own["_cleared"] = True


@dataclass(frozen=True)
class Batch:
    """All that an instance has to do in one epoch, as columns.

    Attributes
    ----------
    keys
        The distinct keys of the epoch, one row each.
    rows
        The input rows, in the source's order.
    index
        For every input row, the position of its key in `keys` and in `state`.
    state
        The state before the epoch, one row per key; defaults where a key is new.
    present
        For every key, whether it had state before.
    """

    keys: pa.Table
    rows: pa.Table
    index: npt.NDArray[np.int64]
    state: pa.Table
    present: npt.NDArray[np.bool_]


class ArrowOperator(Declared):
    """Process a keyed stream in whole columns, with state as columns.

    `process` gets one `Batch` per instance and epoch and returns the output (a pyarrow table, or None)
    and the new state: one row per key, in the order of `batch.keys`, with the declared columns and,
    if keys are to be deleted, a boolean column `_deleted`.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from ferryman import ArrowOperator, Value
    >>> class Count(ArrowOperator):
    ...     n = Value(int, 0)
    ...     output = "sensor string, n long"
    ...     def process(self, batch):
    ...         n = batch.state["n"].to_numpy() + np.bincount(batch.index, minlength=len(batch.keys))
    ...         state = pa.table({"n": n})
    ...         return batch.keys.append_column("n", state["n"]), state
    """

    def process(self, batch: Batch) -> tuple[pa.Table | None, pa.Table]:
        """Handle the rows of one instance in one epoch."""
        raise NotImplementedError(f"{type(self).__name__} needs a `process(self, batch)` method")
