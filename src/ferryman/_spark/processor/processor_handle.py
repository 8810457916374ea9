"""The handle a processor gets: once on the driver, to find out what it declares, and in every task."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.cells import Cells
from ferryman._operator.cells.list_cell import ListCell
from ferryman._operator.cells.map_cell import MapCell
from ferryman._operator.cells.timers import TimerCell
from ferryman._operator.cells.value_cell import ValueCell
from ferryman._spark.plan.schema import parse_ddl
from ferryman._spark.processor.declared_state import DeclaredState, Kind, stored_name
from ferryman._spark.processor.states import FerriedList, FerriedMap, FerriedValue

Schema = StructType | str


class Recorder(StatefulProcessorHandle):
    """Note what a processor declares; what it does besides is for later."""

    def __init__(self, operator: str, time_mode: str, key: Sequence[str]) -> None:
        self._key = key
        self._operator = operator
        self._time_mode = time_mode
        self.declared: dict[str, DeclaredState] = {}
        # What each is kept as.
        self.deleted: dict[str, str] = {}

    def getValueState(self, stateName: str, schema: Schema, ttlDurationMs: int | None = None) -> ValueState:
        self._note("value", stateName, schema, None, ttlDurationMs)
        return ValueState(self._absent(stateName), stateName)

    def getListState(self, stateName: str, schema: Schema, ttlDurationMs: int | None = None) -> ListState:
        self._note("list", stateName, schema, None, ttlDurationMs)
        return ListState(self._absent(stateName), stateName)

    def getMapState(
        self, stateName: str, userKeySchema: Schema, valueSchema: Schema, ttlDurationMs: int | None = None
    ) -> MapState:
        self._note("map", stateName, valueSchema, userKeySchema, ttlDurationMs)
        return MapState(self._absent(stateName), stateName)

    def deleteIfExists(self, stateName: str) -> None:
        self.declared.pop(stateName, None)
        self.deleted[stateName] = stored_name(stateName, self._key)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        raise _outside(self._operator, "registerTimer")

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        raise _outside(self._operator, "deleteTimer")

    def listTimers(self) -> Iterator[int]:
        raise _outside(self._operator, "listTimers")

    def _absent(self, name: str) -> Any:
        return _Absent(_outside(self._operator, f"state {name!r}"))

    def _note(self, kind: Kind, name: str, schema: Schema, key: Schema | None, ttl_ms: int | None) -> None:
        where = f"operator {self._operator!r}, state {name!r}"
        if name in self.declared:
            raise InvalidConfiguration(f"{where}: declared twice. Give each state a name of its own.")
        stored = stored_name(name, self._key)
        if stored in self.deleted.values():
            raise InvalidConfiguration(
                f"{where}: deleted and declared in the same `init`. Give the new state another name: what was deleted "
                "is in the checkpoint under this one until retention has come to it."
            )
        if not name or stored in [state.stored for state in self.declared.values()]:
            raise InvalidConfiguration(
                f"{where}: no state can be called that, or another one is. Give it another name."
            )
        # As for Spark, 0 is none.
        ttl_ms = ttl_ms or None
        if ttl_ms is not None and (self._time_mode != "processingtime" or ttl_ms <= 0):
            raise InvalidConfiguration(
                f"{where}: a time to live of {ttl_ms!r} ms with timeMode {self._time_mode!r}. It needs timeMode "
                "'ProcessingTime' and must not be below 0."
            )
        struct = parse_ddl(schema, where)
        subkey = None if key is None else parse_ddl(key, where)
        if not struct.fields or (subkey is not None and not subkey.fields):
            raise InvalidConfiguration(f"{where}: its schema has no fields. Declare one at the least.")
        if _repeats(struct) or (subkey is not None and _repeats(subkey)):
            raise InvalidConfiguration(
                f"{where}: its schema has two fields of one name ({struct.simpleString()}"
                + ("" if subkey is None else f", with the key {subkey.simpleString()}")
                + "). Give each a name of its own."
            )
        self.declared[name] = DeclaredState(
            kind, name, stored, struct.json(), subkey.json() if subkey else None, ttl_ms
        )


def _repeats(kind: DataType) -> bool:
    """Tell whether a type has two fields of one name side by side, at any depth."""
    if isinstance(kind, StructType):
        return len(set(kind.names)) < len(kind.names) or any(_repeats(field.dataType) for field in kind)
    if isinstance(kind, MapType):
        return _repeats(kind.keyType) or _repeats(kind.valueType)
    return isinstance(kind, ArrayType) and _repeats(kind.elementType)


class _Absent:
    """Stands where Spark has its client, under a state that cannot be used: any use raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


def _outside(operator: str, what: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"operator {operator!r}: `init` or `close` used {what} while no key is at hand. Only declare states there; use "
        "them in handleInputRows, handleExpiredTimer or handleInitialState."
    )


class Handle(StatefulProcessorHandle):
    """Hand out the cells of what was declared; what was deleted besides may be declared too, and not be used."""

    def __init__(self, declared: tuple[DeclaredState, ...], deleted: Collection[str], variables: Cells) -> None:
        self._declared = {state.name: state for state in declared}
        self._deleted = deleted
        self._variables = variables

    def getValueState(self, stateName: str, schema: Schema, ttlDurationMs: int | None = None) -> ValueState:
        if stateName in self._deleted:
            return ValueState(_deleted(stateName), stateName)
        cell = self._cell("value", stateName)
        assert isinstance(cell, ValueCell), "its kind was checked"
        return FerriedValue(cell)

    def getListState(self, stateName: str, schema: Schema, ttlDurationMs: int | None = None) -> ListState:
        if stateName in self._deleted:
            return ListState(_deleted(stateName), stateName)
        cell = self._cell("list", stateName)
        assert isinstance(cell, ListCell), "its kind was checked"
        return FerriedList(cell, stateName)

    def getMapState(
        self, stateName: str, userKeySchema: Schema, valueSchema: Schema, ttlDurationMs: int | None = None
    ) -> MapState:
        if stateName in self._deleted:
            return MapState(_deleted(stateName), stateName)
        cell = self._cell("map", stateName)
        assert isinstance(cell, MapCell), "its kind was checked"
        return FerriedMap(cell, stateName)

    def deleteIfExists(self, stateName: str) -> None:
        """Do nothing in `init`: the state was left out when the job started."""
        if self._variables.focus.position is not None:
            raise ValueError(
                f"deleteIfExists was called for state {stateName!r} while a key is at hand. Call it in `init`; to "
                "empty the state of one key, call its clear()"
            )

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._timers().register(int(expiryTimestampMs))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._timers().delete(int(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        return _listed(self._timers())

    def _timers(self) -> TimerCell:
        if self._variables.timers is None:
            raise ValueError(
                "timers are not available with timeMode 'None'. Use timeMode 'ProcessingTime' or 'EventTime'"
            )
        if self._variables.focus.position is None:
            raise ValueError("a timer belongs to a key, and none is at hand in init or close")
        return self._variables.timers

    def _cell(self, kind: Kind, name: str) -> Any:
        declared = self._declared.get(name)
        if declared is None or declared.kind != kind:
            what = "was not declared" if declared is None else f"was declared as a {declared.kind}"
            raise ValueError(
                f"state {name!r} {what} when the job started. Declare the same states in every call of `init`, "
                "whatever it depends on"
            )
        return self._variables.by_name[declared.stored]


def _deleted(name: str) -> Any:
    # Of the class that Spark raises here, the one error of a state after which a processor can go on.
    return _Absent(
        PySparkRuntimeError(
            f"state {name!r} was deleted in `init`, and there is nothing in it. Leave deleteIfExists({name!r}) out, or "
            "keep what you need in a state of another name"
        )
    )


def _listed(timers: TimerCell) -> Iterator[int]:
    """List timers when the first is asked for, as Spark does."""
    yield from timers.listed()
