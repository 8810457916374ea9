"""The ways to epochs: from which snapshots and deltas each is rebuilt, and what a reader stumbles over on the way.

A reader takes the newest snapshot before the epoch; of groups whose file is damaged, an older one; and the deltas
since. An epoch is lost only where that does not lead there. What is damaged says the timeline; only
`newest_to_be_had` reads files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ferryman._log.check.examine import TableFiles, examine_delta, examine_snapshot_file
from ferryman._log.check.timeline import Timeline
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.card import JobCard
from ferryman._model.snapshot import SnapshotFile

Run = tuple[int, int]
_ALL_GROUPS: Run = (0, 1 << 62)


@dataclass(frozen=True)
class Way:
    """How a reader gets to one epoch.

    Attributes
    ----------
    leads
        Whether it gets there.
    stumbles
        The files that it would have read and that are damaged or missing.
    parts
        The files of snapshots that it reads, with their tables.
    after
        For each table, the epoch after which it reads deltas.
    """

    leads: bool
    stumbles: frozenset[str]
    parts: tuple[tuple[str, SnapshotFile], ...]
    after: dict[str, int]


class Ways:
    """Find ways, by what a timeline knows to be damaged now."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        # Tables have no files before the first delta, but epochs have manifests.
        self._tables = timeline.tables or [""]
        self._broken = {table: [*self._broken_of(table)] for table in self._tables}

    def _broken_of(self, table: str) -> Iterator[tuple[int, str]]:
        """List what is damaged of the chain of a table, with its epoch, oldest first."""
        for epoch in self._timeline.epochs:
            manifest = self._timeline.manifests.get(epoch)
            if manifest is None:
                yield epoch, f"manifests/{epoch:012d}.json"
            else:
                refs = manifest.tables.get(table, ())
                yield from ((epoch, ref.file) for ref in refs if ref.file in self._timeline.unsound)

    def to(self, epoch: int) -> Way:
        """Find the way to an epoch that the timeline has."""
        stumbles = set() if epoch in self._timeline.manifests else {f"manifests/{epoch:012d}.json"}
        leads, parts, chains = not stumbles, [], {}
        for table in self._tables:
            found = self._parts(table, epoch, stumbles)
            leads = leads and found is not None
            after, read = found or (epoch, [])
            parts += [(table, file) for file in read]
            chains[table] = after
            broken = self._broken[table]
            first, last = (bisect_right(broken, number, key=lambda item: item[0]) for number in (after, epoch))
            stumbles.update(name for _, name in broken[first:last])
            leads = leads and first == last
        return Way(leads, frozenset(stumbles), tuple(parts), chains)

    def _parts(self, table: str, epoch: int, stumbles: set[str]) -> tuple[int, list[SnapshotFile]] | None:
        """Give the oldest epoch that groups of a table are read as of, and the files; None if some are nowhere."""
        timeline = self._timeline
        first = timeline.epochs[0]
        left, after, read = [_ALL_GROUPS], epoch, []
        for base in reversed([number for number in timeline.snapshots if number <= epoch]):
            if not left or (base != epoch and base < first - 1):
                break
            if base not in timeline.lists:
                stumbles.add(f"snapshots/{base:012d}.json")
                continue
            after, unread = base, []
            for file in timeline.lists[base].tables.get(table, ()):
                inside = [*_overlaps(left, (file.first, file.last))]
                if file.file in timeline.unsound and inside:
                    stumbles.add(file.file)
                    unread += inside
                elif inside:
                    read.append(file)
            left = unread
        if left and first > 1:
            stumbles.add(f"manifests/{timeline.base(first) + 1:012d}.json")
            return None
        return (0 if left else after), read


def _overlaps(runs: list[Run], other: Run) -> Iterator[Run]:
    for first, last in runs:
        if max(first, other[0]) <= min(last, other[1]):
            yield max(first, other[0]), min(last, other[1])


def newest_to_be_had(checkpoint: Checkpoint, timeline: Timeline, card: JobCard, upto: int | None = None) -> int | None:
    """Find the newest epoch that can be rebuilt, and read no more than that takes; None where there is none.

    What is found damaged is noted in the timeline.
    """
    search = _Search(checkpoint, timeline, card)
    wanted = (epoch for epoch in reversed(timeline.epochs) if upto is None or epoch <= upto)
    return next((epoch for epoch in wanted if search.leads_to(epoch)), None)


class _Search:
    """Follow ways, and examine each file on them once."""

    def __init__(self, checkpoint: Checkpoint, timeline: Timeline, card: JobCard) -> None:
        self._checkpoint, self._timeline = checkpoint, timeline
        self._files = {name: TableFiles.of(name, table, card.groups) for name, table in card.tables.items()}
        self._examined: set[str] = set()
        self._ways = Ways(timeline)

    def leads_to(self, epoch: int) -> bool:
        while (way := self._ways.to(epoch)).leads:
            known = len(self._timeline.unsound)
            self._examine(epoch, way)
            if len(self._timeline.unsound) == known:
                return not self._lost_rows(epoch)
            # Perhaps there is another way round.
            self._ways = Ways(self._timeline)
        return False

    def _examine(self, epoch: int, way: Way) -> None:
        for table, file in way.parts:
            if self._is_new(file.file):
                self._judge(file.file, examine_snapshot_file(self._checkpoint, file, self._files.get(table)))
        for table, after in way.after.items():
            for number in range(after + 1, epoch + 1):
                manifest = self._timeline.manifests[number]
                for ref in manifest.tables.get(table, ()):
                    if self._is_new(ref.file):
                        files = self._files.get(table)
                        self._judge(ref.file, examine_delta(self._checkpoint, ref, manifest.routing, files))
        for rows in self._timeline.held_after(epoch):
            if self._is_new(rows.file.file):
                self._judge(rows.file.file, examine_delta(self._checkpoint, rows.file, None, None))

    def _is_new(self, name: str) -> bool:
        new = name not in self._examined
        self._examined.add(name)
        return new

    def _judge(self, name: str, what: str | None) -> None:
        if what is not None:
            self._timeline.unsound.add(name)

    def _lost_rows(self, epoch: int) -> bool:
        """Tell whether rows that wait after an epoch are damaged: they are nowhere else."""
        return any(rows.file.file in self._timeline.unsound for rows in self._timeline.held_after(epoch))
