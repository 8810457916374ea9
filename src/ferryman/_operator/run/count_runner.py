"""Run declared aggregates per key and window of so many rows: put out with its last row, whereupon another begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._operator.run.aggregate_runner import AggregateRunner
from ferryman._operator.run.runner import Given, Made
from ferryman._state.aggregates import Aggregation
from ferryman._state.aggregates.kernels import frozen, group
from ferryman._state.aggregates.numpy_columns import ALL_VALID

# In the state: how many rows the window has so far.
HAD = "_had"


@dataclass(frozen=True, kw_only=True)
class CountRunner(AggregateRunner):
    """Run a set of declared aggregates by windows of so many rows, in the source's order.

    Attributes
    ----------
    aggregation
        What is kept: also how many rows the window has.
    shown
        What the user has declared.
    size
        How many rows a window has.
    """

    shown: Aggregation
    size: int

    def run(self, given: Given) -> Made:
        """Add the epoch's rows to the windows; put out those that are full, and keep the others."""
        keys = len(given.present)
        had = np.asarray(given.state.column(HAD).fill_null(0).to_numpy(), np.int64)
        came = np.bincount(given.index, minlength=keys)
        # The rows of each key side by side: the first of a key goes on where its window was.
        order, starts = group(ALL_VALID, frozen(given.index), keys)
        number = np.arange(len(order)) - np.repeat(starts[:-1], came) + np.repeat(had, came)
        windows = (had + came - 1) // self.size + 1
        first = np.cumsum(windows) - windows
        total = int(windows.sum())
        index = np.empty(len(order), np.int64)
        index[order] = np.repeat(first, came) + number // self.size
        partials = self.aggregation.partial(given.rows, index, total)
        begun = np.full(total, -1, np.int64)
        begun[first] = np.arange(keys)
        before = given.state.take(pa.array(begun, mask=begun < 0))
        state = self.aggregation.merge(before, partials, np.arange(total), total)
        full = np.ones(total, np.bool_)
        rest = (had + came) % self.size
        full[(first + windows - 1)[rest > 0]] = False
        owners, over = np.repeat(np.arange(keys), windows)[full], state.filter(pa.array(full))
        columns = [column.take(pa.array(owners)) for column in given.keys]
        output = pa.Table.from_arrays([*columns, *self.shown.result(over).columns], schema=self.output)
        # A window that was full with the epoch's last row leaves nothing, and no trace if it began in this epoch.
        positions = np.flatnonzero((rest > 0) | given.present)
        kept = state.take(pa.array((first + windows - 1)[positions]))
        return Made(output=output, state=kept, positions=positions, deleted=rest[positions] == 0)

    @property
    def output(self) -> pa.Schema:
        """Give the output's columns: the key, then the aggregates as declared."""
        return pa.schema([*self.key, *self.shown.output])
