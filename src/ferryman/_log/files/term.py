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
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.errors import CorruptCheckpoint, Superseded
from ferryman._model.json_values import flag, mapped, text, whole

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


@dataclass(frozen=True, kw_only=True)
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
            number=whole(raw["number"], "number"),
            run=text(raw["run"], "run"),
            job=text(raw["job"], "job"),
            host=text(raw["host"], "host"),
            pid=whole(raw["pid"], "pid"),
            time_ms=whole(raw["time_ms"], "time_ms"),
            instances=whole(raw["instances"], "instances", low=1),
            reading=_settings(raw["reading"]),
            redo=None if raw["redo"] is None else Redo.parse(raw["redo"]),
            ready=flag(raw.get("ready", True), "ready"),
        )


def read_term(checkpoint: Checkpoint, number: int) -> Term:
    """Read what a run has left of itself."""
    return checkpoint.record(f"terms/{number:012d}.json", Term.parse)


def newest_term(checkpoint: Checkpoint) -> Term | None:
    """Read the term of the newest run; None before the first, or where its file is damaged: the number is enough."""
    numbers = checkpoint.numbers("terms")
    if not numbers:
        return None
    try:
        return read_term(checkpoint, numbers[-1])
    except (CorruptCheckpoint, FileNotFoundError):
        log.warning("terms/%012d.json in %s is damaged or gone", numbers[-1], checkpoint.directory.uri)
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
        term = Term(
            number=number,
            run=run,
            job=job,
            host=socket.gethostname(),
            pid=os.getpid(),
            time_ms=now,
            instances=instances,
            reading=reading or {},
        )
        if checkpoint.record_new(f"terms/{number:012d}.json", asdict(term)):
            return term
        above = number


def settle_term(checkpoint: Checkpoint, term: Term, redo: Redo | None) -> Term:
    """Write down what a run has to do again; from now on it may begin epochs, and older terms are not needed."""
    settled = replace(term, redo=redo, ready=True)
    checkpoint.record_again(f"terms/{term.number:012d}.json", asdict(settled))
    older = [number for number in checkpoint.numbers("terms") if number < term.number]
    checkpoint.directory.delete(f"terms/{old:012d}.json" for old in older[:-_KEPT])
    # What runs before the one that began it have written down says nothing of it.
    checkpoint.forget_intents(term.number if redo is None else redo.since)
    return settled


def term_before(checkpoint: Checkpoint, number: int | None = None) -> Term | None:
    """Read the term of the last run before one, or of all, that may have begun epochs; None if there is none.

    `CorruptCheckpoint` where its file is damaged: what runs before it have begun says nothing of what it has.
    """
    for older in reversed(checkpoint.numbers("terms")):
        if number is None or older < number:
            # A start that came later may have found that it is not needed any more.
            with suppress(FileNotFoundError):
                term = read_term(checkpoint, older)
                if term.ready:
                    return term
    return None


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
