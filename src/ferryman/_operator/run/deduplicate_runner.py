"""Pass the first row of each key on, and leave out the others, for ever or until the watermark has gone far enough."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._operator.run.runner import Given, Made
from ferryman._state.compiled import Ints
from ferryman._state.tables import DUE_TIME, DUE_WHAT, Changes
from ferryman._state.words import Mask

# In the state: the microsecond at which a key is forgotten; null for never.
UNTIL = "_until"
STATE = pa.schema([(UNTIL, pa.int64())])


@dataclass(frozen=True, kw_only=True)
class DeduplicateRunner:
    """Pass the first row of each key on, in the source's order.

    Attributes
    ----------
    output
        The rows' columns.
    time
        The column of event time by which a key is forgotten; None where it never is.
    lasts_us
        How long after the time of its first row.
    """

    output: pa.Schema
    time: str | None
    lasts_us: int = 0

    def run(self, given: Given) -> Made:
        """Find the keys that are new; forget those whose time has come, but not before their rows were left out."""
        came, places = np.unique(given.index, return_index=True)
        new = ~given.present[came]
        fresh, places = came[new], places[new]
        until = np.asarray(given.state.column(UNTIL).fill_null(0).to_numpy(), np.int64).copy()
        if self.time is not None:
            # As with Spark, a row without a time is of the beginning of time.
            times = given.rows.column(self.time).cast(pa.int64()).fill_null(0).to_numpy()
            until[fresh] = times[places] + self.lasts_us
        kept = given.present.copy()
        kept[fresh] = True
        over = self._over(given, until)
        forgotten, added = np.flatnonzero(given.present & over), np.flatnonzero(kept & ~given.present & ~over)
        positions = np.concatenate([forgotten, added])
        gone = np.arange(len(positions)) < len(forgotten)
        state = pa.array(until[positions], mask=np.full(len(positions), self.time is None))
        output = given.rows.take(pa.array(np.sort(places))).select(self.output.names)
        return Made(
            output=output,
            state=pa.Table.from_arrays([state], schema=STATE),
            positions=positions,
            deleted=gone,
            changes=self._due(given.operator, positions, until[positions], gone),
        )

    def _over(self, given: Given, until: Ints) -> Mask:
        watermark_ms = given.time.watermark_ms
        if self.time is None or watermark_ms is None:
            return np.zeros(len(until), bool)
        over: Mask = until <= watermark_ms * 1000
        return over

    def _due(self, operator: str, positions: Ints, until: Ints, gone: Mask) -> dict[str, Changes]:
        """List when keys are forgotten, and take out those that are."""
        if self.time is None or not len(positions):
            return {}
        listed = {DUE_TIME: pa.array(-(-until // 1000)), DUE_WHAT: pa.repeat(pa.scalar(""), len(positions))}
        return {f"{operator}.{DUE_TIME}": Changes(positions, listed, gone, [])}
