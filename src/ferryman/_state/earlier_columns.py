"""Read what was written under an earlier declaration as the newest one has it.

A state may gain a column, have one widened, renamed or dropped. Nothing is rewritten for it: deltas and snapshots keep
the columns they were written with, and are fitted when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ferryman._state.expiry import EXPIRES
from ferryman._state.store.contract import DELETED
from ferryman._state.words import one_array


@dataclass(frozen=True)
class Evolution:
    """What a declaration says about earlier ones.

    Attributes
    ----------
    defaults
        One row with what a column has where it was not declared yet; columns that are left out get nulls.
    aliases
        The earlier names of columns, by the new one, newest first.
    """

    defaults: pa.Table | None = None
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def fit(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Give rows the columns of a schema."""
        if rows.schema.equals(schema):
            return rows
        return pa.Table.from_arrays([self._column(rows, field) for field in schema], schema=schema)

    def _column(self, rows: pa.Table, wanted: pa.Field) -> pa.Array:
        for name in (wanted.name, *self.aliases.get(wanted.name, ())):
            if name in rows.column_names:
                column = rows.column(name)
                return fit_array(one_array(column, column.type), wanted.type)
        if self.defaults is None or wanted.name not in self.defaults.column_names:
            return pa.nulls(rows.num_rows, wanted.type)
        default = one_array(self.defaults.column(wanted.name), wanted.type)
        # The row after the last one is null: what a deleted key gets.
        taken = np.zeros(rows.num_rows, np.int64)
        if DELETED in rows.column_names:
            taken[rows.column(DELETED).to_numpy()] = 1
        return pa.concat_arrays([default, pa.nulls(1, wanted.type)]).take(pa.array(taken))

    def after(self, earlier: Evolution, had: Sequence[str]) -> Evolution:
        """Give this evolution on top of an earlier one, whose declaration had these columns.

        A column goes on with the names it had before. Its default is that of the day it appeared: a new one does not
        change the past.
        """
        aliases = {name: tuple(names) for name, names in earlier.aliases.items()}
        for name, names in self.aliases.items():
            older = (older_name for alias in names for older_name in (alias, *earlier.aliases.get(alias, ())))
            aliases[name] = tuple(dict.fromkeys((*older, *aliases.get(name, ()))))
        if self.defaults is None:
            return Evolution(earlier.defaults, aliases)
        columns = {}
        for name in self.defaults.column_names:
            before = next((known for known in (name, *aliases.get(name, ())) if known in had), None)
            old = earlier.defaults
            if before is not None and old is not None and before in old.column_names:
                kind = self.defaults.schema.field(name).type
                columns[name] = fit_array(one_array(old.column(before), old.schema.field(before).type), kind)
            elif before is None:
                columns[name] = one_array(self.defaults.column(name), self.defaults.schema.field(name).type)
        return Evolution(pa.table(columns) if columns else None, aliases)


def fit_array(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Give an array a wider type; a struct gains its new fields as nulls, and finds others under earlier names."""
    if array.type == dtype:
        return array
    t = pa.types
    if t.is_struct(dtype) and t.is_struct(array.type):
        have = {array.type.field(i).name: i for i in range(array.type.num_fields)}
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        held = [next((have[name] for name in names_of(field) if name in have), None) for field in fields]
        children = [
            pa.nulls(len(array), field.type) if place is None else fit_array(array.field(place), field.type)
            for field, place in zip(fields, held, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if t.is_list(dtype) and t.is_list(array.type):
        if array.offset:
            array = array.take(pa.array(np.arange(len(array))))
        values = fit_array(array.values, dtype.value_type)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, values, type=dtype, mask=mask)
    if t.is_map(dtype) and t.is_map(array.type):
        children = [fit_array(array.keys, dtype.key_type), fit_array(array.items, dtype.item_type)]
        entries = pa.StructArray.from_arrays(children, fields=[dtype.key_field, dtype.item_field])
        return pa.Array.from_buffers(dtype, len(array), array.buffers()[:2], offset=array.offset, children=[entries])
    return pc.cast(array, dtype)


def unfit(
    old: pa.Schema,
    new: pa.Schema,
    aliases: Mapping[str, Sequence[str]],
    dropped: Sequence[str],
    plain: Collection[str],
    whole: str = "",
) -> Iterator[tuple[str, str, str]]:
    """List the columns whose old values the new declaration cannot hold: (name, old type, new type).

    `dropped` names columns that are given up, and fields of structs by their paths, "column.field", or "column.*" for
    whatever fields are left out, as long as none is new: that might be the old one by a new name. In columns that are
    not `plain` the user's values are in a struct of the state's own, which is no part of a path. Where all columns are
    of one state, `whole` is that state's name, and its fields go by it.
    """
    taken = set()
    for column in new:
        name = next((known for known in (column.name, *aliases.get(column.name, ())) if known in old.names), None)
        if name is None:
            continue
        taken.add(name)
        before = old.field(name).type
        states = (whole,) if whole else (name, column.name)
        gone = {path[len(state) + 1 :] for path in dropped for state in states if path.startswith(f"{state}.")}
        if column.name not in plain and pa.types.is_struct(before):
            inside = {f"{before.field(n).name}.{path}" for n in range(before.num_fields) for path in gone}
            gone = inside | (gone & {ANY})
        if not widens(before, column.type, gone):
            yield column.name, str(before), str(column.type)
    for column in old:
        if column.name not in taken and column.name.removeprefix("_due.") not in dropped:
            yield column.name, str(column.type), "not there"


def named(name: str, dtype: pa.DataType, aliases: Sequence[str] = ()) -> pa.Field:
    """Make a field of a struct, with the names it had earlier, newest first."""
    return pa.field(name, dtype, metadata={_ALIASES: json.dumps(aliases)} if aliases else None)


def names_of(field: pa.Field) -> tuple[str, ...]:
    """Give the name of a field of a struct and those it had earlier.

    Examples
    --------
    >>> names_of(named("speed", pa.int64(), ["v"]))
    ('speed', 'v')
    """
    told = (field.metadata or {}).get(_ALIASES)
    return (field.name, *json.loads(told)) if told else (field.name,)


def forgotten(old: pa.DataType, new: pa.DataType) -> Iterator[tuple[str, str]]:
    """List the earlier names of fields of structs that a declaration knew and the new one does not: (field, name)."""
    t = pa.types
    if t.is_struct(old) and t.is_struct(new):
        for before in (old.field(number) for number in range(old.num_fields)):
            for after in (new.field(number) for number in range(new.num_fields)):
                if before.name in names_of(after):
                    yield from ((after.name, name) for name in names_of(before) if name not in names_of(after))
                    yield from forgotten(before.type, after.type)
    elif (t.is_list(old) and t.is_list(new)) or (t.is_map(old) and t.is_map(new)):
        for number in range(old.num_fields):
            yield from forgotten(old.field(number).type, new.field(number).type)


# Gives up whatever fields are left out.
ANY = "*"
# Where a field of a struct says how it was called earlier: a JSON list.
_ALIASES = b"ferryman.aliases"
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
# Which integers a float holds exactly.
_EXACT = {pa.float32(): _INTEGERS[:2], pa.float64(): _INTEGERS[:3]}


def fields_of(kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.Field]]:
    """List the fields of structs in a type, at any depth, with their paths."""
    t = pa.types
    if t.is_struct(kind) or t.is_list(kind) or t.is_map(kind):
        for field in (kind.field(number) for number in range(kind.num_fields)):
            inner = f"{path}.{field.name}" if t.is_struct(kind) else path
            if t.is_struct(kind):
                yield inner, field
            yield from fields_of(field.type, inner)


def widens(old: pa.DataType, new: pa.DataType, gone: Collection[str] = (), path: str = "") -> bool:
    """Tell whether every value of one type is a value of another, but for fields of structs that are given up.

    Those are named by their paths: what is in a list or a map has the path of that. `ANY` stands for all of a struct
    that has no new ones.

    Examples
    --------
    >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.int32()), widens(pa.int32(), pa.float64())
    (True, False, True)
    """
    t = pa.types
    if old == new or t.is_null(old):
        return True
    if t.is_struct(old) and t.is_struct(new):
        olds = {old.field(number).name: old.field(number).type for number in range(old.num_fields)}
        # As `fit_array` reads it: each takes one, which has its name or, where none has, an earlier one of it.
        after: dict[str, pa.DataType] = {}
        new_ones = set()
        for field in (new.field(number) for number in range(new.num_fields)):
            taken = next((name for name in names_of(field) if name in olds), None)
            if taken is None:
                new_ones.add(field.name)
            else:
                after[taken] = field.type
        left_out = ANY in gone and not new_ones - {EXPIRES}
        return all(
            widens(kind, after[name], gone, f"{path}{name}.")
            if name in after
            else f"{path}{name}" in gone or (left_out and name != EXPIRES)
            for name, kind in olds.items()
        )
    if t.is_list(old) and t.is_list(new):
        return widens(old.value_type, new.value_type, gone, path)
    if t.is_map(old) and t.is_map(new):
        return widens(old.key_type, new.key_type, gone, path) and widens(old.item_type, new.item_type, gone, path)
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if old in _INTEGERS:
        return old in _EXACT.get(new, ())
    if t.is_decimal(old) and t.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    pairs = {(pa.float32(), pa.float64()), (pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())}
    return (old, new) in pairs
