"""A map per key: an entry for each of the map's own keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._operator.cells.aliasing import Aliases
from ferryman._operator.cells.expiring_cells import Expiry
from ferryman._operator.cells.key_at_hand import Focus
from ferryman._operator.cells.read_ahead import ReadAhead
from ferryman._operator.cells.variables import VALUE, MapVariable
from ferryman._operator.run.python_columns import Misfit
from ferryman._state.expiry import EXPIRES
from ferryman._state.tables import ALL_ROWS, Changes, Entries
from ferryman._state.words import one_array

Tuple = tuple[Any, ...]

# A map with fewer entries is read whole when it is first looked into; of a larger one, single entries are.
SMALL = 64


@dataclass
class _Now:
    """What is known of the map of one key: what was stored, as far as read, and what was done to it.

    A value in `stored` or `new` is None where the map has no such entry. `whole` says that `stored` has all of it.
    """

    stored: dict[Tuple, tuple[Tuple, int | None] | None] = field(default_factory=dict)
    whole: bool = False
    looked: bool = False
    new: dict[Tuple, Tuple | None] = field(default_factory=dict)


class MapCell:
    """Read and write the map of the key at hand."""

    def __init__(self, variable: MapVariable, state: pa.Table, entries: Entries, focus: Focus, keys: int) -> None:
        self._variable = variable
        self._focus = self.focus = focus
        self._entries = entries
        self._ahead = ReadAhead(entries, keys)
        self._open: dict[int, _Now] = {}
        self.expiry = Expiry.of(variable, state, focus)
        self._aliases = Aliases() if variable.record.mutable else None

    # -- what the user calls ---------------------------------------------------------------------

    def exists(self) -> bool:
        """Tell whether the key's map has an entry."""
        now = self._now()
        if any(value is not None for value in now.new.values()):
            return True
        return bool(self._whole())

    def get(self, key: Tuple) -> Tuple | None:
        """Give the value of an entry; None if there is none."""
        now = self._now()
        key = self._variable.key.subkey(key, self._variable.name)
        return self._out(key, self._found(now, key))

    def _found(self, now: _Now, key: Tuple) -> Tuple | None:
        if key in now.new:
            return now.new[key]
        if not now.looked:
            self._look(now, SMALL)
        if key not in now.stored and not now.whole:
            now.stored[key] = self._one(key)
            self._begun(now)
        found = now.stored.get(key)
        return found[0] if found is not None else None

    def set(self, key: Tuple, value: Tuple) -> None:
        """Set an entry; what is there already is not read."""
        key = self._variable.key.subkey(key, self._variable.name)
        self._now().new[key] = self._variable.record.taken(value, self._variable.name)
        if self._aliases is not None:
            self._aliases.forget(self._focus.position, key)
        if self.expiry is not None:
            self.expiry.written()

    def remove(self, key: Tuple) -> None:
        """Remove an entry, if it is there."""
        key = self._variable.key.subkey(key, self._variable.name)
        self._now().new[key] = None
        if self._aliases is not None:
            self._aliases.forget(self._focus.position, key)

    def _out(self, key: Tuple, value: Tuple | None) -> Tuple | None:
        if self._aliases is None or value is None:
            return value
        return self._aliases.hand_out(self._focus.position, key, value)  # type: ignore[no-any-return]

    def mutated(self) -> int | None:
        """Find a key with an entry that was handed out, changed in place, and not set."""
        changed = self._aliases.changed() if self._aliases is not None else None
        return None if changed is None else changed[0]

    def items(self) -> Iterator[tuple[Tuple, Tuple]]:
        """Give all entries, in the order of their keys as stored, new ones last."""
        found = list(self._whole().items())
        if self._aliases is not None:
            for key, value in found:
                self._out(key, value)
        return iter(found)

    def clear(self) -> None:
        """Remove the key's map."""
        now = self._now()
        for key in self._whole():
            now.new[key] = None
        if self._aliases is not None:
            self._aliases.forget(self._focus.position)

    # -- reading ---------------------------------------------------------------------------------

    def _now(self) -> _Now:
        position = self._focus.position
        now = self._open.get(position)
        if now is None:
            if position is None:
                raise self._focus.nobody(self._variable.name)
            now = self._open[position] = _Now()
        return now

    def _whole(self) -> dict[Tuple, Tuple]:
        now = self._now()
        if not now.looked:
            self._look(now, SMALL)
        if not now.whole:
            self._look(now, ALL_ROWS)
        found = {key: entry[0] for key, entry in now.stored.items() if entry is not None}
        for key, value in now.new.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return found

    def _look(self, now: _Now, limit: int) -> None:
        position = self._focus.position
        now.looked = True
        few = limit < ALL_ROWS
        part = self._ahead.entries(position, limit + 1) if few else self._entries.of([position]).part
        now.whole = part.num_rows <= limit
        if not now.whole:
            return
        keys = self._variable.key.subkeys([part.column(name) for name in self._variable.subkey])
        now.stored = dict(zip(keys, self._values(part), strict=True))
        self._begun(now)

    def _values(self, part: pa.Table) -> list[tuple[Tuple, int | None] | None]:
        stored = one_array(part.column(VALUE), part.schema.field(VALUE).type)
        values = self._variable.record.tuples([stored.field(number) for number in range(stored.type.num_fields)])
        if self.expiry is None:
            return [(value, None) for value in values]
        gone, expires = self.expiry.gone, part.column(EXPIRES).to_pylist()
        return [None if gone(at) else (value, at) for value, at in zip(values, expires, strict=True)]

    def _begun(self, now: _Now) -> None:
        """Let what was written before there was a time to live begin to live."""
        if self.expiry is not None:
            for key, entry in now.stored.items():
                if entry is not None and entry[1] is None and key not in now.new:
                    now.new[key] = entry[0]
                    self.expiry.written()

    def _one(self, key: Tuple) -> tuple[Tuple, int | None] | None:
        columns = self._variable.key.columns([key], f"state {self._variable.name!r}: key field")
        found = self._entries.at([self._focus.position], dict(zip(self._variable.subkey, columns, strict=True)))
        return self._values(found.state)[0] if found.present[0] else None

    def look_at_expired(self) -> None:
        """Take the entries out whose time is over; come back when the next one's is."""
        assert self.expiry is not None, "only a state with a time to live is ever due"
        now = self._now()
        self._whole()
        written = any(value is not None for value in now.new.values())
        left = []
        for key, entry in now.stored.items():
            if entry is None:
                now.new.setdefault(key, None)
            elif key not in now.new and entry[1] is not None:
                left.append(entry[1])
        self.expiry.look_again(left, written=written)

    # -- what changed ----------------------------------------------------------------------------

    def columns(self, positions: list[int]) -> list[pa.Array]:
        """Give the cell's columns in the first table, for some keys."""
        return [self.expiry.looks(positions)] if self.expiry is not None else []

    def changes(self) -> Changes | None:
        """Give the entries that changed."""
        owners: list[int] = []
        keys: list[Tuple] = []
        values: list[Tuple | None] = []
        for position, now in self._open.items():
            owners += [position] * len(now.new)
            keys += now.new.keys()
            values += now.new.values()
        if not owners:
            return None
        where = f"state {self._variable.name!r}:"
        try:
            subkey = self._variable.key.columns(keys, f"{where} key field")
            arrays = self._variable.record.columns(values, f"{where} field")
        except Misfit as misfit:
            misfit.position = owners[misfit.position]
            raise
        deleted = np.array([value is None for value in values])
        state = [pa.StructArray.from_arrays(arrays, fields=list(self._variable.record.fields), mask=pa.array(deleted))]
        if self.expiry is not None:
            state.append(self.expiry.stored(deleted))
        columns = dict(zip(self._variable.subkey, subkey, strict=True))
        return Changes(np.array(owners, np.int64), columns, deleted, state)
