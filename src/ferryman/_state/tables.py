"""The tables an operator's state is made of, and how a task reads the entries of its keys.

The first table of an operator has one row per key. Lists, maps and timers have a table each, whose key is the
operator's key and a subkey; there a key has many rows, its *entries*, which are read when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ferryman._state.compiled import Ints
from ferryman._state.earlier_columns import Evolution
from ferryman._state.keys import Keys, KeySchema, prefixes
from ferryman._state.store.contract import Found, Ranges, Store, delta_schema, end_of
from ferryman._state.words import Mask

DUE_TIME = "_time"
DUE_WHAT = "_what"
POSITION = "_position"
GROUP = "_group"
PANE = "_pane"

# More rows than anybody has entries.
ALL_ROWS = 1 << 62


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """One table of an operator.

    Attributes
    ----------
    name
        Its name in the checkpoint: the operator's own for the first one, "operator.state" for the others.
    key
        The operator's key, and with it the subkey, if there is one.
    per_group
        Whether it has a row per key group and not per key.
    broadcast
        Whether the driver keeps it, and every task gets all of it.
    settings
        What of the operator's declaration the columns do not show, and what is kept depends on; of its first table.
    """

    name: str
    operator: str
    key: KeySchema
    state: pa.Schema
    backend: str
    evolution: Evolution = Evolution()  # noqa: RUF009  it is frozen
    per_group: bool = False
    broadcast: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Changes:
    """The entries that an operator changed in one table: no entry twice.

    Attributes
    ----------
    positions
        Whose entry it is, as the position among the keys of the epoch.
    subkey
        What tells the entry from others of its key, by column.
    deleted
        Whether it is gone.
    state
        Its columns; anything where it is gone.
    """

    positions: Ints
    subkey: Mapping[str, pa.Array]
    deleted: Mask
    state: Sequence[pa.Array]

    def delta(self, spec: TableSpec, touched: Keys) -> pa.Table:
        """Write the changes as a delta."""
        keys = touched.take(self.positions)
        columns = dict(zip(touched.schema.fields.names, keys.columns(), strict=True))
        columns.update(self.subkey)
        arrays = [pa.array(keys.hash), pa.array(self.deleted), *(columns[name] for name in spec.key.fields.names)]
        return pa.Table.from_arrays([*arrays, *self.state], schema=delta_schema(spec.key, spec.state))


def parts_of(store: Store, groups: Ints) -> pa.Table:
    """Read the rows of some key groups from a table that has one for each, in the order of the groups."""
    listed = groups.tolist()
    return store.ranges(listed, [b""] * len(listed), [b"\xff" * 9] * len(listed), ALL_ROWS).part


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of key groups that an operator changed in such a table."""

    groups: Sequence[int]
    deleted: Sequence[bool]
    state: Sequence[pa.Array]

    def delta(self, spec: TableSpec, touched: Keys) -> pa.Table:
        """Write the changes as a delta; the hash of a group is its number."""
        groups = pa.array(self.groups, pa.int64())
        arrays = [groups, pa.array(self.deleted, pa.bool_()), groups, *self.state]
        return pa.Table.from_arrays(arrays, schema=delta_schema(spec.key, spec.state))


@dataclass(eq=False)
class Entries:
    """Read the entries of the keys of an epoch from one table, at the epoch before."""

    spec: TableSpec
    store: Store
    touched: Keys
    total: int
    _groups: list[int] = field(default_factory=list)
    _low: list[bytes] = field(default_factory=list)

    def of(self, positions: Sequence[int], limit: int = ALL_ROWS) -> Ranges:
        """Read the entries of some keys, each in the order of the subkey; `index` counts within `positions`."""
        if not self._low:
            columns = self.touched.columns()
            schema = self.touched.schema
            self._low = prefixes(columns, schema.fields.types, nulls=schema.nulls)
            self._groups = self.touched.groups(self.total).tolist()
        low = [self._low[position] for position in positions]
        return self.store.ranges(
            [self._groups[position] for position in positions], low, [end_of(prefix) for prefix in low], limit
        )

    def at(self, positions: Sequence[int] | Ints, subkey: Mapping[str, pa.Array]) -> Found:
        """Read single entries: of each position, the one with the given subkey."""
        some = self.touched.take(np.asarray(positions, np.int64))
        columns = dict(zip(self.touched.schema.fields.names, some.columns(), strict=True))
        columns.update(subkey)
        key = self.spec.key
        return self.store.lookup(Keys.of(key, some.hash, [columns[name] for name in key.fields.names]))


def first_due(store: Store, groups: Ints, after_ms: int | None, *, nulls: bool) -> int | None:
    """Find the first thing that is due in some key groups after a time."""
    low = b"" if after_ms is None else _from(after_ms + 1, nulls)
    high = b"\xff" * 9
    listed = groups.tolist()
    found = store.ranges(listed, [low] * len(listed), [high] * len(listed), 1).part.column(DUE_TIME)
    return min(found.to_pylist(), default=None)


def due(store: Store, groups: Ints, until_ms: int, *, nulls: bool) -> pa.Table:
    """Read what is due in some key groups up to a time, from a table whose key begins with the time."""
    end = _from(until_ms + 1, nulls)
    listed = groups.tolist()
    return store.ranges(listed, [b""] * len(listed), [end] * len(listed), ALL_ROWS).part


def _from(time_ms: int, nulls: bool) -> bytes:
    """Give what the keys of entries of a time begin with, where the time comes first."""
    return prefixes([pa.array([time_ms], pa.int64())], [pa.int64()], nulls=nulls)[0]


def unpack_broadcasts(packed: Mapping[str, bytes]) -> dict[str, pa.Table]:
    """Read broadcast states as they travelled to a task."""
    found = {}
    for name, data in packed.items():
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            found[name] = reader.read_all()
    return found
