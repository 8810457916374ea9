"""Declare state that has many parts per key: lists, maps, sets, queues, counters, and values that are merged.

Inside `process` each is an object that reads like Python's own; what it keeps is an entry per part, so that the cost of
an epoch follows the parts it touches. Every type says how two states of one key merge into one, or that they cannot.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.cells import ListVariable, MapVariable, Record, ValueVariable, Variable
from ferryman._operator.declare.declared_types import arrow_type, dumper, loader
from ferryman._operator.types.views import (
    CounterView,
    DequeView,
    FoldView,
    GraphView,
    ListView,
    MapView,
    QueueView,
    SetView,
)
from ferryman._state.expiry import check_ttl

Merge = Callable[[Any, Any], Any]


def record(**kinds: Any) -> Record:
    """Give the record of some named types."""
    fields = tuple(pa.field(name, arrow_type(kind)) for name, kind in kinds.items())
    return Record(fields, tuple(map(loader, kinds.values())), tuple(map(dumper, kinds.values())))


class State:
    """What all declared states share: a name, and a time to live.

    Parameters
    ----------
    ttl
        After how many milliseconds what was not written again is gone; None for never.
    alias
        The name that the state had first, and under which it is kept: an attribute can be called otherwise, and what
        is kept cannot.
    """

    def __init__(self, *, ttl: int | None = None, alias: str | None = None) -> None:
        check_ttl(ttl)
        self.name = ""
        self.alias = alias
        self.ttl = ttl

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def stored_as(self) -> str:
        """Give the name under which it is kept."""
        return self.alias or self.name

    def variable(self) -> Variable:
        """Give the state as it is kept."""
        raise NotImplementedError

    def view(self, cell: Any) -> Any:
        """Give what `process` sees of it."""
        raise NotImplementedError

    def settings(self) -> str:
        """Say how it is declared, if what is kept depends on more of that than its type; else nothing."""
        return ""

    def _parameters(self) -> str:
        plain = {name: value for name, value in vars(self).items() if isinstance(value, (int, float)) and name != "ttl"}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in plain.items())})"

    def merge(self, one: Any, other: Any) -> Any:
        """Merge two states, given as plain Python values; of a job's own states only a `PerInstance` is ever merged."""
        raise InvalidConfiguration(
            f"two states {self.name!r} cannot be merged: a {type(self).__name__} has no rule for it. Give it one "
            "(merge=...)."
        )


class List(State):
    """Declare a list per key: `append`, `extend`, iterate, `len`, index, `clear`, `replace`.

    Examples
    --------
    >>> from ferryman import List
    >>> List(float).merge([1.0], [2.0])
    [1.0, 2.0]
    """

    def __init__(self, kind: Any, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(ttl=ttl, alias=alias)
        self.kind = kind

    def variable(self) -> Variable:
        return ListVariable(self.stored_as, record(item=self.kind), self.ttl)

    def view(self, cell: Any) -> ListView:
        return ListView(cell)

    def merge(self, one: Iterable[Any], other: Iterable[Any]) -> list[Any]:
        return [*one, *other]


class Deque(List):
    """Declare a list per key that keeps the newest `maxlen` values: `append`, `popleft`, iterate, `len`."""

    def __init__(self, kind: Any, maxlen: int, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(kind, ttl=ttl, alias=alias)
        if maxlen < 1:
            raise InvalidConfiguration(f"maxlen={maxlen!r}: a Deque keeps 1 value at the least.")
        self.maxlen = maxlen

    def view(self, cell: Any) -> DequeView:
        return DequeView(cell, self.maxlen)

    def merge(self, one: Iterable[Any], other: Iterable[Any]) -> list[Any]:
        """Keep the newest of both: those of the second are the newer ones."""
        return list(deque([*one, *other], self.maxlen))


class Map(State):
    """Declare a map per key, used like a dict.

    Parameters
    ----------
    key, value
        The types of its keys and values; a key is a number, a text, a date or the like.
    merge
        How `merge` makes one of two values of one key; without it, maps that have a key in common cannot be merged.

    Examples
    --------
    >>> from ferryman import Map
    >>> Map(str, int, merge=lambda a, b: a + b).merge({"a": 1}, {"a": 2, "b": 3})
    {'a': 3, 'b': 3}
    """

    def __init__(
        self, key: Any, value: Any, *, merge: Merge | None = None, ttl: int | None = None, alias: str | None = None
    ) -> None:
        super().__init__(ttl=ttl, alias=alias)
        self.key = key
        self.value = value
        self._merge = merge

    def variable(self) -> Variable:
        return MapVariable(self.stored_as, record(item=self.value), self.ttl, record(key=self.key))

    def view(self, cell: Any) -> MapView:
        return MapView(cell)

    def merge(self, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
        merged = dict(one)
        for key, value in other.items():
            if key in merged:
                if self._merge is None:
                    super().merge(one, other)
                    raise AssertionError("it has no rule")
                value = self._merge(merged[key], value)
            merged[key] = value
        return merged


class Graph(Map):
    """Declare the edges of a vertex: a map from neighbour to edge, read in the order of the neighbours."""

    def view(self, cell: Any) -> MapView:
        return GraphView(cell)


class Set(State):
    """Declare a set per key: `add`, `discard`, `in`, iterate, `len`."""

    def __init__(self, kind: Any, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(ttl=ttl, alias=alias)
        self.kind = kind

    def variable(self) -> Variable:
        return MapVariable(self.stored_as, record(there=bool), self.ttl, record(key=self.kind))

    def view(self, cell: Any) -> SetView:
        return SetView(cell)

    def merge(self, one: Iterable[Hashable], other: Iterable[Hashable]) -> set[Hashable]:
        return {*one, *other}


class Counter(Map):
    """Declare counters per key: `self.words["a"] += 1`; what was never counted is 0."""

    def __init__(self, kind: Any, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(kind, int, merge=int.__add__, ttl=ttl, alias=alias)

    def view(self, cell: Any) -> CounterView:
        return CounterView(cell)


class Queue(State):
    """Declare a queue per key that is read in the order of a value: `push(order, item)`, `pop`, `peek`, `until(order)`.

    Items of equal order come out as they went in.
    """

    def __init__(self, order: Any, item: Any, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(ttl=ttl, alias=alias)
        self.order = order
        self.item = item

    def variable(self) -> Variable:
        return MapVariable(self.stored_as, record(item=self.item), self.ttl, record(order=self.order, number=int))

    def view(self, cell: Any) -> QueueView:
        return QueueView(cell)

    def merge(self, one: Iterable[tuple[Any, Any]], other: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        return list(heapq.merge(one, other, key=lambda pair: pair[0]))


class PerInstance(State):
    """Declare one value per instance and not per key: `self.total.value`.

    It is kept in parts, one per key group, so that it goes where the groups go: an instance begins an epoch with the
    merged parts of its groups.

    Parameters
    ----------
    kind
        Its type.
    create
        A function that makes the value an instance begins with when it has no part.
    merge
        How two parts become one.
    split
        How a value is cut into so many parts; if left out, it stays whole, and moves as a whole.

    Examples
    --------
    >>> import operator
    >>> from ferryman import PerInstance
    >>> PerInstance(int, int, merge=operator.add).merge(1, 2)
    3
    """

    def __init__(
        self,
        kind: Any,
        create: Callable[[], Any],
        *,
        merge: Merge,
        split: Callable[[Any, int], list[Any]] | None = None,
        alias: str | None = None,
    ) -> None:
        super().__init__(alias=alias)
        self.kind = kind
        self.create = create
        self._merge = merge
        self.split = split

    def merge(self, one: Any, other: Any) -> Any:
        return self._merge(one, other)

    def record(self) -> Record:
        """Give the record of a part."""
        return record(part=self.kind)


class Accumulator(Protocol):
    """How an `Aggregating` state adds up: an object with these, and `type`, what it keeps."""

    type: ClassVar[Any]

    def create(self) -> Any:
        """Begin."""

    def add(self, kept: Any, value: Any) -> Any:
        """Add a value to what is kept, and give what to keep."""

    def merge(self, one: Any, other: Any) -> Any:
        """Merge what two have kept."""

    def result(self, kept: Any) -> Any:
        """Give the result of what is kept."""


@dataclass(frozen=True)
class _Fold:
    """A function of two values as an accumulator."""

    type: Any
    function: Merge

    def create(self) -> None:
        return None

    def add(self, kept: Any, value: Any) -> Any:
        return value if kept is None else self.function(kept, value)

    def merge(self, one: Any, other: Any) -> Any:
        return one if other is None else self.add(one, other)

    def result(self, kept: Any) -> Any:
        return kept


class Aggregating(State):
    """Declare an aggregate per key: `add(value)`, `result`, `clear`.

    Parameters
    ----------
    accumulator
        An object with `type`, `create()`, `add(kept, value)`, `merge(one, other)` and `result(kept)`.
    """

    def __init__(self, accumulator: Any, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(ttl=ttl, alias=alias)
        self.accumulator = accumulator

    def variable(self) -> Variable:
        return ValueVariable(self.stored_as, record(kept=self.accumulator.type), self.ttl)

    def view(self, cell: Any) -> FoldView:
        return FoldView(cell, self.accumulator)

    def merge(self, one: Any, other: Any) -> Any:
        return self.accumulator.merge(one, other)


class Reducing(Aggregating):
    """Declare a value per key that others are folded into: `add(value)`, `result`, `clear`.

    Examples
    --------
    >>> from ferryman import Reducing
    >>> Reducing(float, max).merge(1.0, 2.0)
    2.0
    """

    def __init__(self, kind: Any, function: Merge, *, ttl: int | None = None, alias: str | None = None) -> None:
        super().__init__(_Fold(kind, function), ttl=ttl, alias=alias)
