"""Run an operator row by row.

The state of all keys comes at once as columns and leaves as columns; in between, one Python object
sees one key after the other, its state as plain attributes. That is what makes a row cost a call and
not a round trip.
"""

from __future__ import annotations

import gc
import math
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._model.errors import OperatorFailed, OutputMismatch, StateMisused
from ferryman._operator.declare import Operator
from ferryman._operator.kept import Kept
from ferryman._operator.run import Given, Made, Misfit, Whose, key_values, to_column, to_list, whose
from ferryman._operator.sides import Aside
from ferryman._operator.value import Value
from ferryman._state.aggregates.kernels import frozen, group


@dataclass(frozen=True)
class RowRunner:
    """Run a user's `Operator` class.

    The state's order of columns is fixed here: a pickled class does not keep the order of its attributes.
    """

    operator: type[Operator]
    input: tuple[str, ...]
    state: pa.Schema
    output: pa.Schema
    sides: Mapping[str, pa.Schema] = field(default_factory=dict)

    def run(self, given: Given) -> Made:
        """Call `process` for every row, key by key, and `finish` at the end of each key."""
        values_of = self.operator.values()
        declared = [values_of[name] for name in self.state.names]
        keys = key_values(given.keys)
        before = [value.load(to_list(given.state.column(value.name))) for value in declared]
        present = given.present.tolist()
        rows, counts = rows_by_key(given, self.input)
        made: list[Any] = []
        ends: list[int] = []
        after: list[tuple[Any, ...]] = []
        changed: list[int] = []
        deleted: list[bool] = []
        key: Any = None
        # Millions of short-lived tuples would wake the cycle collector again and again for nothing.
        collecting = gc.isenabled()
        gc.disable()
        try:
            user = self.operator()
            own = user.__dict__
            own["now_ms"], own["watermark_ms"] = given.time.now_ms, given.time.watermark_ms
            process, add = user.process, made.extend
            finish = None if self.operator.finish is Operator.finish else user.finish
            # A mutable value may have changed in place, so only plain ones can be seen to be unchanged.
            comparable = not any(value.mutable for value in declared)
            names = [value.name for value in declared]
            known = {*own, *names, "_cleared"}
            signed = [number for number, kind in enumerate(self.state.types) if pa.types.is_floating(kind)]
            defaults = tuple(value.default for value in declared)
            kept = Kept(declared)
            for position, key in enumerate(keys):
                seen = present[position]
                if seen:
                    values = tuple(column[position] for column in before)
                else:
                    values = tuple(value.fresh() for value in declared)
                own.update(zip(names, values, strict=True))
                for row in islice(rows, counts[position]):
                    some = process(key, row)
                    if some is not None:
                        add(some)
                if finish is not None:
                    some = finish(key)
                    if some is not None:
                        add(some)
                ends.append(len(made))
                now = tuple([own[name] for name in names])
                if not comparable:
                    kept.look(own, key)
                gone = bool(own.pop("_cleared", False)) and same(now, defaults, signed)
                # Most keys of many jobs come this way: a plain comparison, and no call where it is enough.
                if gone or not (comparable and seen and now == values and (not signed or same(now, values, signed))):
                    if gone and not seen:
                        continue
                    changed.append(position)
                    after.append(now)
                    deleted.append(gone)
        except Exception as error:
            raise OperatorFailed(
                f"operator {given.operator!r} raised {type(error).__name__}: {error} for key {key!r} in epoch "
                f"{given.epoch}. The epoch was not committed and no state changed. Fix the operator and start the "
                "job again: it redoes the epoch from the same input."
            ) from error
        finally:
            if collecting:
                gc.enable()
        refuse_undeclared(given, set(own) - known)
        kept.refuse_changed(given)
        try:
            state = pa.Table.from_arrays(value_columns(declared, after), schema=self.state)
        except Misfit as misfit:
            raise misfit.named(given.operator, given.epoch, f"key {keys[changed[misfit.position]]!r}") from misfit
        positions = np.array(changed, dtype=np.int64)
        find = whose(made, ends, keys)
        rows_made, aside = parted(given, made, self.sides, find)
        output = output_rows(given, rows_made, self.output, find)
        return Made(output, state, positions, np.array(deleted, dtype=bool), {}, aside)


def rows_by_key(given: Given, names: tuple[str, ...]) -> tuple[Iterator[Any], list[int]]:
    """Give the rows as named tuples, key by key, and how many each key has."""
    row = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    order, starts = group(frozen(np.empty(0, np.bool_)), frozen(given.index), len(given.present))
    rows = given.rows.select(list(names)).take(pa.array(order))
    # tuple.__new__ fills a named tuple without a Python call for every row.
    make = partial(tuple.__new__, row)
    return map(make, zip(*(to_list(column) for column in rows.columns), strict=True)), np.diff(starts).tolist()


def refuse_undeclared(given: Given, names: set[str]) -> None:
    """Refuse attributes that `process` has set and nobody declared: they would go from key to key, and be lost."""
    mine = sorted(name for name in names if not name.startswith("_"))
    if mine:
        raise StateMisused(
            f"operator {given.operator!r}, epoch {given.epoch}: `process` sets self.{mine[0]}, which is not declared. "
            f"The next key would see it, and after the epoch it is lost. Declare it ({mine[0]} = Value(...)), use a "
            "local variable, or set it in __init__ if it is the same for all keys. The epoch was not committed."
        )


def parted(
    given: Given, made: list[Any], sides: Mapping[str, pa.Schema], find: Whose
) -> tuple[list[Any], dict[str, pa.Table]]:
    """Part the rows an operator gave into its own and those of its sides."""
    if not sides:
        return made, {}
    own = [row for row in made if not isinstance(row, Aside)]
    aside: dict[str, list[Any]] = {name: [] for name in sides}
    for row in made:
        if isinstance(row, Aside):
            if row.name not in aside:
                raise OutputMismatch(
                    f"operator {given.operator!r}, epoch {given.epoch}: {find(row)}it gave a row to the side "
                    f"{row.name!r}, and declares {', '.join(sides)}. Declare it in `sides`. The epoch was not "
                    "committed."
                )
            aside[row.name].append(row.row)
    return own, {name: output_rows(given, rows, sides[name], find) for name, rows in aside.items()}


def value_columns(declared: Sequence[Value[Any]], values: list[tuple[Any, ...]]) -> list[pa.Array]:
    """Make the columns of declared values; `Misfit` says which one does not fit."""
    columns = list(zip(*values, strict=True)) if values else [()] * len(declared)
    return [
        to_column(value.dump(list(column)), pa.field(value.name, value.type), "state")
        for value, column in zip(declared, columns, strict=True)
    ]


def output_rows(given: Given, made: list[Any], schema: pa.Schema, find: Whose) -> pa.Table:
    """Make a table of the rows an operator gave, tuples or dicts."""
    if not made:
        return schema.empty_table()
    names = schema.names
    try:
        if isinstance(made[0], dict):
            columns = [[row[name] for row in made] for name in names]
        else:
            columns = [list(column) for column in zip(*made, strict=True)]
            if len(columns) != len(names):
                raise ValueError(f"{len(columns)} values")
            if _alike(schema) and not all(isinstance(row, (tuple, list)) for row in made):
                raise TypeError("a row that is neither a tuple nor a list")
    except (KeyError, TypeError, ValueError) as error:
        kind = dict if isinstance(made[0], dict) else (tuple, list)
        wrong = next((row for row in made if not (isinstance(row, kind) and _fits(row, names))), made[0])
        raise OutputMismatch(
            f"operator {given.operator!r}, epoch {given.epoch}: {find(wrong)}it gave the row {wrong!r}, which does "
            f"not have the {len(names)} declared columns ({', '.join(names)}). Give tuples in that order, or dicts "
            "with those names, and not both. The epoch was not committed."
        ) from error
    try:
        arrays = [to_column(column, field, "output column") for column, field in zip(columns, schema, strict=True)]
    except Misfit as misfit:
        row = made[misfit.position]
        raise misfit.named(given.operator, given.epoch, f"row {row!r} {find(row)}".rstrip()) from misfit
    return pa.Table.from_arrays(arrays, schema=schema)


def _alike(schema: pa.Schema) -> bool:
    """Tell whether a text, a set or the names of a dict could pass for a row: their parts are all of one type."""
    return len({pa.binary() if _is_text(kind) else kind for kind in schema.types}) == 1


def _fits(row: Any, names: list[str]) -> bool:
    if isinstance(row, dict):
        return all(name in row for name in names)
    return isinstance(row, (tuple, list)) and len(row) == len(names)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def same(one: tuple[Any, ...], other: tuple[Any, ...], signed: Sequence[int]) -> bool:
    """Tell whether values would be kept as the same: to Python, 0.0 equals -0.0, and it is not.

    Parameters
    ----------
    signed
        The positions of floating point numbers, which alone have such a zero.

    Examples
    --------
    >>> same((0.0, "a"), (0.0, "a"), [0]), same((0.0, "a"), (-0.0, "a"), [0])
    (True, False)
    """
    if one != other:
        return False
    for position in signed:
        value = one[position]
        if value == 0.0 and math.copysign(1.0, value) != math.copysign(1.0, other[position]):
            return False
    return True
