"""How far the start of a job is, and how it went: what `job.started` gives, and what a terminal shows meanwhile.

Java and the session come before a job is thought of, so a process keeps what they took until a job starts. From the
first committed epoch on nobody looks here any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# In their order; the first two once in a process.
STEPS = {
    "java": "starting Java",
    "session": "starting the Spark session",
    "take over": "taking over from the run before",
    "query": "starting the query",
    "first epoch": "the first epoch",
}

_session_ms: dict[str, float] = {}


def session_took(step: str, milliseconds: float) -> None:
    """Keep what a step of the session has taken, for the first job that starts on it."""
    _session_ms[step] = milliseconds


@dataclass(frozen=True, kw_only=True)
class Started:
    """Tell how far the start of a job is, or how it went.

    Attributes
    ----------
    step
        What it is doing: "take over", "query" or "first epoch"; empty once that is committed.
    steps_ms
        How long each step took so far. The first job of a process has "java" and "session" too, where
        `ferryman.session` has started them.
    after
        The newest epoch when it took over; 0 in a new checkpoint.
    redone
        The epoch that the run before had begun and not committed, which is done again; None if there is none.
    groups
        How many key groups of all operators have state to be restored.
    restored
        How many of them are there.
    rebuilt
        How many had to be made anew from the checkpoint, once that is known.
    """

    step: str
    steps_ms: Mapping[str, float]
    after: int = 0
    redone: int | None = None
    groups: int = 0
    restored: int = 0
    rebuilt: int = 0

    @property
    def total_ms(self) -> float:
        """Give how long all steps took so far."""
        return sum(self.steps_ms.values())


@dataclass(kw_only=True)
class Starting:
    """What is known of a start that is under way; any thread may look."""

    after: int = 0
    redone: int | None = None
    groups: int = 0
    rebuilt: int = 0
    # Counts the key groups that are there, while the first epoch runs.
    count: Callable[[], int] = lambda: 0
    over: threading.Event = field(default_factory=threading.Event)
    _step: str = ""
    _began: float = 0.0
    _steps_ms: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._steps_ms.update(_session_ms)
        _session_ms.clear()

    def step(self, name: str) -> None:
        """Begin a step, and so end the one before."""
        now = time.perf_counter()
        if self._step:
            self._steps_ms[self._step] = (now - self._began) * 1000
        self._step, self._began = name, now

    def committed(self, rebuilt: int) -> None:
        """Learn that the first epoch is committed."""
        self.step("")
        self.rebuilt = rebuilt
        self.count = lambda: self.groups
        self.over.set()

    def end(self) -> None:
        """Learn that there will be no first epoch any more, if there was none: the job has ended, or never began."""
        if not self.over.is_set():
            if self._step:
                self._steps_ms[self._step] = (time.perf_counter() - self._began) * 1000
            self.over.set()

    def look(self) -> Started:
        """Tell how far it is."""
        step, steps_ms = self._step, dict(self._steps_ms)
        if step and not self.over.is_set():
            steps_ms[step] = (time.perf_counter() - self._began) * 1000
        return Started(
            step=step,
            steps_ms=steps_ms,
            after=self.after,
            redone=self.redone,
            groups=self.groups,
            restored=min(self.groups, self.count()),
            rebuilt=self.rebuilt,
        )
