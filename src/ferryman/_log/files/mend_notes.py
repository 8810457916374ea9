"""The notes of what was mended in a checkpoint, for people: which file, and when. Nothing goes by them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.errors import CorruptCheckpoint
from ferryman._model.json_values import MOST_TIME_MS, listed, mapped, text, whole

MENDED = "mended.json"

# So many are kept, the newest.
_KEPT = 50


@dataclass(frozen=True)
class Mended:
    """A file that was damaged or missing and was written anew, and when."""

    file: str
    time_ms: int

    @classmethod
    def parse(cls, raw: Any) -> Mended:
        """Read a note back from JSON."""
        note = mapped(raw, "a note")
        return cls(text(note["file"], "file"), whole(note["time_ms"], "time_ms", high=MOST_TIME_MS))


def mended(checkpoint: Checkpoint) -> tuple[Mended, ...]:
    """Read what was mended, oldest first."""
    try:
        return checkpoint.record(MENDED, _parsed)
    except FileNotFoundError:
        return ()


def note_mended(checkpoint: Checkpoint, files: Iterable[str]) -> None:
    """Write down that files were mended just now."""
    try:
        known = mended(checkpoint)
    except CorruptCheckpoint:
        known = ()
    now_ms = time.time_ns() // 1_000_000
    notes = [*known, *(Mended(file, now_ms) for file in files)]
    checkpoint.record_again(MENDED, {"mended": [asdict(note) for note in notes[-_KEPT:]]})


def _parsed(raw: Mapping[str, Any]) -> tuple[Mended, ...]:
    return tuple(Mended.parse(note) for note in listed(raw["mended"], "mended"))
