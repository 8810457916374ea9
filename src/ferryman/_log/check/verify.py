"""Verify a checkpoint: every file, and that each kept epoch can be rebuilt; list every fault, not the first.

Three passes. The first reads what says what belongs to what: the card, the manifests, the lists of
snapshots. The second examines every file they name. The third folds the deltas forward, once, and
compares the result with each snapshot on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ferryman._log.check.compare import snapshots_that_differ
from ferryman._log.check.examine import TableFiles, examine_delta, examine_snapshot_file
from ferryman._log.check.timeline import Timeline
from ferryman._log.check.way_back import back_to
from ferryman._log.check.ways import Ways
from ferryman._log.files.checkpoint import CARD, TOLD, Checkpoint
from ferryman._log.files.mend_notes import MENDED, Mended, mended
from ferryman._log.files.rewind_note import REWIND, how_to_finish, unfinished_rewind
from ferryman._log.files.term import read_term
from ferryman._model.card import JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.intent import Intent
from ferryman._model.snapshot import SnapshotFile

Progress = Callable[[int, int], None]

RESTORE = "Restore it from a backup of the checkpoint."
_COVERED = "Nothing needs to be done: a snapshot covers it, so no kept epoch needs it."
_MENDED = (
    "Nothing needs to be done: its epochs are rebuilt from an older snapshot and the deltas since. A job that runs "
    "writes it anew when it reads it."
)


class _Found(NamedTuple):
    """A fault, and what is known of it before all are: None for damages that follow from the others."""

    file: str
    what: str
    damages: tuple[int, ...] | None
    remedy: str


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
    mended
        The files that a job has written anew as they were damaged or missing, oldest first.
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
    mended: tuple[Mended, ...] = ()

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
        self._found: list[_Found] = []
        self._mended: tuple[Mended, ...] = ()

    def run(self) -> Report:
        card = self._card()
        self._intents()
        self._runs()
        # What is listed before the manifests are read is named by one of them, or by none.
        folders = ("deltas", "held", "lookups", "snapshots")
        listed = [f"{folder}/{name}" for folder in folders for name in self._list(folder)]
        listed += [f"manifests/{name}" for name in self._list("manifests")]
        timeline = Timeline.read(self._checkpoint, card)
        refs = {ref.file: ref.bytes for _, _, ref in timeline.deltas()}
        refs.update({file.file: file.bytes for _, _, file in timeline.snapshot_files()})
        refs.update({rows.file.file: rows.file.bytes for _, rows in timeline.held()})
        refs.update({ref.file: ref.bytes for ref in timeline.lookups()})
        self._total = 2 * sum(refs.values())
        tables = card.tables if card else {}
        files = {name: TableFiles.of(name, table, card.groups) for name, table in tables.items()} if card else {}
        self._examine(timeline, files)
        for file, what in timeline.faults:
            self._fault(file, what)
        present = [files[name].table for name, table in tables.items() if not table.dropped]
        for name, epoch in snapshots_that_differ(self._checkpoint, timeline, present, self._advance):
            self._fault(
                f"snapshots/{epoch:012d}.json",
                f"is not what the deltas up to epoch {epoch} fold to, for table {name!r}",
                tuple(later for later in timeline.epochs if timeline.base(later) == epoch),
                RESTORE,
            )
        faults, rebuildable = self._weighed(timeline)
        named = timeline.files | set(refs)
        return Report(
            checkpoint=self._checkpoint.directory.uri,
            job=card.job if card else None,
            epochs=timeline.epochs,
            rebuildable=() if card is None else rebuildable,
            snapshots=tuple(timeline.snapshots),
            files=len(named) + 1,
            bytes=sum(refs.values()),
            faults=faults,
            orphans=len(set(listed) - named),
            mended=self._mended,
        )

    def _weighed(self, timeline: Timeline) -> tuple[tuple[Fault, ...], tuple[int, ...]]:
        """Say of each fault which epochs it damages and what to do, and which epochs can be rebuilt."""
        ways = Ways(timeline) if self._found else None
        lost = (
            {}
            if ways is None
            else {epoch: way.stumbles for epoch in timeline.epochs if not (way := ways.to(epoch)).leads}
        )
        damages = [
            tuple(epoch for epoch, stumbles in lost.items() if found.file in stumbles)
            if found.damages is None
            else found.damages
            for found in self._found
        ]
        damaged = {*lost}.union(*damages)
        rebuildable = tuple(epoch for epoch in timeline.epochs if epoch not in damaged)
        faults = [
            Fault(
                found.file, found.what, epochs, found.remedy or self._remedy(found.file, epochs, timeline, rebuildable)
            )
            for found, epochs in zip(self._found, damages, strict=True)
        ]
        return tuple(faults), rebuildable

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
            except (CorruptCheckpoint, MissingDelta):
                self._fault(
                    name, "is truncated or altered", (), f"{RESTORE} If there is none, delete it: a silent epoch that "
                    "a crash interrupted is then run with the time of the restart.",
                )  # fmt: skip

    def _runs(self) -> None:
        """Look at what tells one run of the job from the next."""
        for number in self._checkpoint.numbers("terms"):
            try:
                read_term(self._checkpoint, number)
            except (CorruptCheckpoint, MissingDelta):
                self._fault(
                    f"terms/{number:012d}.json", "is truncated or altered", (), f"{RESTORE} If there is none, leave it "
                    "there: the next run takes a newer one. A micro-batch that was begun is then read anew.",
                )  # fmt: skip
        try:
            self._checkpoint.told()
        except (CorruptCheckpoint, MissingDelta):
            self._fault(TOLD, "is truncated or altered", (), "Delete it: the sinks are then told again.")
        try:
            rewind = unfinished_rewind(self._checkpoint)
            if rewind is not None:
                what = f"tells that a rewind to epoch {rewind.to} was begun and not finished"
                self._fault(REWIND, what, (), f"{how_to_finish(self._checkpoint, rewind)}.")
        except (CorruptCheckpoint, MissingDelta):
            self._fault(
                REWIND, "is truncated or altered", (), f"{RESTORE} If there is none, delete it and rewind again."
            )
        try:
            self._mended = mended(self._checkpoint)
        except (CorruptCheckpoint, MissingDelta):
            self._fault(MENDED, "is truncated or altered", (), "Delete it: it only tells what was mended.")

    def _examine(self, timeline: Timeline, files: dict[str, TableFiles]) -> None:
        for manifest, table, ref in timeline.deltas():
            what = examine_delta(self._checkpoint, ref, manifest.routing, files.get(table))
            self._advance(ref.bytes)
            if what is not None:
                timeline.unsound.add(ref.file)
                self._fault(ref.file, what)
        waiting: dict[DeltaRef, list[int]] = {}
        for manifest, held in timeline.held():
            waiting.setdefault(held.file, []).append(manifest.epoch)
        for ref, epochs in waiting.items():
            what = examine_delta(self._checkpoint, ref, None, None)
            self._advance(ref.bytes)
            if what is not None:
                self._fault(ref.file, what, tuple(epochs), RESTORE)
        for ref, lookup in timeline.lookups().items():
            what = examine_delta(self._checkpoint, ref, None, None)
            self._advance(ref.bytes)
            if what is not None:
                self._fault(
                    ref.file, what, (), f"{RESTORE} If there is none: only an epoch that was begun with it and has to "
                    f"be done again needs it; else the job reads the table of lookup {lookup!r} anew when it starts.",
                )  # fmt: skip
        # Snapshots may share a file, and each of them says by itself what is in it.
        examined: dict[SnapshotFile, str | None] = {}
        for _, table, file in timeline.snapshot_files():
            if file not in examined:
                examined[file] = examine_snapshot_file(self._checkpoint, file, files.get(table))
                self._advance(file.bytes)
                if (what := examined[file]) is not None:
                    timeline.unsound.add(file.file)
                    self._fault(file.file, what)

    # -- faults ----------------------------------------------------------------------------------

    def _fault(self, file: str, what: str, damages: tuple[int, ...] | None = None, remedy: str = "") -> None:
        self._found.append(_Found(file, what, damages, remedy))

    def _remedy(self, file: str, damages: tuple[int, ...], timeline: Timeline, rebuildable: tuple[int, ...]) -> str:
        if not damages:
            return _MENDED if file.startswith("snapshots/") else _COVERED
        if timeline.epochs[-1] in rebuildable:
            return f"{RESTORE} The newest epoch does not need it."
        if not rebuildable:
            return RESTORE
        return f"{RESTORE} If there is none: {back_to(self._checkpoint, rebuildable[-1])}"

    def _advance(self, by: int) -> None:
        self._done += by
        if self._on_progress is not None:
            self._on_progress(min(self._done, self._total), self._total)

    def _list(self, folder: str) -> list[str]:
        return self._checkpoint.directory.list(folder)
