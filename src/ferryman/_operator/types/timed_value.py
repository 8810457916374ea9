"""A value per key with a time to live: an attribute like any other value, that is gone when it was not set for long."""

from __future__ import annotations

import copy
from typing import Any

from ferryman._operator.cells.value_cell import ValueCell
from ferryman._operator.cells.variables import ValueVariable
from ferryman._operator.types.collections import State, record


class TimedValue(State):
    """What `Value(..., ttl=...)` declares. It has to notice that it is set, so it is slower than one without."""

    def __init__(self, kind: Any, default: Any, alias: str | None, ttl: int) -> None:
        super().__init__(ttl=ttl, alias=alias)
        self.kind = kind
        self.default = default

    def variable(self) -> ValueVariable:
        """Give the state as it is kept."""
        return ValueVariable(self.stored_as, record(value=self.kind), self.ttl)

    def view(self, cell: Any) -> TimedView:
        """Give what reads and sets it."""
        return TimedView(cell, self.default)

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self._view(instance).get()

    def __set__(self, instance: Any, value: Any) -> None:
        self._view(instance).set(value)

    def _view(self, instance: Any) -> TimedView:
        view: TimedView | None = instance.__dict__.get(self.name)
        if view is None:
            raise AttributeError(
                f"state {self.name!r} has a value only while a key is processed; set it in `process`, not before"
            )
        return view


class TimedView:
    """The value of the key at hand."""

    __slots__ = ("_cell", "_default")

    def __init__(self, cell: ValueCell, default: Any) -> None:
        self._cell = cell
        self._default = default

    def get(self) -> Any:
        """Give the value, or what a key without one begins with."""
        kept = self._cell.get()
        return copy.deepcopy(self._default) if kept is None else kept[0]

    def set(self, value: Any) -> None:
        """Set the value, and let it live for as long again; None forgets it."""
        if value is None:
            self._cell.clear()
        else:
            self._cell.update((value,))

    def clear(self) -> None:
        """Forget the value."""
        self._cell.clear()
