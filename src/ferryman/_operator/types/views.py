"""What `process` sees of a declared state: objects that read like Python's own, over the cells of the key at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSet
from functools import partial
from typing import Any

from ferryman._operator.cells.list_cell import ListCell
from ferryman._operator.cells.map_cell import MapCell
from ferryman._operator.cells.value_cell import ValueCell


class ListView:
    """A list."""

    __slots__ = ("_cell",)

    def __init__(self, cell: ListCell) -> None:
        self._cell = cell

    def append(self, value: Any) -> None:
        """Add a value to the end."""
        self._cell.append(((value,),))

    def extend(self, values: Iterable[Any]) -> None:
        """Add values to the end."""
        self._cell.append([(value,) for value in values])

    def replace(self, values: Iterable[Any]) -> None:
        """Put other values in the place of all."""
        self._cell.put([(value,) for value in values])

    def clear(self) -> None:
        """Remove all values."""
        self._cell.clear()

    def __iter__(self) -> Iterator[Any]:
        return (entry[0] for entry in self._cell.get())

    def __len__(self) -> int:
        return self._cell.length()

    def __bool__(self) -> bool:
        return self._cell.exists()

    def __getitem__(self, position: Any) -> Any:
        return list(self)[position]

    def __repr__(self) -> str:
        return repr(list(self))


class DequeView(ListView):
    """A list of the newest values."""

    __slots__ = ("_most",)

    def __init__(self, cell: ListCell, most: int) -> None:
        super().__init__(cell)
        self._most = most

    def append(self, value: Any) -> None:
        super().append(value)
        self._cell.keep(self._most)

    def extend(self, values: Iterable[Any]) -> None:
        super().extend(values)
        self._cell.keep(self._most)

    def replace(self, values: Iterable[Any]) -> None:
        super().replace(list(values)[-self._most :])

    def __iter__(self) -> Iterator[Any]:
        self._cell.keep(self._most)
        return super().__iter__()

    def __len__(self) -> int:
        # It may have been declared with more.
        return min(super().__len__(), self._most)

    def popleft(self) -> Any:
        """Take the oldest value out."""
        if not self:
            raise IndexError("the deque is empty")
        first = next(iter(self))
        self._cell.keep(len(self) - 1)
        return first


class MapView(MutableMapping[Any, Any]):
    """A map."""

    __slots__ = ("_cell",)

    def __init__(self, cell: MapCell) -> None:
        self._cell = cell

    def __getitem__(self, key: Any) -> Any:
        found = self._cell.get((key,))
        if found is None:
            raise KeyError(key)
        return found[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cell.set((key,), (value,))

    def __delitem__(self, key: Any) -> None:
        if self._cell.get((key,)) is None:
            raise KeyError(key)
        self._cell.remove((key,))

    def __contains__(self, key: object) -> bool:
        return self._cell.get((key,)) is not None

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Give the value of a key, after setting it if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def __iter__(self) -> Iterator[Any]:
        return (key[0] for key, _ in self._cell.items())

    def items(self) -> Any:
        """Give all entries."""
        return [(key[0], value[0]) for key, value in self._cell.items()]

    def values(self) -> Any:
        """Give all values."""
        return [value[0] for _, value in self._cell.items()]

    def clear(self) -> None:
        """Remove all entries."""
        self._cell.clear()

    def __len__(self) -> int:
        return sum(1 for _ in self._cell.items())

    def __bool__(self) -> bool:
        return self._cell.exists()

    def __repr__(self) -> str:
        return repr(dict(self.items()))


class GraphView(MapView):
    """The edges of a vertex."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__()))

    def items(self) -> Any:
        return sorted(super().items())

    def values(self) -> Any:
        return [edge for _, edge in self.items()]


class CounterView(MapView):
    """Counters."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> int:
        found = self._cell.get((key,))
        return 0 if found is None else int(found[0])

    def get(self, key: Any, default: Any = None) -> Any:
        """Give a count, or the default if there is none."""
        found = self._cell.get((key,))
        return default if found is None else found[0]

    def pop(self, key: Any, default: Any = None) -> Any:
        """Take a count out, and give it; the default if there is none."""
        found = self.get(key, default)
        self._cell.remove((key,))
        return found

    def __delitem__(self, key: Any) -> None:
        self._cell.remove((key,))

    def update(self, counts: Any = (), /, **more: int) -> None:
        """Count: values once each, or as often as a mapping says."""
        given = counts.items() if isinstance(counts, Mapping) else ((key, 1) for key in counts)
        for key, n in (*given, *more.items()):
            self[key] += n

    def most_common(self, n: int | None = None) -> list[tuple[Any, int]]:
        """List the most frequent with their counts, the most frequent first."""
        return sorted(self.items(), key=lambda pair: -pair[1])[:n]

    def total(self) -> int:
        """Sum up all counts."""
        return int(sum(self.values()))


class SetView(MutableSet[Any]):
    """A set."""

    __slots__ = ("_cell",)

    def __init__(self, cell: MapCell) -> None:
        self._cell = cell

    def add(self, value: Any) -> None:
        """Put a value in."""
        self._cell.set((value,), (True,))

    def discard(self, value: Any) -> None:
        """Take a value out, if it is there."""
        self._cell.remove((value,))

    def clear(self) -> None:
        """Take all values out."""
        self._cell.clear()

    def __contains__(self, value: object) -> bool:
        return self._cell.get((value,)) is not None

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return set(it)

    def __iter__(self) -> Iterator[Any]:
        return (key[0] for key, _ in self._cell.items())

    def __len__(self) -> int:
        return sum(1 for _ in self._cell.items())

    def __repr__(self) -> str:
        return repr(set(self))


class QueueView:
    """A queue in the order of a value."""

    __slots__ = ("_cell", "_next")

    def __init__(self, cell: MapCell) -> None:
        self._cell = cell
        self._next: dict[int, int] = {}

    def push(self, order: Any, item: Any) -> None:
        """Put an item in."""
        # A number after all others keeps items of one order as they came.
        position = self._cell.focus.position
        if position not in self._next:
            self._next[position] = max((key[1] for key, _ in self._cell.items()), default=-1) + 1
        self._cell.set((order, self._next[position]), (item,))
        self._next[position] += 1

    def peek(self) -> tuple[Any, Any] | None:
        """Give the first item with its order, and leave it in; None if there is none."""
        found = self._sorted()
        return (found[0][0][0], found[0][1][0]) if found else None

    def pop(self) -> tuple[Any, Any]:
        """Take the first item out, and give it with its order."""
        found = self._sorted()
        if not found:
            raise IndexError("the queue is empty")
        key, value = found[0]
        self._cell.remove(key)
        return key[0], value[0]

    def until(self, order: Any) -> list[tuple[Any, Any]]:
        """Take all items out up to and with an order, and give them in order."""
        taken = [(key, value) for key, value in self._sorted() if key[0] <= order]
        for key, _ in taken:
            self._cell.remove(key)
        return [(key[0], value[0]) for key, value in taken]

    def clear(self) -> None:
        """Take all items out."""
        self._cell.clear()

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return ((key[0], value[0]) for key, value in self._sorted())

    def __len__(self) -> int:
        return sum(1 for _ in self._cell.items())

    def __bool__(self) -> bool:
        return self._cell.exists()

    def _sorted(self) -> list[Any]:
        return sorted(self._cell.items(), key=lambda pair: pair[0])


class SynopsisView:
    """An object that is made of what is kept when it is first used, and kept again in the end if it may have changed.

    Everything but `clear` is the object's own. A method that was kept from an earlier call works on the key at hand, as
    those of all other views do.
    """

    def __init__(self, cell: ValueCell, synopsis: Any) -> None:
        self._cell = cell
        self._synopsis = synopsis
        self._open: dict[int, Any] = {}
        self._written: set[int] = set()

    def _live(self) -> Any:
        position = self._cell.focus.position
        live = self._open.get(position)
        if live is None:
            kept = self._cell.get()
            live = self._synopsis.create() if kept is None else self._synopsis.load(kept)
            self._open[position] = live
        return live

    def add(self, *values: Any, **named: Any) -> Any:
        """Put something in; what has a time to live then lives for as long again, even if it is as it was."""
        self._written.add(self._cell.focus.position)
        return self._live().add(*values, **named)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._live(), name)
        return partial(self._call, name) if callable(found) else found

    def _call(self, name: str, *values: Any, **named: Any) -> Any:
        return getattr(self._live(), name)(*values, **named)

    def __contains__(self, value: Any) -> bool:
        return value in self._live()

    def clear(self) -> None:
        """Begin anew."""
        self._open.pop(self._cell.focus.position, None)
        self._written.discard(self._cell.focus.position)
        self._cell.clear()

    def flush(self) -> None:
        """Keep what was used."""
        focus = self._cell.focus
        for position, live in self._open.items():
            focus.position = position
            kept, before = self._synopsis.dump(live), self._cell.get()
            renewed = self._cell.expiry is not None and position in self._written
            if renewed or kept != (self._synopsis.dump(self._synopsis.create()) if before is None else before):
                self._cell.update(kept)
        focus.position = None


class TaskView:
    """One value of the instance."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class FoldView:
    """A value that others are added to."""

    __slots__ = ("_accumulator", "_cell")

    def __init__(self, cell: ValueCell, accumulator: Any) -> None:
        self._cell = cell
        self._accumulator = accumulator

    def add(self, value: Any) -> None:
        """Add a value."""
        kept = self._cell.get()
        before = self._accumulator.create() if kept is None else kept[0]
        self._cell.update((self._accumulator.add(before, value),))

    @property
    def result(self) -> Any:
        """Give the result of all that was added."""
        kept = self._cell.get()
        return self._accumulator.result(self._accumulator.create() if kept is None else kept[0])

    def clear(self) -> None:
        """Begin anew."""
        self._cell.clear()
