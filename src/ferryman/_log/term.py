"""Terms: which run of a job a checkpoint belongs to now, by a number that only grows.

Every start takes the next term: it creates `terms/<number>.json`, and of two only one can. From then on the run
before may not write any more, whether it is dead, asleep, or cut off from its lock. It learns that at the next
look; what it writes before it looks is told apart by its term, in manifests, sinks and homes alike.

A term also keeps how its run cuts the source's data into partitions and how many instances it has, so that an epoch
which it leaves behind is done again just as it was begun. What a run has to do again itself can only be found once its
term is taken, when nothing new comes of older ones; then the term is written again, and the run is ready.
Calls `Checkpoint`.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ferryman._log.agreement import pending_batch
from ferryman._log.checkpoint import Checkpoint
from ferryman._model.errors import CorruptCheckpoint, Superseded
from ferryman._model.records import Intent, Manifest
from ferryman._model.shape import flag, mapped, text, whole

log = logging.getLogger("ferryman")

# How many terms are kept, for people who want to see who ran when.
_KEPT = 20


@dataclass(frozen=True)
class Redo:
    """An epoch that an earlier run has begun and not committed, and how that run did it.

    Attributes
    ----------
    epoch
        The epoch.
    reading
        The settings by which the run had Spark cut the source's data into partitions.
    instances
        How many instances each operator had.
    since
        The term of the run that began it. What an older one has written down of it came too late.
    """

    epoch: int
    reading: Mapping[str, str]
    instances: int
    since: int = 0

    @classmethod
    def parse(cls, raw: Any) -> Redo:
        """Read it back from JSON."""
        redo = mapped(raw, "redo")
        return cls(
            whole(redo["epoch"], "epoch"),
            _settings(redo["reading"]),
            whole(redo["instances"], "instances", low=1),
            whole(redo.get("since", 0), "since"),
        )


@dataclass(frozen=True)
class Term:
    """One run of a job.

    Attributes
    ----------
    number
        Grows with every run.
    run
        The run's own name.
    job
        The job's name.
    host, pid, time_ms
        Where and when it began, for people.
    instances
        How many instances each operator had at its start.
    reading
        The settings by which Spark cuts the source's data into partitions in this run.
    redo
        The epoch that it found begun, if any.
    ready
        Whether it has found out; before that it has begun nothing.
    """

    number: int
    run: str
    job: str
    host: str
    pid: int
    time_ms: int
    instances: int
    reading: Mapping[str, str]
    redo: Redo | None = None
    ready: bool = False

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Term:
        """Read a term back from JSON."""
        return cls(
            whole(raw["number"], "number"),
            text(raw["run"], "run"),
            text(raw["job"], "job"),
            text(raw["host"], "host"),
            whole(raw["pid"], "pid"),
            whole(raw["time_ms"], "time_ms"),
            whole(raw["instances"], "instances", low=1),
            _settings(raw["reading"]),
            None if raw["redo"] is None else Redo.parse(raw["redo"]),
            flag(raw.get("ready", True), "ready"),
        )


def read_term(checkpoint: Checkpoint, number: int) -> Term:
    """Read what a run has left of itself."""
    return checkpoint.record(f"terms/{number:012d}.json", Term.parse)


def newest_term(checkpoint: Checkpoint) -> Term | None:
    """Read the term of the newest run; None before the first, or where its file is damaged: the number is enough."""
    numbers = checkpoint.numbers("terms")
    return _read_term(checkpoint, numbers[-1]) if numbers else None


def _read_term(checkpoint: Checkpoint, number: int) -> Term | None:
    try:
        return read_term(checkpoint, number)
    except (CorruptCheckpoint, FileNotFoundError):
        log.warning("terms/%012d.json in %s is damaged or gone", number, checkpoint.directory.uri)
        return None


def take_term(
    checkpoint: Checkpoint,
    run: str,
    job: str,
    *,
    above: int = 0,
    instances: int = 1,
    reading: Mapping[str, str] | None = None,
) -> Term:
    """Begin a run: take a term that is newer than all there were, here and wherever else one is known (`above`)."""
    while True:
        numbers = checkpoint.numbers("terms")
        number = max([above, *numbers[-1:]]) + 1
        now = time.time_ns() // 1_000_000
        term = Term(number, run, job, socket.gethostname(), os.getpid(), now, instances, reading or {})
        if checkpoint.record_new(f"terms/{number:012d}.json", asdict(term)):
            return term
        above = number


def settle_term(checkpoint: Checkpoint, term: Term, redo: Redo | None) -> Term:
    """Write down what a run has to do again; from now on it may begin epochs, and older terms are not needed."""
    settled = replace(term, redo=redo, ready=True)
    checkpoint.record_again(f"terms/{term.number:012d}.json", asdict(settled))
    older = [number for number in checkpoint.numbers("terms") if number < term.number]
    checkpoint.directory.delete(f"terms/{old:012d}.json" for old in older[:-_KEPT])
    return settled


def term_before(checkpoint: Checkpoint, number: int) -> Term | None:
    """Read the term of the last run before one that may have begun epochs; None if there is none, or it is damaged."""
    for older in reversed(checkpoint.numbers("terms")):
        if older < number:
            term = _read_term(checkpoint, older)
            if term is None or term.ready:
                return term
    return None


def left_behind(checkpoint: Checkpoint, latest: Manifest | None, before: Term | None) -> Redo | None:
    """Find the epoch that a run has begun and not committed, and how it has to be done again."""
    epoch = (latest.epoch if latest else 0) + 1
    batch, intent = pending_batch(checkpoint), checkpoint.intent()
    if before is None:
        return None
    if before.redo and before.redo.epoch == epoch:
        # It died in an epoch that the run before it had begun.
        return before.redo
    # An intent of an older run came too late to count.
    intended = intent is not None and intent.epoch == epoch and intent.term in (0, before.number)
    if not intended and (batch is None or batch <= (latest.batch if latest else -1)):
        return None
    # A run that has committed epochs may have changed its layout meanwhile.
    instances = latest.routing.instances if latest and latest.term == before.number else before.instances
    return Redo(epoch, before.reading, instances, before.number)


def intent_of(checkpoint: Checkpoint, term: Term) -> Intent | None:
    """Read what was written down of the epoch that a run has to do again; None if nothing was, or it came too late."""
    intent, redo = checkpoint.intent(), term.redo
    if intent is None or redo is None or intent.epoch != redo.epoch:
        return None
    return intent if intent.term >= redo.since or not intent.term else None


def resumes(term: Term, latest: Manifest | None) -> bool:
    """Tell whether the job was away between the newest epoch and the next one of a run.

    So it was before the first epoch of a run; and where that one was begun by an earlier run, and is redone at the
    time it had then, before the second.
    """
    if latest is None or latest.term != term.number:
        return True
    return term.redo is not None and term.redo.epoch == latest.epoch


def check_term(checkpoint: Checkpoint, term: Term) -> None:
    """Raise `Superseded` unless a term is still the newest, and still this run's."""
    numbers = checkpoint.numbers("terms")
    number, newest = term.number, numbers[-1] if numbers else 0
    if newest == number and (found := newest_term(checkpoint)) is not None and found.run == term.run:
        return
    if newest <= number:
        raise Superseded(
            f"{checkpoint.directory.uri} no longer knows of this run: it was deleted or restored while the job ran. "
            "This run ends without writing to it. Start the job again to go on from what is there now."
        )
    by = newest_term(checkpoint)
    who = f"run {by.number} (host {by.host}, process {by.pid})" if by else f"run {newest}"
    raise Superseded(
        f"{checkpoint.directory.uri} was taken over by {who} while this one, run {number}, was away or held up. It "
        "ends without committing; nothing is lost or counted twice, as the newer run goes on. Start a job once only."
    )


def _settings(raw: Any) -> dict[str, str]:
    return {text(name, "a setting"): text(value, "a setting") for name, value in mapped(raw, "reading").items()}
