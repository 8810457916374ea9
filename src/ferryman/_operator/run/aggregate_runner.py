"""Run declared aggregates: partials of the epoch's rows, merged into the state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._operator.run.runner import Given, Made
from ferryman._state.aggregates import Aggregation


@dataclass(frozen=True)
class AggregateRunner:
    """Run a set of declared aggregates and put out every key that was touched.

    With `combined`, the rows that come are partials already, made before the shuffle by `combine`.
    """

    aggregation: Aggregation
    key: pa.Schema
    combined: bool = False

    def run(self, given: Given) -> Made:
        """Merge the epoch into the state."""
        state = self._merged(given)
        result = self.aggregation.result(state)
        output = pa.Table.from_arrays([*given.keys, *result.columns], schema=self.output)
        return Made(output=output, state=state)

    def _merged(self, given: Given) -> pa.Table:
        """Give the state of all keys after the epoch's rows."""
        total = len(given.present)
        if self.combined:
            partials, index = given.rows, given.index
        else:
            partials, index = self.aggregation.partial(given.rows, given.index, total), np.arange(total)
        return self.aggregation.merge(given.state, partials, index, total)

    @property
    def partials(self) -> Aggregation:
        """Give what is kept of rows that are aggregated before the shuffle."""
        return self.aggregation

    @property
    def output(self) -> pa.Schema:
        """Give the output's columns: the key, then the aggregates as declared."""
        return pa.schema([*self.key, *self.aggregation.output])
