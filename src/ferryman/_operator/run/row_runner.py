"""Run an operator row by row.

The state of all keys comes at once as columns and leaves as columns; in between, one Python object
sees one key after the other, its state as plain attributes. That is what makes a row cost a call and
not a round trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._operator.declare.operator import Operator
from ferryman._operator.declare.two_inputs import TwoInputs
from ferryman._operator.run.key_values import KeyValues, same
from ferryman._operator.run.output_tables import output_tables
from ferryman._operator.run.python_columns import Misfit, key_values
from ferryman._operator.run.runner import Given, Made
from ferryman._operator.run.user_calls import refuse_undeclared, rows_by_key, user_calls


@dataclass(frozen=True)
class RowRunner:
    """Run a user's `Operator` class.

    The state's order of columns is fixed here: a pickled class does not keep the order of its attributes.
    """

    operator: type[Operator]
    input: tuple[str, ...] | TwoInputs
    state: pa.Schema
    output: pa.Schema
    sides: Mapping[str, pa.Schema] = field(default_factory=dict)

    def run(self, given: Given) -> Made:
        """Call `process` for every row, key by key, and `finish` at the end of each key."""
        values = KeyValues(self.operator, self.state.names, given)
        keys = key_values(given.keys)
        present = given.present.tolist()
        rows, counts = rows_by_key(given, self.input)
        made: list[Any] = []
        ends: list[int] = []
        after: list[tuple[Any, ...]] = []
        changed: list[int] = []
        deleted: list[bool] = []
        position: int | None = None
        with user_calls(given, lambda: "" if position is None else f"for key {keys[position]!r} "):
            user = self.operator()
            own = user.__dict__
            own["now_ms"], own["watermark_ms"] = given.time.now_ms, given.time.watermark_ms
            process, add = user.process, made.extend
            finish = None if self.operator.finish is Operator.finish else user.finish
            names, stored, comparable, aliases = values.names, values.stored, values.comparable, values.aliases
            known = {*own, *names, "_cleared"}
            signed = [number for number, kind in enumerate(self.state.types) if pa.types.is_floating(kind)]
            for position, key in enumerate(keys):
                seen = present[position]
                before = tuple([column[position] for column in stored]) if seen else values.fresh()
                own.update(zip(names, before, strict=True))
                for row in islice(rows, counts[position]):
                    output = process(key, row)
                    if output is not None:
                        add(output)
                if finish is not None:
                    output = finish(key)
                    if output is not None:
                        add(output)
                ends.append(len(made))
                now = tuple([own[name] for name in names])
                if not comparable:
                    aliases.look(own, key)
                gone = bool(own.pop("_cleared", False)) and same(now, values.defaults, signed)
                # Most keys of many jobs come this way: a plain comparison, and no call where it is enough.
                if gone or not (comparable and seen and now == before and (not signed or same(now, before, signed))):
                    if gone and not seen:
                        continue
                    changed.append(position)
                    after.append(now)
                    deleted.append(gone)
        refuse_undeclared(given, set(own) - known)
        aliases.refuse_changed()
        try:
            state = pa.Table.from_arrays(values.columns(after), schema=self.state)
        except Misfit as misfit:
            raise misfit.named(given.operator, given.epoch, f"key {keys[changed[misfit.position]]!r}") from misfit
        table, aside = output_tables(given, made, ends, keys, self.output, self.sides)
        return Made(
            output=table,
            state=state,
            positions=np.array(changed, np.int64),
            deleted=np.array(deleted, bool),
            sides=aside,
        )
