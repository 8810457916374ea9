"""The classes a user derives an operator from: row by row, or vectorised over Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.declare.declared_types import refuse_shared
from ferryman._operator.types.collections import PerInstance, State
from ferryman._operator.types.value import Value
from ferryman._state.earlier_columns import Evolution

_TAKEN = (
    "output", "sides", "dropped", "evolution", "values", "states", "state_schema", "process", "finish", "clear",
    "process_left", "process_right", "due", "closed", "by_event_time", "event_time", "call_at", "cancel", "now_ms",
    "watermark_ms",
)  # fmt: skip


class AnyOperator:
    """What both kinds of operator share: an output schema and declared state.

    `sides` are the side outputs, by name, each declared like `output`.
    `dropped` names states that an earlier version of the class had and this one gives up, and fields of a state's
    dataclass as "state.field".
    """

    output: ClassVar[Any] = None
    sides: ClassVar[Mapping[str, Any]] = {}
    dropped: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        # Such state would hide what the class itself needs, and fail far from here.
        taken = [
            name for name, attribute in vars(cls).items() if isinstance(attribute, (Value, State)) and name in _TAKEN
        ]
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
    def states(cls) -> dict[str, State]:
        """List the declared states that are more than a value, base classes first."""
        found: dict[str, State] = {}
        for base in reversed(cls.__mro__):
            found.update({name: state for name, state in vars(base).items() if isinstance(state, State)})
        return found

    @classmethod
    def state_schema(cls) -> pa.Schema:
        """Give the columns of the declared state."""
        return pa.schema([pa.field(name, value.type) for name, value in cls.values().items()])

    @classmethod
    def _settings(cls) -> dict[str, str]:
        """Say what of the declaration the columns of the state do not show, and what is kept depends on."""
        return {state.stored_as: text for state in cls.states().values() if (text := state.settings())}

    @classmethod
    def evolution(cls) -> Evolution:
        """Say how state is read that was written under an earlier declaration."""
        values = cls.values()
        aliases = {name: (value.alias,) for name, value in values.items() if value.alias}
        refuse_shared(f"operator {cls.__name__!r}", {name: aliases.get(name, ()) for name in values})
        given = {name: pa.array(value.dump([value.default]), value.type) for name, value in values.items()}
        return Evolution(pa.table(given), aliases)


class Operator(AnyOperator):
    """Process a keyed stream row by row, with state.

    Declare state as `Value` attributes and the output's columns as `output` (a DDL string, a Spark
    `StructType` or a pyarrow schema). `process` is called for every row, in the source's order per
    key; `finish`, if defined, once for every key that had rows in the epoch. Both return rows as
    tuples or dicts (an iterable of them, or None).

    An operator that defines `due` can ask to be called for a key at a time, with `call_at`: by the clock, or with
    `by_event_time = True` when the watermark has come to it. `now_ms` and `watermark_ms` say what time it is.
    `event_time` names the output's column of event time, for operators after this one.

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

    by_event_time: ClassVar[bool] = False
    event_time: ClassVar[str | None] = None
    now_ms: int
    watermark_ms: int | None

    def process(self, key: Any, row: Any) -> Iterable[Any] | None:
        """Handle one row of a key; read and set the declared state as attributes."""
        raise NotImplementedError(f"{type(self).__name__} needs a `process(self, key, row)` method")

    def finish(self, key: Any) -> Iterable[Any] | None:
        """Handle the end of an epoch for a key that had rows in it."""
        return None

    def due(self, key: Any, at: int) -> Iterable[Any] | None:
        """Handle a time that `call_at` asked for; only classes that define it can ask."""
        return None

    def closed(self, key: Any, span: Any, result: Any) -> Iterable[Any] | None:
        """Handle a window that is over: its span of time, and what was added up in it."""
        return None

    def clear(self) -> None:
        """Delete this key's state, unless it is set again before the epoch ends."""
        own = self.__dict__
        for name, value in type(self).values().items():
            own[name] = value.fresh()
        for name, state in type(self).states().items():
            if not isinstance(state, PerInstance):
                own[name].clear()
        own["_cleared"] = True

    def call_at(self, at: int) -> None:
        """Let `due` be called for this key at a time, in milliseconds since 1970."""
        self._asked().register(int(at))

    def cancel(self, at: int) -> None:
        """Take back what `call_at` asked for, if it did."""
        self._asked().delete(int(at))

    def _asked(self) -> Any:
        timers = self.__dict__.get("_timers")
        if timers is None:
            raise ValueError(
                f"{type(self).__name__} has no `due(self, key, at)` method that could be called. Define it"
            )
        return timers


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


class ArrowOperator(AnyOperator):
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
