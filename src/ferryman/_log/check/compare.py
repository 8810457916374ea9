"""Compare snapshots with what the deltas fold to: one fold forward over the whole chain of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from ferryman._log.check.timeline import Timeline
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.bases import Groups
from ferryman._log.fold.fold import RUN_ROWS, LoggedTable, fold, keys_of, runs_of_groups
from ferryman._state.keys import KeySchema, distinct


def snapshots_that_differ(
    checkpoint: Checkpoint, timeline: Timeline, tables: Iterable[LoggedTable], advance: Callable[[int], None]
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
    for table in tables:
        runs = runs_of_groups(table.total, _most_rows(timeline, table.name))
        found: set[int] = set()
        for groups in runs:
            found |= _Chain(checkpoint, timeline, table, groups, advance, len(runs)).walk()
        differing += [(table.name, epoch) for epoch in sorted(found)]
    return differing


def same_state(part: pa.Table, other: pa.Table, key: KeySchema) -> bool:
    """Tell whether two parts hold the same keys with the same state, in whatever order."""
    if part.num_rows != other.num_rows:
        return False
    rows = pa.concat_tables([part, other.cast(part.schema)]).combine_chunks()
    index, first = distinct(keys_of(rows, key))
    if len(first) != part.num_rows:
        return False
    matched = part.take(pa.array(index[part.num_rows :]))
    return all(_same_values(left, right) for left, right in zip(matched.columns, other.columns, strict=True))


def _same_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if left.equals(right):
        return True
    if pa.types.is_floating(left.type):
        nulls = left.is_null().equals(right.is_null())
        return nulls and np.array_equal(left.to_numpy(), right.to_numpy(), equal_nan=True)
    # A NaN inside a list or a struct is not equal to itself, but it is written the same.
    return bool(pa.types.is_nested(left.type)) and repr(left.to_pylist()) == repr(right.to_pylist())


def _most_rows(timeline: Timeline, table: str) -> int:
    """Give a bound of the rows the table has had at any kept epoch."""
    snapshots = [sum(file.rows for file in listed.tables.get(table, ())) for listed in timeline.lists.values()]
    newest = max(timeline.lists, default=0)
    later = sum(ref.rows for manifest, name, ref in timeline.deltas() if name == table and manifest.epoch > newest)
    return max(snapshots, default=0) + later


class _Chain:
    """The deltas of a table in some key groups, folded from the first base to the newest epoch."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        timeline: Timeline,
        table: LoggedTable,
        groups: Groups | None,
        advance: Callable[[int], None],
        passes: int,
    ) -> None:
        self._checkpoint = checkpoint
        self._timeline = timeline
        self._table = table
        self._groups = groups
        self._advance = advance
        self._passes = passes
        self._state: pa.Table | None = None
        self._pending: list[pa.Table] = []

    def walk(self) -> set[int]:
        """Give the epochs whose snapshot differs."""
        timeline = self._timeline
        if not timeline.epochs:
            return set()
        differing = set()
        start = timeline.base(timeline.epochs[0])
        # Behind an unsound file nothing is known until the next sound snapshot.
        known = start == 0
        for epoch in sorted(
            {start, start + 1, *timeline.epochs, *(listed for listed in timeline.lists if listed >= start)}
        ):
            if epoch > start:
                known = known and timeline.folds(epoch)
                if known:
                    self._take(epoch)
            if timeline.is_whole(epoch):
                rows = self._snapshot(epoch)
                if known and not same_state(self._folded(), rows, self._table.key):
                    differing.add(epoch)
                self._state, self._pending, known = rows, [], True
        self._folded()
        return differing

    def _take(self, epoch: int) -> None:
        for ref in self._timeline.manifests[epoch].tables.get(self._table.name, ()):
            self._pending.append(self._table.read_delta(self._checkpoint, ref, self._groups))
            self._advance(ref.bytes // self._passes)
        if sum(delta.num_rows for delta in self._pending) > RUN_ROWS:
            self._folded()

    def _snapshot(self, epoch: int) -> pa.Table:
        snapshot = self._timeline.lists[epoch]
        size = sum(file.bytes for file in snapshot.tables.get(self._table.name, ()))
        self._advance(size // self._passes)
        return self._table.read_snapshot(self._checkpoint, snapshot, self._groups)

    def _folded(self) -> pa.Table:
        delta = self._table.folded(self._pending)
        self._state, self._pending = fold(self._state, delta, self._table.key, self._table.state), []
        return self._state
