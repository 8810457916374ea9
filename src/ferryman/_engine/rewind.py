"""Go back to an earlier epoch: a checkpoint becomes what it was when that epoch was the newest.

It takes a term like a run, so that whoever slept through it writes no more, and terms still only grow. Then it writes
down what it does (`rewind.json`). From then on no job starts until it is done; killed at any step, it is run again and
goes on by that note. The last step is to delete the note. Calls `Checkpoint`, terms, and who takes back sinks' rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from ferryman._engine.rewind_plan import RewindPlan
from ferryman._log.files.checkpoint import TOLD, Checkpoint, is_number, keep_all
from ferryman._log.files.rewind_note import REWIND
from ferryman._log.files.term import Term, check_term, settle_term, take_term, term_before
from ferryman._log.fold.bases import bases, files_of
from ferryman._log.fold.mend_snapshots import mend_snapshots
from ferryman._log.spark_log.rewind_spark_log import kept_offsets, rewind_spark_log
from ferryman._model.card import JobCard
from ferryman._model.errors import CorruptCheckpoint
from ferryman._model.rewind import Rewind
from ferryman._model.spark_log import SparkLog
from ferryman._os.faults import REWIND_STEP, reach

# Has a sink forget what came after an epoch: told its name, its place, that epoch, and the rewind's term.
TakeBack = Callable[[str, str, int, Term], None]


def begin_rewind(checkpoint: Checkpoint, plan: RewindPlan, term: Term) -> Rewind:
    """Write down what is going to be done."""
    moved = plan.rewind.moved
    rewind = replace(plan.rewind, moved=None if moved is None else replace(moved, term=term.number))
    reach(REWIND_STEP)
    check_term(checkpoint, term)
    checkpoint.record_again(REWIND, rewind.json())
    return rewind


def term_of_rewind(checkpoint: Checkpoint, card: JobCard, above: int = 0) -> Term:
    """Take a term, which reads the source's data as the run before did: what that has begun may have to be redone.

    It is newer than any that sinks know of (`above`). Until it is settled, it says nothing of what was left half done.
    """
    try:
        before = term_before(checkpoint)
    except CorruptCheckpoint:
        before = None
    reading, instances = (before.reading, before.instances) if before else ({}, 1)
    run = f"rewind-{uuid.uuid4().hex}"
    return take_term(checkpoint, run, card.job, above=above, instances=instances, reading=reading)


def carry_out(checkpoint: Checkpoint, card: JobCard, rewind: Rewind, term: Term, take_back: TakeBack) -> None:
    """Do what is written down; what was done before is not done again."""

    def step() -> None:
        reach(REWIND_STEP)
        check_term(checkpoint, term)

    directory = checkpoint.directory
    # Of what was deleted by one that was killed before it synced that, nothing may come back once this is done.
    keep_all(checkpoint)
    directory.keep(["spark/commits", "spark/offsets"])
    step()
    settle_term(checkpoint, term, None)
    # What tells of later epochs goes before they do.
    directory.delete([*checkpoint.intent_files(), TOLD])
    directory.delete([f"snapshots/{number:012d}.json" for number in checkpoint.snapshots() if number > rewind.to])
    step()
    for number in reversed(checkpoint.epochs()):
        if number > rewind.last or (number > rewind.to and not _is_moved(checkpoint, rewind)):
            directory.delete([f"manifests/{number:012d}.json"])
    step()
    if rewind.moved is None:
        manifest = checkpoint.own_manifest(rewind.to, card.groups)
        rewind_spark_log(checkpoint, manifest.batch, kept_offsets(checkpoint, manifest) or SparkLog())
    elif not _is_moved(checkpoint, rewind):
        checkpoint.commit(rewind.moved)
    step()
    directory.delete(_later_files(checkpoint, rewind.to))
    step()
    for label, path in rewind.sinks.items():
        take_back(label, path, rewind.to, term)
    step()
    directory.delete([REWIND])


def mend_after(checkpoint: Checkpoint, card: JobCard, plan: RewindPlan) -> None:
    """Write anew what is damaged of the snapshots that are left."""
    mend_snapshots(checkpoint, card, plan.damaged)


def _is_moved(checkpoint: Checkpoint, rewind: Rewind) -> bool:
    """Tell whether the epoch in which only the source moves is committed."""
    if rewind.moved is None or rewind.moved.epoch not in checkpoint.epochs():
        return False
    try:
        return checkpoint.manifest(rewind.moved.epoch).json() == rewind.moved.json()
    except CorruptCheckpoint:
        return False


def _later_files(checkpoint: Checkpoint, to: int) -> list[str]:
    """List the files of epochs after one: nobody names them any more."""
    needed = {file for snapshot in bases(checkpoint, to) for file in files_of(snapshot)}
    found = []
    for folder in ("deltas", "held", "lookups", "snapshots"):
        for name in checkpoint.directory.list(folder):
            number = name.split("-", 1)[0]
            if is_number(number) and int(number) > to and f"{folder}/{name}" not in needed:
                found.append(f"{folder}/{name}")
    return found
