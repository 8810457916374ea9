"""A list of values per key: an entry for each value, by position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._operator.cells.aliasing import Aliases
from ferryman._operator.cells.expiring_cells import Expiry
from ferryman._operator.cells.key_at_hand import Focus
from ferryman._operator.cells.read_ahead import ReadAhead
from ferryman._operator.cells.variables import FIRST, NEXT, VALUE, ListVariable
from ferryman._operator.run.python_columns import Misfit, to_list
from ferryman._state.expiry import EXPIRES
from ferryman._state.tables import POSITION, Changes, Entries
from ferryman._state.words import one_array

Tuple = tuple[Any, ...]


@dataclass(kw_only=True)
class _Now:
    """What is known of the list of one key, and what was done to it.

    `old` is None until the list was read; it stands for the positions from `first` on. With `rewritten`, the list
    is `new` alone.
    """

    first: int
    next: int
    old: list[Tuple] | None = None
    old_expires: list[int] | None = None
    new: list[Tuple] = field(default_factory=list)
    rewritten: bool = False
    gone: int = 0


class ListCell:
    """Read and write the list of the key at hand."""

    def __init__(self, variable: ListVariable, state: pa.Table, entries: Entries, focus: Focus) -> None:
        self._variable = variable
        self._focus = focus
        stored = one_array(state.column(variable.name), state.schema.field(variable.name).type)
        self._first, self._next = (to_list(stored.field(name).fill_null(0)) for name in (FIRST, NEXT))
        self._ahead = ReadAhead(entries, len(self._first))
        self._open: dict[int, _Now] = {}
        self.expiry = Expiry.of(variable, state, focus)
        self._aliases = Aliases() if variable.record.mutable else None

    # -- what the user calls ---------------------------------------------------------------------

    def exists(self) -> bool:
        """Tell whether the key's list has a value."""
        return self.length() > 0

    def get(self) -> Iterator[Tuple]:
        """Give the values of the key's list, in order."""
        found = list(self._values())
        if self._aliases is not None:
            for value in found:
                # Not by its place, which is another's when the first is taken out.
                self._aliases.hand_out(self._focus.position, id(value), value)
        return iter(found)

    def mutated(self) -> int | None:
        """Find a key with a value that was handed out, changed in place, and not put back."""
        changed = self._aliases.changed() if self._aliases is not None else None
        return None if changed is None else changed[0]

    def put(self, values: Iterable[Tuple]) -> None:
        """Replace the key's list."""
        checked = [self._variable.record.taken(value, self._variable.name) for value in values]
        now = self._now()
        now.rewritten, now.new = True, checked
        if self._aliases is not None:
            self._aliases.forget(self._focus.position)
        self._written(checked)

    def append(self, values: Iterable[Tuple]) -> None:
        """Add values to the end of the key's list; what is there already is not read."""
        checked = [self._variable.record.taken(value, self._variable.name) for value in values]
        self._now().new.extend(checked)
        self._written(checked)

    def clear(self) -> None:
        """Remove the key's list."""
        self.put(())

    def length(self) -> int:
        """Count the values; unless they expire, without reading them."""
        now = self._now()
        if now.rewritten or self.expiry is None:
            return len(now.new) + (0 if now.rewritten else now.next - now.first - now.gone)
        return len(self._values())

    def keep(self, most: int) -> None:
        """Leave out the oldest values, so that not more than so many are left."""
        over = self.length() - most
        if over <= 0:
            return
        now = self._now()
        if self._aliases is not None and self._aliases.any(self._focus.position):
            for value in self._values()[:over]:
                # What is taken out is the user's.
                self._aliases.forget(self._focus.position, id(value))
        old = 0 if now.rewritten else min(over, now.next - now.first - now.gone)
        now.gone += old
        del now.new[: over - old]
        if over > old and not now.rewritten:
            # Positions go on without a gap: what is left is a list of its own.
            now.rewritten = True
        self._focus.changed[self._focus.position] = 1

    def _written(self, values: list[Tuple]) -> None:
        self._focus.changed[self._focus.position] = 1
        if self.expiry is not None and values:
            self.expiry.written()

    # -- reading ---------------------------------------------------------------------------------

    def _now(self) -> _Now:
        position = self._focus.position
        now = self._open.get(position)
        if now is None:
            if position is None:
                raise self._focus.nobody(self._variable.name)
            now = self._open[position] = _Now(first=self._first[position], next=self._next[position])
        return now

    def _values(self) -> list[Tuple]:
        now = self._now()
        if now.rewritten:
            return now.new
        old = self._read(now)
        return now.new if now.rewritten else old[now.gone :] + now.new

    def _read(self, now: _Now) -> list[Tuple]:
        if now.old is None:
            now.old, now.old_expires = [], []
            if now.next > now.first:
                part = self._ahead.entries(self._focus.position)
                value = one_array(part.column(VALUE), part.schema.field(VALUE).type)
                now.old = self._variable.record.tuples([value.field(i) for i in range(value.type.num_fields)])
                if self.expiry is not None:
                    expires = part.column(EXPIRES).to_pylist()
                    now.gone, left = self.expiry.gone_of_list(expires)
                    if left is not None:
                        now.new, now.rewritten = [now.old[number] for number in left] + now.new, True
                        self._written(now.new)
                        return now.old
                    now.old_expires = expires
                    if now.gone:
                        self._focus.changed[self._focus.position] = 1
        return now.old

    def look_at_expired(self) -> None:
        """Take the values out whose time is over; come back when the next one's is."""
        assert self.expiry is not None, "only a state with a time to live is ever due"
        now = self._now()
        if not now.rewritten:
            self._read(now)
        # What expires first stands first. Of one that was rewritten nothing is left as it was stored.
        left = [] if now.rewritten or now.old_expires is None else now.old_expires[now.gone : now.gone + 1]
        self.expiry.look_again(left, written=bool(now.new))

    # -- what changed ----------------------------------------------------------------------------

    def columns(self, positions: list[int]) -> list[pa.Array]:
        """Give the cell's columns in the first table, for some keys."""
        bounds = [self._bounds(position) for position in positions]
        there = [first < end for first, end in bounds]
        arrays = [pa.array([bound[side] for bound in bounds], pa.int64()) for side in (0, 1)]
        mask = pa.array([not filled for filled in there], pa.bool_())
        more = [self.expiry.looks(positions)] if self.expiry is not None else []
        return [pa.StructArray.from_arrays(arrays, names=[FIRST, NEXT], mask=mask), *more]

    def _bounds(self, position: int) -> tuple[int, int]:
        now = self._open.get(position)
        if now is None:
            return self._first[position], self._next[position]
        if now.rewritten:
            return 0, len(now.new)
        return now.first + now.gone, now.next + len(now.new)

    def changes(self) -> Changes | None:
        """Give the entries that changed."""
        owners: list[int] = []
        places: list[int] = []
        values: list[Tuple | None] = []
        for position, now in self._open.items():
            begin = 0 if now.rewritten else now.next
            written = range(begin, begin + len(now.new))
            old_end = now.next if now.rewritten else now.first + now.gone
            gone = [place for place in range(now.first, old_end) if place not in written]
            owners += [position] * (len(written) + len(gone))
            places += [*written, *gone]
            values += [*now.new, *[None] * len(gone)]
        if not owners:
            return None
        try:
            arrays = self._variable.record.columns(values, f"state {self._variable.name!r}: field")
        except Misfit as misfit:
            misfit.position = owners[misfit.position]
            raise
        deleted = np.array([value is None for value in values])
        state = [pa.StructArray.from_arrays(arrays, fields=list(self._variable.record.fields), mask=pa.array(deleted))]
        if self.expiry is not None:
            state.append(self.expiry.stored(deleted))
        return Changes(np.array(owners, np.int64), {POSITION: pa.array(places, pa.int64())}, deleted, state)
