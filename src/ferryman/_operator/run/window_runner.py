"""Run declared aggregates per key and window: rows are added up in panes, and windows are put together of those.

A window is put out when the watermark has passed its end, or, with `updates`, in every epoch in which it has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ferryman._operator.run.aggregate_runner import AggregateRunner
from ferryman._operator.run.panes import Ints, Panes
from ferryman._operator.run.runner import Given, Made
from ferryman._state import kernels
from ferryman._state.aggregates import Aggregation
from ferryman._state.aggregates.picks import Pick
from ferryman._state.aggregates.totals import Count
from ferryman._state.keys import Keys, KeySchema, distinct
from ferryman._state.words import Mask, from_words, to_words

WINDOW = "window"
# Of a partial: the latest time of its rows, and how many they are.
SEEN, ROWS = "_seen", "_rows"
# Before and after all times, with room to add to them.
EARLIEST, _LATEST = -(1 << 62), 1 << 62
# Spreads numbers over the bits that a search goes by.
_SPREAD = np.int64(-7046029254386353131)


@dataclass(frozen=True, kw_only=True)
class PaneRunner(AggregateRunner):
    """What all windows share.

    Attributes
    ----------
    key
        The user's key; in the tables the pane comes before it.
    time, type
        The column of event time, and its type.
    """

    time: str
    type: pa.DataType

    @cached_property
    def partials(self) -> Aggregation:
        """Give what is kept of rows that are aggregated before the shuffle: also how late and how many they are."""
        more = Pick.of(SEEN, self.time, "max", self.type), Count.of(ROWS, None)
        return self.aggregation.adding(self.time, self.type, *more)

    @property
    def results(self) -> Aggregation:
        """Give what of the state is put out."""
        return self.aggregation

    @property
    def output(self) -> pa.Schema:
        """Give the output's columns: the window, the key, then the aggregates as declared."""
        window = pa.struct([("start", self.type), ("end", self.type)])
        return pa.schema([pa.field(WINDOW, window), *self.key, *self.results.output])

    def numbered(self, given: Given) -> tuple[Ints, Ints]:
        """Give the user's keys numbers: that of each pane's key, and the first pane of each number."""
        return distinct(Keys.of(KeySchema(pa.schema(list(self.key))), given.hashes, given.keys[1:]))

    def joined(self, panes: pa.Table, window: Ints, total: int) -> pa.Table:
        """Join the states of panes, in the order of time, into those of so many windows; each says which it goes to."""
        nothing = pa.table([pa.nulls(total, kind) for kind in panes.schema.types], schema=panes.schema)
        return self.aggregation.merge(nothing, panes, window, total)

    def _rows(self, given: Given, places: Ints, starts: Ints, ends: Ints, state: pa.Table) -> pa.Table:
        """Give rows of windows, whose keys are at places."""
        span = [from_words(times, self.type, None) for times in (starts, ends)]
        window = pa.StructArray.from_arrays(span, fields=list(self.output.field(WINDOW).type))
        taken = pa.array(places)
        keys = [column.take(taken) for column in given.keys[1:]]
        return pa.Table.from_arrays([window, *keys, *self.results.result(state).columns], schema=self.output)


@dataclass(frozen=True, kw_only=True)
class WindowRunner(PaneRunner):
    """Run a set of declared aggregates by windows of equal size."""

    panes: Panes

    def run(self, given: Given) -> Made:
        """Merge the epoch into the panes; put out windows, and forget panes that no window needs any more."""
        state = self._merged(given)
        touched = np.zeros(len(given.present), np.bool_)
        touched[given.index] = True
        time = given.time
        late = EARLIEST if time.late_ms is None else time.late_ms * 1000
        until = EARLIEST if time.watermark_ms is None else time.watermark_ms * 1000
        panes = to_words(given.keys[0])
        over = self.panes.over(panes) <= until
        if self.panes.single:
            ends = panes + self.panes.size
            shown = np.flatnonzero(self._shown(ends, touched, late, until))
            output = self._rows(given, shown, panes[shown], ends[shown], state.take(pa.array(shown)))
        else:
            output = self._assembled(given, panes, state, touched, late, until)
        positions = np.flatnonzero(np.where(over, given.present, touched))
        # What has ended by now is forgotten later, if late rows are still taken.
        due = None if not len(panes) else max(int(self.panes.first_end(panes).min()), self.panes.next_event(until))
        kept = state.take(pa.array(positions))
        return Made(output=output, state=kept, positions=positions, deleted=over[positions], next_due=due)

    def _shown(self, ends: Ints, changed: Mask, late: int, until: int) -> Mask:
        """Choose which windows are put out, given where they end and whether rows have come for them."""
        shown: Mask
        if self.panes.updates:
            shown = changed & (ends + self.panes.lateness > late)
        else:
            shown = (ends > late) & (ends <= until)
            if self.panes.lateness:
                shown |= changed & (ends <= late) & (ends + self.panes.lateness > late)
        return shown

    def _assembled(self, given: Given, panes: Ints, state: pa.Table, touched: Mask, late: int, until: int) -> pa.Table:
        """Put windows together of their panes."""
        keys, first = self.numbered(given)
        # A window's panes come to it in the order of time. Of those that were only looked for, some are not there.
        order = np.argsort(panes, kind="stable")
        order = order[(given.present | touched)[order]]
        if self.panes.whole:
            after, until_end = late - self.panes.lateness, _LATEST
        else:
            after, until_end = late, until
        places, ends = self.panes.windows(panes[order], after, until_end)
        places = order[places]
        # A number for each window of a key.
        numbers = (ends - (ends.min() if len(ends) else 0)) // self.panes.every * len(first) + keys[places]
        window, begins = kernels.distinct_words(numbers * _SPREAD, numbers)
        changed = np.bincount(window, touched[places], len(begins)) > 0
        shown = self._shown(ends[begins], changed, late, until)
        owners, ends = first[keys[places[begins[shown]]]], ends[begins[shown]]
        if not shown.all():
            mine = shown[window]
            places, window = places[mine], (np.cumsum(shown) - 1)[window[mine]]
        total = len(ends)
        merged = self.joined(state.take(pa.array(places)), window, total)
        return self._rows(given, owners, ends - self.panes.size, ends, merged)
