"""What the autoscaler of each run has decided: `decisions/<term>.json`, a list that only grows, up to a bound.

Nothing goes by it: a job that cannot write it is none the worse. Calls `Checkpoint`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._model.json_values import listed

_FOLDER = "decisions"
# So many decisions of a run are kept, and those of so many runs.
_MOST = 500
_MOST_RUNS = 20

T = TypeVar("T")


class DecisionLog:
    """Keep the decisions of one run.

    Parameters
    ----------
    checkpoint
        Where to.
    term
        The number of the run.
    """

    def __init__(self, checkpoint: Checkpoint, term: int) -> None:
        self._checkpoint = checkpoint
        self._name = f"{_FOLDER}/{term:012d}.json"
        self._kept: deque[Mapping[str, Any]] = deque(maxlen=_MOST)

    def append(self, decision: Mapping[str, Any]) -> None:
        """Keep one more; of too many, the oldest goes."""
        if not self._kept:
            runs = self._checkpoint.numbers(_FOLDER)
            self._checkpoint.directory.delete(f"{_FOLDER}/{run:012d}.json" for run in runs[: 1 - _MOST_RUNS])
        self._kept.append(decision)
        self._checkpoint.record_again(self._name, {"decisions": list(self._kept)})


def read_decisions(checkpoint: Checkpoint, parse: Callable[[Any], T]) -> list[T]:
    """Read the decisions of all runs of which they are kept, oldest first; `CorruptCheckpoint` where a file is bad."""
    found: list[T] = []
    for run in checkpoint.numbers(_FOLDER):
        # A newer run may remove that of an old one meanwhile.
        with suppress(FileNotFoundError):
            found += checkpoint.record(
                f"{_FOLDER}/{run:012d}.json",
                lambda raw: [parse(decision) for decision in listed(raw["decisions"], "decisions")],
            )
    return found
