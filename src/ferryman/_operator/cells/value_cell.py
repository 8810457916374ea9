"""One value per key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._operator.cells.aliasing import Aliases
from ferryman._operator.cells.expiring_cells import Expiry
from ferryman._operator.cells.key_at_hand import Focus
from ferryman._operator.cells.variables import ValueVariable
from ferryman._operator.run.python_columns import Misfit
from ferryman._state.expiry import EXPIRES, stored_fields
from ferryman._state.words import one_array

Tuple = tuple[Any, ...]


class ValueCell:
    """Read and write the value of the key at hand."""

    def __init__(self, variable: ValueVariable, state: pa.Table, focus: Focus) -> None:
        self._variable = variable
        self._focus = self.focus = focus
        self._stored = one_array(state.column(variable.name), state.schema.field(variable.name).type)
        self._values = self._load(variable)
        # Values that could be changed in place are looked at again in the end.
        self._aliases = Aliases() if variable.record.mutable else None
        self.expiry = Expiry.of(variable, state, focus)
        if self.expiry is not None:
            self._expires = self._stored.field(EXPIRES).to_pylist()
            # What has expired is gone already, whenever it is taken out of the state.
            for position, expires in enumerate(self._expires):
                if self.expiry.gone(expires):
                    self._values[position] = None
                elif expires is None and self._values[position] is not None:
                    # What was written before there was a time to live begins to live now.
                    focus.position = position
                    self._expires[position] = self.expiry.written()
                    focus.changed[position] = 1
            focus.position = None

    def _load(self, variable: ValueVariable) -> list[Tuple | None]:
        record = variable.record
        found: list[Any] = record.tuples([self._stored.field(number) for number in range(len(record.fields))])
        if self._stored.null_count:
            for position in np.flatnonzero(self._stored.is_null().to_numpy(zero_copy_only=False)).tolist():
                found[position] = None
        return found

    def exists(self) -> bool:
        """Tell whether the key has a value."""
        position = self._focus.position
        if position is None:
            raise self._focus.nobody(self._variable.name)
        return self._values[position] is not None

    def get(self) -> Tuple | None:
        """Give the key's value; None if it has none."""
        position = self._focus.position
        if position is None:
            raise self._focus.nobody(self._variable.name)
        value: Tuple | None = self._values[position]
        if self._aliases is not None and value is not None:
            return self._aliases.hand_out(position, 0, value)  # type: ignore[no-any-return]
        return value

    def update(self, value: Tuple) -> None:
        """Set the key's value."""
        focus = self._focus
        position = focus.position
        if position is None:
            raise focus.nobody(self._variable.name)
        self._values[position] = self._variable.record.taken(value, self._variable.name)
        if self._aliases is not None:
            self._aliases.forget(position)
        focus.changed[position] = 1
        if self.expiry is not None:
            self._expires[position] = self.expiry.written()

    def clear(self) -> None:
        """Remove the key's value."""
        position = self._focus.position
        if position is None:
            raise self._focus.nobody(self._variable.name)
        self._values[position] = None
        if self._aliases is not None:
            self._aliases.forget(position)
        self._focus.changed[position] = 1
        if self.expiry is not None:
            self._expires[position] = None

    def mutated(self) -> int | None:
        """Find a key whose value was handed out, changed in place, and not set."""
        changed = self._aliases.changed() if self._aliases is not None else None
        return None if changed is None else changed[0]

    def look_at_expired(self) -> None:
        """Take out the key's value if its time is over; else come back when it is."""
        assert self.expiry is not None, "only a state with a time to live is ever due"
        expires = self._expires[self._focus.position]
        if self.expiry.gone(expires):
            self.clear()
            expires = None
        self.expiry.look_again(() if expires is None else (expires,), written=False)

    def columns(self, positions: list[int]) -> list[pa.Array]:
        """Give the cell's columns in the first table, for some keys."""
        record = self._variable.record
        values = [self._values[position] for position in positions]
        try:
            arrays = record.columns(values, f"state {self._variable.name!r}: field")
        except Misfit as misfit:
            misfit.position = positions[misfit.position]
            raise
        fields = list(record.fields)
        more = []
        if self.expiry is not None:
            arrays.append(pa.array([self._expires[position] for position in positions], pa.int64()))
            fields += stored_fields(self._variable.ttl_ms)
            more = [self.expiry.looks(positions)]
        mask = pa.array([value is None for value in values], pa.bool_())
        return [pa.StructArray.from_arrays(arrays, fields=fields, mask=mask), *more]
