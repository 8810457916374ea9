"""Verify a checkpoint: every file, and that each kept epoch can be rebuilt; list every fault, not the first.

Three passes. The first reads what says what belongs to what: the card, the manifests, the lists of
snapshots. The second examines every file they name. The third folds the deltas forward, once, and
compares the result with each snapshot on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ferryman._log.check.compare import snapshots_that_differ
from ferryman._log.check.examine import TableFiles, examine_delta, examine_snapshot_file
from ferryman._log.check.timeline import Timeline
from ferryman._log.files.checkpoint import CARD, TOLD, Checkpoint
from ferryman._log.files.term import read_term
from ferryman._model.card import JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import CorruptCheckpoint, FerrymanError, MissingDelta
from ferryman._model.intent import Intent
from ferryman._model.snapshot import SnapshotFile

Progress = Callable[[int, int], None]

RESTORE = "Restore it from a backup of the checkpoint."


@dataclass(frozen=True)
class Fault:
    """Say what is wrong with one file.

    Attributes
    ----------
    file
        Its name inside the checkpoint.
    what
        What is wrong with it.
    damages
        The kept epochs that cannot be rebuilt, or not be trusted, because of it.
    remedy
        What to do.
    """

    file: str
    what: str
    damages: tuple[int, ...]
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """Say how a checkpoint is.

    Attributes
    ----------
    epochs, rebuildable
        The epochs that the checkpoint should hold, and those of them that can be rebuilt.
    snapshots
        The epochs of which there is a snapshot.
    files, bytes
        How many files were checked, and their size.
    orphans
        Files that no kept epoch names: left by killed tasks, and deleted by the next retention.
    """

    checkpoint: str
    job: str | None
    epochs: tuple[int, ...]
    rebuildable: tuple[int, ...]
    snapshots: tuple[int, ...]
    files: int
    bytes: int
    faults: tuple[Fault, ...]
    orphans: int

    @property
    def sound(self) -> bool:
        """Tell whether there is no fault."""
        return not self.faults

    def json(self) -> dict[str, Any]:
        """Write the report as JSON values."""
        return {"sound": self.sound, **asdict(self)}


def verify(checkpoint: Checkpoint, on_progress: Progress | None = None) -> Report:
    """Check every file of a checkpoint and that each kept epoch can be rebuilt.

    Parameters
    ----------
    on_progress
        Called with the bytes checked so far and the bytes there are to check.

    Raises
    ------
    ForeignCheckpoint
        If the directory is no checkpoint.
    NewerFormat
        If it was written by a newer Ferryman.
    CorruptCheckpoint
        If one of its folders is a link: what is behind it is not looked at.
    """
    checkpoint.refuse_links()
    for last in (False, False, True):
        before = _oldest(checkpoint)
        try:
            report = _Verification(checkpoint, on_progress).run()
        except (MissingDelta, FileNotFoundError):
            if last or before == _oldest(checkpoint):
                raise
            continue
        # A job that is running may have forgotten old epochs under our hands; that is not a fault: look again.
        if report.sound or before == _oldest(checkpoint):
            break
    return report


def _oldest(checkpoint: Checkpoint) -> tuple[list[int], list[int]]:
    return checkpoint.epochs()[:1], checkpoint.snapshots()[:1]


class _Verification:
    def __init__(self, checkpoint: Checkpoint, on_progress: Progress | None) -> None:
        self._checkpoint = checkpoint
        self._on_progress = on_progress
        self._done = self._total = 0
        self._found: list[tuple[str, str, tuple[int, ...], str]] = []

    def run(self) -> Report:
        card = self._card()
        self._intents()
        self._runs()
        # What is listed before the manifests are read is named by one of them, or by none.
        folders = ("deltas", "held", "snapshots")
        listed = [f"{folder}/{name}" for folder in folders for name in self._list(folder)]
        listed += [f"manifests/{name}" for name in self._list("manifests")]
        timeline = Timeline.read(self._checkpoint, card)
        refs = {ref.file: ref.bytes for _, _, ref in timeline.deltas()}
        refs.update({file.file: file.bytes for _, _, file in timeline.snapshot_files()})
        refs.update({rows.file.file: rows.file.bytes for _, rows in timeline.held()})
        self._total = 2 * sum(refs.values())
        tables = card.tables if card else {}
        files = {name: TableFiles.of(name, table, card.groups) for name, table in tables.items()} if card else {}
        self._examine(timeline, files)
        for file, what, place in timeline.faults:
            self._fault(file, what, timeline.damaged_by(*place), self._remedy(timeline, *place))
        present = [files[name].table for name, table in tables.items() if not table.dropped]
        for name, epoch in snapshots_that_differ(self._checkpoint, timeline, present, self._advance):
            self._fault(
                f"snapshots/{epoch:012d}.json",
                f"is not what the deltas up to epoch {epoch} fold to, for table {name!r}",
                timeline.damaged_by("snapshot", epoch),
                self._remedy(timeline, "snapshot", epoch),
            )
        named = timeline.files | set(refs)
        damaged = {epoch for _, _, epochs, _ in self._found for epoch in epochs}
        if card is None:
            damaged.update(timeline.epochs)
        return Report(
            checkpoint=self._checkpoint.directory.uri,
            job=card.job if card else None,
            epochs=timeline.epochs,
            rebuildable=tuple(epoch for epoch in timeline.epochs if epoch not in damaged),
            snapshots=tuple(timeline.snapshots),
            files=len(named) + 1,
            bytes=sum(refs.values()),
            faults=tuple(Fault(*found) for found in self._found),
            orphans=len(set(listed) - named),
        )

    # -- the passes ------------------------------------------------------------------------------

    def _card(self) -> JobCard | None:
        try:
            return self._checkpoint.job_card()
        except CorruptCheckpoint:
            kept = tuple(self._checkpoint.epochs())
            self._fault(CARD, "is truncated or altered", kept, RESTORE)
            return None

    def _intents(self) -> None:
        for name in self._checkpoint.intent_files():
            try:
                self._checkpoint.record(name, Intent.parse)
            except FileNotFoundError:
                continue
            except FerrymanError:
                self._fault(
                    name, "is truncated or altered", (), f"{RESTORE} If there is none, delete it: a silent epoch that "
                    "a crash interrupted is then run with the time of the restart.",
                )  # fmt: skip

    def _runs(self) -> None:
        """Look at what tells one run of the job from the next."""
        for number in self._checkpoint.numbers("terms"):
            try:
                read_term(self._checkpoint, number)
            except FerrymanError:
                self._fault(
                    f"terms/{number:012d}.json", "is truncated or altered", (), f"{RESTORE} If there is none, leave it "
                    "there: the next run takes a newer one. A micro-batch that was begun is then read anew.",
                )  # fmt: skip
        try:
            self._checkpoint.told()
        except FerrymanError:
            self._fault(TOLD, "is truncated or altered", (), "Delete it: the sinks are then told again.")

    def _examine(self, timeline: Timeline, files: dict[str, TableFiles]) -> None:
        for manifest, table, ref in timeline.deltas():
            what = examine_delta(self._checkpoint, ref, manifest.routing, files.get(table))
            self._advance(ref.bytes)
            if what is not None:
                timeline.unsound_deltas.add(manifest.epoch)
                epoch = manifest.epoch
                self._fault(ref.file, what, timeline.damaged_by("delta", epoch), self._remedy(timeline, "delta", epoch))
        waiting: dict[DeltaRef, list[int]] = {}
        for manifest, held in timeline.held():
            waiting.setdefault(held.file, []).append(manifest.epoch)
        for ref, epochs in waiting.items():
            what = examine_delta(self._checkpoint, ref, None, None)
            self._advance(ref.bytes)
            if what is not None:
                self._fault(ref.file, what, tuple(epochs), RESTORE)
        # Snapshots may share a file, and each of them says by itself what is in it.
        examined: dict[SnapshotFile, str | None] = {}
        for snapshot, table, file in timeline.snapshot_files():
            if file not in examined:
                examined[file] = examine_snapshot_file(self._checkpoint, file, files.get(table))
                self._advance(file.bytes)
            if examined[file] is not None:
                timeline.unsound_snapshots.add(snapshot.epoch)
        for file, what in examined.items():
            if what is not None:
                of = [snapshot.epoch for snapshot, _, other in timeline.snapshot_files() if other == file]
                damaged = sorted({epoch for base in of for epoch in timeline.damaged_by("snapshot", base)})
                self._fault(file.file, what, tuple(damaged), self._remedy(timeline, "snapshot", of[-1]))

    # -- faults ----------------------------------------------------------------------------------

    def _fault(self, file: str, what: str, damages: tuple[int, ...], remedy: str) -> None:
        self._found.append((file, what, damages, remedy))

    def _remedy(self, timeline: Timeline, kind: str, epoch: int) -> str:
        if kind == "snapshot" and (base := timeline.base_without(epoch)) is not None:
            start = f"the snapshot of epoch {base}" if base else "the first epoch"
            return (
                f"{RESTORE} If there is none, delete snapshots/{epoch:012d}.json: its epochs are then rebuilt from "
                f"{start} and the deltas since."
            )
        if not timeline.damaged_by(kind, epoch):
            return "Nothing needs to be done: a snapshot covers it, so no kept epoch needs it."
        return RESTORE

    def _advance(self, by: int) -> None:
        self._done += by
        if self._on_progress is not None:
            self._on_progress(min(self._done, self._total), self._total)

    def _list(self, folder: str) -> list[str]:
        return self._checkpoint.directory.list(folder)
