"""Run declared aggregates per key and session: rows are added up in panes, and sessions are runs of panes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._operator.run.panes import Ints, Sessions
from ferryman._operator.run.runner import Given, Made
from ferryman._operator.run.window_runner import EARLIEST, PaneRunner
from ferryman._state.aggregates import Aggregation
from ferryman._state.words import Mask, one_array, to_words

# In a pane's state: the times of its first and its last row.
FROM, TO = "_from", "_to"


@dataclass(frozen=True, kw_only=True)
class SessionRunner(PaneRunner):
    """Run a set of declared aggregates by sessions, and put each out when it is over.

    Attributes
    ----------
    aggregation
        What is kept: also the times of the first and the last row.
    shown
        What the user has declared.
    """

    panes: Sessions
    shown: Aggregation

    @property
    def results(self) -> Aggregation:
        """Give what of the state is put out."""
        return self.shown

    def run(self, given: Given) -> Made:
        """Merge the epoch into the panes; put out sessions that are over, and forget their panes."""
        state = self._merged(given)
        touched = np.zeros(len(given.present), np.bool_)
        touched[given.index] = True
        until = EARLIEST if given.time.watermark_ms is None else given.time.watermark_ms * 1000
        panes, begin, end = (to_words(column) for column in (given.keys[0], _of(state, FROM), _of(state, TO)))
        keys, _ = self.numbered(given)
        # Each key's panes in the order of time; a session goes on where the next one begins within the gap.
        order = np.lexsort((panes, keys))
        keys, begin, end = keys[order], begin[order], end[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (keys[1:] != keys[:-1]) | (begin[1:] > end[:-1] + self.panes.gap)
        first, session = np.flatnonzero(begins), np.cumsum(begins) - 1
        ends = np.maximum.reduceat(end, first) + self.panes.gap if len(first) else end
        over = ends <= until
        closed = np.zeros(len(touched), np.bool_)
        closed[order] = over[session]
        output = self._closed(given, state, order, session, over, (begin[first], ends))
        positions = np.flatnonzero(np.where(closed, given.present, touched))
        due = None if over.all() else int(ends[~over].min())
        kept = state.take(pa.array(positions))
        return Made(output=output, state=kept, positions=positions, deleted=closed[positions], next_due=due)

    def _closed(
        self, given: Given, state: pa.Table, order: Ints, session: Ints, over: Mask, spans: tuple[Ints, Ints]
    ) -> pa.Table:
        """Put sessions that are over together of their panes."""
        mine = over[session]
        places, number = order[mine], (np.cumsum(over) - 1)[session[mine]]
        total = int(over.sum())
        merged = self.joined(state.take(pa.array(places)), number, total)
        owners = np.zeros(total, np.int64)
        owners[number] = places
        return self._rows(given, owners, spans[0][over], spans[1][over], merged)


def _of(state: pa.Table, name: str) -> pa.Array:
    return one_array(state.column(name), state.schema.field(name).type)
