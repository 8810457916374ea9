"""Terms: which run of a job a checkpoint belongs to now, by a number that only grows.

Every start takes the next term: it creates `terms/<number>.json`, and of two only one can. From then on the run
before may not write any more, whether it is dead, asleep, or cut off from its lock. It learns that at the next
look; what it writes before it looks is told apart by its term, in manifests, sinks and homes alike.

A term also keeps how its run cuts the source's data into partitions, so that a micro-batch which it leaves behind
is read again just as it was begun. Calls `Checkpoint`.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ferryman._log.checkpoint import Checkpoint
from ferryman._model.errors import CorruptCheckpoint, Superseded

log = logging.getLogger("ferryman")

# How many terms are kept, for people who want to see who ran when.
_KEPT = 20


@dataclass(frozen=True)
class Redo:
    """A micro-batch that an earlier run has begun, and how that run read the source."""

    batch: int
    reading: Mapping[str, str]


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
    reading
        The settings by which Spark cuts the source's data into partitions in this run.
    redo
        The micro-batch that it found begun, if any.
    """

    number: int
    run: str
    job: str
    host: str
    pid: int
    time_ms: int
    reading: Mapping[str, str] = field(default_factory=dict)
    redo: Redo | None = None

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Term:
        """Read a term back from JSON."""
        redo = raw.get("redo")
        return cls(
            int(raw["number"]),
            str(raw["run"]),
            str(raw["job"]),
            str(raw["host"]),
            int(raw["pid"]),
            int(raw["time_ms"]),
            _texts(raw["reading"]),
            None if redo is None else Redo(int(redo["batch"]), _texts(redo["reading"])),
        )


def read_term(checkpoint: Checkpoint, number: int) -> Term:
    """Read what a run has left of itself."""
    return checkpoint.record(f"terms/{number:012d}.json", Term.parse)


def newest_term(checkpoint: Checkpoint) -> Term | None:
    """Read the term of the newest run; None before the first, or where its file is damaged: the number is enough."""
    numbers = checkpoint.numbers("terms")
    try:
        return read_term(checkpoint, numbers[-1]) if numbers else None
    except (CorruptCheckpoint, FileNotFoundError):
        log.warning("terms/%012d.json in %s is damaged or gone", numbers[-1], checkpoint.directory.uri)
        return None


def take_term(
    checkpoint: Checkpoint,
    run: str,
    job: str,
    *,
    above: int = 0,
    reading: Mapping[str, str] | None = None,
    redo: Redo | None = None,
) -> Term:
    """Begin a run: take a term that is newer than all there were, here and wherever else one is known (`above`)."""
    while True:
        numbers = checkpoint.numbers("terms")
        number = max([above, *numbers[-1:]]) + 1
        now = time.time_ns() // 1_000_000
        term = Term(number, run, job, socket.gethostname(), os.getpid(), now, reading or {}, redo)
        if checkpoint.record_new(f"terms/{number:012d}.json", asdict(term)):
            checkpoint.directory.delete(f"terms/{old:012d}.json" for old in numbers[:-_KEPT])
            return term
        above = number


def check_term(checkpoint: Checkpoint, number: int) -> None:
    """Raise `Superseded` unless a term is still the newest."""
    numbers = checkpoint.numbers("terms")
    newest = numbers[-1] if numbers else 0
    if newest == number:
        return
    if newest < number:
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


def _texts(raw: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in raw.items()}
