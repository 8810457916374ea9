"""Run a vectorised operator: whole columns in, whole columns out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._model.errors import OperatorFailed, OutputMismatch
from ferryman._operator.declare.operator import ArrowOperator, Batch
from ferryman._operator.run.python_columns import conform
from ferryman._operator.run.runner import Given, Made

DELETED = "_deleted"


@dataclass(frozen=True)
class ArrowRunner:
    """Run a user's `ArrowOperator` class."""

    operator: type[ArrowOperator]
    key: pa.Schema
    input: tuple[str, ...]
    state: pa.Schema
    output: pa.Schema

    def run(self, given: Given) -> Made:
        """Call `process` once, on everything."""
        if given.rows.num_rows == 0:
            return Made(output=self.output.empty_table(), state=self.state.empty_table())
        batch = Batch(
            pa.Table.from_arrays(given.keys, schema=self.key),
            given.rows.select(list(self.input)),
            given.index,
            self._with_defaults(given),
            given.present,
        )
        try:
            output, state = self.operator().process(batch)
        except Exception as error:
            raise OperatorFailed(
                f"operator {given.operator!r} raised {type(error).__name__}: {error} in epoch {given.epoch}, on "
                f"{given.rows.num_rows} rows of {len(given.present)} keys, the first of which is "
                f"{batch.keys.slice(0, 1).to_pylist()}. The epoch was not committed and no state changed. Fix the "
                "operator and start the job again: it redoes the epoch from the same input."
            ) from error
        deleted = None
        if isinstance(state, pa.Table) and DELETED in state.column_names:
            marks = state.column(DELETED)
            if not pa.types.is_boolean(marks.type) or marks.null_count:
                raise OutputMismatch(
                    f"operator {given.operator!r}, epoch {given.epoch}: the column {DELETED!r} of its new state is of "
                    f"type {marks.type} with {marks.null_count} nulls. Make it boolean, without nulls. The epoch was "
                    "not committed."
                )
            deleted = np.asarray(marks.to_numpy(zero_copy_only=False), dtype=bool)
        state = conform(state, self.state, given.operator, given.epoch, "new state")
        if state.num_rows != len(given.present):
            raise OutputMismatch(
                f"operator {given.operator!r}, epoch {given.epoch}: its new state has {state.num_rows} rows for "
                f"{len(given.present)} keys. Return one row per key, in the order of batch.keys. The epoch was not "
                "committed."
            )
        if output is None:
            output = self.output.empty_table()
        made = conform(output, self.output, given.operator, given.epoch, "output")
        return Made(output=made, state=state, deleted=deleted)

    def _with_defaults(self, given: Given) -> pa.Table:
        state = given.state
        if given.present.all():
            return state
        absent = pa.array(~given.present)
        values = self.operator.values()
        for position, name in enumerate(self.state.names):
            value = values[name]
            if value.default is not None:
                state = state.set_column(position, name, _filled(state.column(name), absent, value))
        return state


def _filled(column: pa.ChunkedArray, absent: pa.Array, value: Any) -> pa.Array:
    # Take from the column and one more row, the default: unlike if_else it knows every type.
    default = pa.array(value.dump([value.default]), value.type)
    extended = pa.concat_arrays([*column.chunks, default])
    where = np.where(absent.to_numpy(zero_copy_only=False), len(column), np.arange(len(column)))
    return extended.take(pa.array(where))
