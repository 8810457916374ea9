"""All cells of an operator in one task: made of what was stored, turned into what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ferryman._operator.cells.key_at_hand import Focus
from ferryman._operator.cells.list_cell import ListCell
from ferryman._operator.cells.map_cell import MapCell
from ferryman._operator.cells.timers import TimerCell
from ferryman._operator.cells.value_cell import ValueCell
from ferryman._operator.cells.variables import (
    TIMERS,
    ListVariable,
    MapVariable,
    ValueVariable,
    Variable,
    due_table,
)
from ferryman._operator.run.runner import Given, Made, Time
from ferryman._state.tables import DUE_TIME, DUE_WHAT, Changes, Parts

Cell = ValueCell | ListCell | MapCell


class Cells:
    """The cells of an operator's declared state, on the keys of one epoch."""

    def __init__(
        self, declared: Sequence[Variable], given: Given, schema: pa.Schema, *, by_event_time: bool = False
    ) -> None:
        self._given = given
        self._schema = schema
        now_ms = _now(given.time) if by_event_time else given.time.now_ms
        self.focus = Focus(len(given.present), now_ms, f"operator {given.operator!r}, epoch {given.epoch}")
        self.by_name = {variable.name: self._cell(variable) for variable in declared}
        self.timers = TimerCell(given.state, self.focus) if TIMERS in schema.names else None

    def _cell(self, variable: Variable) -> Cell:
        given = self._given
        if isinstance(variable, ValueVariable):
            return ValueCell(variable, given.state, self.focus)
        entries = given.entries[f"{given.operator}.{variable.name}"]
        if isinstance(variable, ListVariable):
            return ListCell(variable, given.state, entries, self.focus)
        assert isinstance(variable, MapVariable), "a state is a value, a list or a map"
        return MapCell(variable, given.state, entries, self.focus, len(given.present))

    def look_at_expired(self) -> None:
        """Take out what has expired by now, of the keys that were noted for it."""
        for at, position, what in self._given.time.due:
            cell = self.by_name.get(what)
            if cell is not None and cell.expiry is not None:
                self.focus.position = position
                cell.look_at_expired()
            elif what and cell is None:
                # Of a state that was given up.
                self.focus.due[at, position, what] = False
        self.focus.position = None

    def mutated(self) -> tuple[str, int] | None:
        """Find a state and a key whose value was handed out and changed in place."""
        for name, cell in self.by_name.items():
            if (position := cell.mutated()) is not None:
                return name, position
        return None

    def made(
        self,
        output: pa.Table,
        values: Mapping[str, pa.Array] | None = None,
        schema: pa.Schema | None = None,
        held: Sequence[bool] | None = None,
    ) -> Made:
        """Turn what changed into columns, beside those of other values of the keys that changed.

        `held` says of each of these keys whether its other values are to be kept, even if they are all null.
        """
        changed = np.flatnonzero(np.frombuffer(self.focus.changed, np.uint8))
        listed = changed.tolist()
        columns = [column for cell in self.by_name.values() for column in cell.columns(listed)]
        if self.timers is not None:
            columns.append(self.timers.column(listed))
        named = {**(values or {}), **dict(zip(self._schema.names, columns, strict=True))}
        schema = schema or self._schema
        state = pa.Table.from_arrays([named[name] for name in schema.names], schema=schema)
        empty = np.ones(len(listed), bool) if held is None else ~np.array(held, bool)
        for column in columns:
            empty &= column.is_null().to_numpy(zero_copy_only=False)
        # A key that never had a row, and has nothing to put into one, needs none.
        kept = self._given.present[changed] | ~empty
        if not kept.all():
            state, changed, empty = state.filter(pa.array(kept)), changed[kept], empty[kept]
        return Made(output=output, state=state, positions=changed, deleted=empty, changes=self._changes())

    def _changes(self) -> dict[str, Changes | Parts]:
        operator = self._given.operator
        found: dict[str, Changes | Parts] = {}
        for name, cell in self.by_name.items():
            if not isinstance(cell, ValueCell) and (changes := cell.changes()) is not None:
                found[f"{operator}.{name}"] = changes
        due = self.focus.due
        if due:
            times, positions, whats = zip(*due, strict=True)
            subkey = {DUE_TIME: pa.array(times, pa.int64()), DUE_WHAT: pa.array(whats, pa.string())}
            gone = np.array([not there for there in due.values()])
            found[due_table(operator)] = Changes(np.array(positions, np.int64), subkey, gone, [])
        return found


def _now(time: Time) -> int:
    """Tell how far event time is: as far as the watermark, or where the rows begin."""
    known = time.watermark_ms if time.watermark_ms is not None else time.earliest_ms
    return 0 if known is None else known
