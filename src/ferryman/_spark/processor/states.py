"""States as a processor sees them: the methods of Spark's `ValueState`, `ListState` and `MapState`.

What iterates is a generator: as with Spark, the state is read when the first value is asked for, and not again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState

from ferryman._operator.cells.list_cell import ListCell
from ferryman._operator.cells.map_cell import MapCell
from ferryman._operator.cells.value_cell import ValueCell

Tuple = tuple[Any, ...]


class FerriedValue(ValueState):
    """A value of the key at hand."""

    def __init__(self, cell: ValueCell) -> None:
        # The cell's own methods: a call less for every get and update.
        self.exists = cell.exists  # type: ignore[method-assign]
        self.get = cell.get  # type: ignore[method-assign]
        self.update = cell.update  # type: ignore[method-assign, assignment]
        self.clear = cell.clear  # type: ignore[method-assign]


class FerriedList(ListState):
    """A list of the key at hand."""

    def __init__(self, cell: ListCell, name: str) -> None:
        self._cell = cell
        self._name = name

    def exists(self) -> bool:
        return self._cell.exists()

    def get(self) -> Iterator[Tuple]:
        yield from self._cell.get()

    def put(self, newState: list[Tuple]) -> None:
        self._cell.put(self._some(newState, "put", "Call clear to empty it"))

    def appendValue(self, newState: Tuple) -> None:
        self._cell.append((newState,))

    def appendList(self, newState: list[Tuple]) -> None:
        self._cell.append(self._some(newState, "appendList", "Call it only with something to add"))

    def clear(self) -> None:
        self._cell.clear()

    def _some(self, values: Iterable[Tuple], method: str, hint: str) -> list[Tuple]:
        listed = list(values)
        if not listed:
            raise ValueError(f"state {self._name!r}: {method} got an empty list, which Spark refuses. {hint}")
        return listed


class FerriedMap(MapState):
    """A map of the key at hand."""

    def __init__(self, cell: MapCell, name: str) -> None:
        self._cell = cell
        self._name = name

    def exists(self) -> bool:
        return self._cell.exists()

    def getValue(self, key: Tuple) -> Tuple | None:
        return self._cell.get(key if type(key) is tuple else self._tuple(key, "getValue"))

    def containsKey(self, key: Tuple) -> bool:
        return self._cell.get(key if type(key) is tuple else self._tuple(key, "containsKey")) is not None

    def updateValue(self, key: Tuple, value: Tuple) -> None:
        self._cell.set(key if type(key) is tuple else self._tuple(key, "updateValue"), value)

    def iterator(self) -> Iterator[tuple[Tuple, Tuple]]:
        for key, value in self._cell.items():
            yield key, tuple(value)

    def keys(self) -> Iterator[Tuple]:
        for key, _ in self._cell.items():
            yield key

    def values(self) -> Iterator[Tuple]:
        for _, value in self._cell.items():
            yield tuple(value)

    def removeKey(self, key: Tuple) -> None:
        self._cell.remove(key if type(key) is tuple else self._tuple(key, "removeKey"))

    def clear(self) -> None:
        self._cell.clear()

    def _tuple(self, key: Any, method: str) -> Tuple:
        """Refuse a bare value: Spark would take a text apart, letter by letter."""
        if isinstance(key, (tuple, list)):
            return tuple(key)
        more = ", ..." if method == "updateValue" else ""
        raise ValueError(
            f"state {self._name!r}: {method} got {key!r}, and the key of a map is a tuple, also where it is one value. "
            f"Write {method}(({key!r},){more})"
        )
