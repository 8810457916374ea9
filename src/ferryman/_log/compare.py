"""Compare snapshots with what the deltas fold to: one fold forward over the whole chain of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.examine import Columns
from ferryman._log.fold import RUN_ROWS, Groups, fold, fold_deltas, keys_of, of_groups, read_snapshot, runs_of_groups
from ferryman._log.timeline import Timeline
from ferryman._state.keys import KeySchema, distinct


def snapshots_that_differ(
    checkpoint: Checkpoint, timeline: Timeline, columns: Mapping[str, Columns], advance: Callable[[int], None]
) -> list[tuple[str, int]]:
    """List the snapshots, as (table, epoch), that are not the fold of everything before them.

    Parameters
    ----------
    timeline
        With every unsound file noted: what rests on one is left out.
    advance
        Called with the bytes of every file that was folded.
    """
    differing = []
    for table, mine in columns.items():
        if mine.card.dropped:
            continue
        runs = runs_of_groups(mine.groups, _most_rows(timeline, table))
        found: set[int] = set()
        for groups in runs:
            chain = _Chain(checkpoint, timeline, table, mine, groups, advance, len(runs))
            found |= chain.walk()
        differing += [(table, epoch) for epoch in sorted(found)]
    return differing


def same_state(one: pa.Table, other: pa.Table, key: KeySchema) -> bool:
    """Tell whether two parts hold the same keys with the same state, in whatever order."""
    if one.num_rows != other.num_rows:
        return False
    rows = pa.concat_tables([one, other.cast(one.schema)]).combine_chunks()
    index, first = distinct(keys_of(rows, key))
    if len(first) != one.num_rows:
        return False
    matched = one.take(pa.array(index[one.num_rows :]))
    return all(_same_values(left, right) for left, right in zip(matched.columns, other.columns, strict=True))


def _same_values(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if one.equals(other):
        return True
    if pa.types.is_floating(one.type):
        nulls = one.is_null().equals(other.is_null())
        return nulls and np.array_equal(one.to_numpy(), other.to_numpy(), equal_nan=True)
    # A NaN inside a list or a struct is not equal to itself, but it is written the same.
    return bool(pa.types.is_nested(one.type)) and repr(one.to_pylist()) == repr(other.to_pylist())


def _most_rows(timeline: Timeline, table: str) -> int:
    """Give a bound of the rows the table has had at any kept epoch."""
    snapshots = [sum(one.rows for one in lists.tables.get(table, ())) for lists in timeline.lists.values()]
    newest = max(timeline.lists, default=0)
    later = sum(ref.rows for manifest, name, ref in timeline.deltas() if name == table and manifest.epoch > newest)
    return max(snapshots, default=0) + later


class _Chain:
    """The deltas of a table in some key groups, folded from the first base to the newest epoch."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        timeline: Timeline,
        table: str,
        columns: Columns,
        groups: Groups | None,
        advance: Callable[[int], None],
        passes: int,
    ) -> None:
        self._checkpoint = checkpoint
        self._timeline = timeline
        self._table = table
        self._columns = columns
        self._groups = groups
        self._advance = advance
        self._passes = passes
        self._state: pa.Table | None = None
        self._pending: list[pa.Table] = []

    def walk(self) -> set[int]:
        """Give the epochs whose snapshot differs."""
        timeline = self._timeline
        if not timeline.kept:
            return set()
        differing = set()
        start = timeline.base(timeline.kept[0])
        # Behind an unsound file nothing is known until the next sound snapshot.
        known = start == 0
        for epoch in sorted({start, start + 1, *timeline.kept, *(one for one in timeline.lists if one >= start)}):
            if epoch > start:
                known = known and timeline.folds(epoch)
                if known:
                    self._take(epoch)
            if epoch in timeline.lists and epoch not in timeline.unsound_snapshots:
                rows = self._snapshot(epoch)
                if known and not same_state(self._folded(), rows, self._columns.key):
                    differing.add(epoch)
                self._state, self._pending, known = rows, [], True
        self._folded()
        return differing

    def _take(self, epoch: int) -> None:
        for ref in self._timeline.manifests[epoch].tables.get(self._table, ()):
            self._pending.append(
                of_groups(self._columns.read(self._checkpoint, ref), self._groups, self._columns.groups)
            )
            self._advance(ref.bytes // self._passes)
        if sum(delta.num_rows for delta in self._pending) > RUN_ROWS:
            self._folded()

    def _snapshot(self, epoch: int) -> pa.Table:
        snapshot = self._timeline.lists[epoch]
        size = sum(one.bytes for one in snapshot.tables.get(self._table, ()))
        self._advance(size // self._passes)
        mine = self._columns
        part = read_snapshot(self._checkpoint, snapshot, self._table, self._groups, mine.card, mine.groups)
        return fold(part, None, mine.key, mine.state)

    def _folded(self) -> pa.Table:
        key, state = self._columns.key, self._columns.state
        delta = fold_deltas(self._pending, key) if self._pending else None
        self._state, self._pending = fold(self._state, delta, key, state), []
        return self._state
