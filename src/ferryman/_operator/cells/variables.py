"""The states of an operator, as they are stored: which tables and columns each of them makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ferryman._model.errors import UnhashableKey
from ferryman._operator.cells.records import Record
from ferryman._state import store as stores
from ferryman._state.expiry import look_fields, stored_fields
from ferryman._state.keys import KeySchema
from ferryman._state.tables import DUE_TIME, DUE_WHAT, GROUP, POSITION, TableSpec

VALUE = "_value"
SUBKEY = "_key."
TIMERS = "_timers"
FIRST, NEXT = "_first", "_next"

_RANGE = pa.struct([(FIRST, pa.int64()), (NEXT, pa.int64())])


@dataclass(frozen=True)
class Variable:
    """One state of an operator, by name; with a time to live, what is not written for so long is gone."""

    name: str
    record: Record
    ttl_ms: int | None = None

    @property
    def columns(self) -> list[pa.Field]:
        """Give the columns it has in the operator's first table."""
        return look_fields(self.name, self.ttl_ms)

    @property
    def _stored(self) -> list[pa.Field]:
        return [pa.field(VALUE, self.record.type), *stored_fields(self.ttl_ms)]

    def table(self, operator: str, key: pa.Schema, nulls: bool) -> TableSpec | None:
        """Give the table of its entries, if it has one."""
        return None


@dataclass(frozen=True)
class ValueVariable(Variable):
    """One value per key."""

    @property
    def columns(self) -> list[pa.Field]:
        stored = pa.struct([*self.record.fields, *stored_fields(self.ttl_ms)])
        return [pa.field(self.name, stored), *super().columns]


@dataclass(frozen=True)
class ListVariable(Variable):
    """A list of values per key: an entry for each, by its position."""

    @property
    def columns(self) -> list[pa.Field]:
        return [pa.field(self.name, _RANGE), *super().columns]

    def table(self, operator: str, key: pa.Schema, nulls: bool) -> TableSpec:
        return _table(operator, self.name, pa.schema([*key, (POSITION, pa.int64())]), pa.schema(self._stored), nulls)


@dataclass(frozen=True)
class MapVariable(Variable):
    """A map per key: an entry for each of its own keys."""

    key: Record = field(default_factory=lambda: Record(()))

    @property
    def subkey(self) -> list[str]:
        """Name the columns of the map's own key."""
        return [SUBKEY + part.name for part in self.key.fields]

    def table(self, operator: str, key: pa.Schema, nulls: bool) -> TableSpec:
        try:
            KeySchema(pa.schema(self.key.fields), entries=True, nulls=nulls)
        except UnhashableKey as error:
            raise UnhashableKey(f"operator {operator!r}, state {self.name!r}, its own key: {error.message}") from error
        subkey = [(name, part.type) for name, part in zip(self.subkey, self.key.fields, strict=True)]
        return _table(operator, self.name, pa.schema([*key, *subkey]), pa.schema(self._stored), nulls)


def due_table(operator: str) -> str:
    """Name the table of what is due, by time."""
    return f"{operator}.{DUE_TIME}"


def _table(operator: str, name: str, key: pa.Schema, state: pa.Schema, nulls: bool) -> TableSpec:
    keyed = KeySchema(key, entries=True, nulls=nulls)
    return TableSpec(
        name=f"{operator}.{name}", operator=operator, key=keyed, state=state, backend=stores.choose(keyed, state)
    )


def group_table(operator: str, name: str, record: Record) -> TableSpec:
    """Give the table of a state that has a row per key group."""
    key = KeySchema(pa.schema([(GROUP, pa.int64())]), entries=True)
    state = pa.schema([pa.field(VALUE, record.type)])
    return TableSpec(
        name=f"{operator}.{name}",
        operator=operator,
        key=key,
        state=state,
        backend=stores.choose(key, state),
        per_group=True,
    )


def tables_of(
    operator: str,
    key: pa.Schema,
    variables: Sequence[Variable],
    *,
    timers: bool,
    values: Sequence[pa.Field] | pa.Schema = (),
    windows: bool = False,
    nulls: bool = False,
) -> tuple[tuple[TableSpec, ...], str | None]:
    """List the tables of an operator's state, and name the one of what is due, if it needs one.

    `values` are columns that the first table has besides; `windows` says that something is due when they end, and
    `nulls` that a key may have nulls in it.
    """
    columns = [*values] + [column for variable in variables for column in variable.columns]
    if timers:
        columns.append(pa.field(TIMERS, pa.list_(pa.int64())))
    state, keyed = pa.schema(columns), KeySchema(key, nulls=nulls)
    tables = [TableSpec(name=operator, operator=operator, key=keyed, state=state, backend=stores.choose(keyed, state))]
    tables += [made for variable in variables if (made := variable.table(operator, key, nulls)) is not None]
    if not timers and not windows and all(variable.ttl_ms is None for variable in variables):
        return tuple(tables), None
    by_time = pa.schema([(DUE_TIME, pa.int64()), *key, (DUE_WHAT, pa.string())])
    tables.append(_table(operator, DUE_TIME, by_time, pa.schema([]), nulls))
    return tuple(tables), due_table(operator)
