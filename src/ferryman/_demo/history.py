"""What has happened so far in a run of the demo, and what it amounts to. No I/O."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any, Literal

from ferryman._demo.fleet import Fleet

Victim = Literal["Python worker", "driver"]

# A stream that is this close behind its source counts as having caught up.
_CLOSE_S = 1.5


@dataclass(frozen=True)
class EpochPoint:
    """One committed epoch on the run's time line; `at` in seconds since 1970."""

    epoch: int
    rows: int
    at: float
    duration_ms: float
    committed: int


@dataclass(kw_only=True)
class Kill:
    """One kill and what came after it.

    `redone` tells that it struck work under way: a task that Spark then ran again, or an epoch that the next
    driver did. Recovery is the time to the next committed epoch; catching up also covers what piled up.
    """

    victim: Victim
    ids: list[int]
    at: float
    epoch: int
    redone: bool = False
    recovered_at: float | None = None
    caught_up_at: float | None = None

    def facts(self) -> dict[str, Any]:
        """Give the kill as JSON values."""
        return {
            "victim": self.victim,
            "signal": "SIGKILL",
            "process_ids": self.ids,
            "after_epoch": self.epoch,
            "redone": self.redone,
            "recovery_s": None if self.recovered_at is None else round(self.recovered_at - self.at, 3),
            "caught_up_s": None if self.caught_up_at is None else round(self.caught_up_at - self.at, 3),
        }


@dataclass(kw_only=True)
class History:
    """The run so far."""

    fleet: Fleet
    began: float
    start: float | None = None
    committed: int = 0
    keys: int = 0
    epochs: list[EpochPoint] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    finished: bool = False

    @property
    def epoch(self) -> int:
        """Give the newest epoch heard of; 0 before the first."""
        return self.epochs[-1].epoch if self.epochs else 0

    def due(self, at: float) -> int:
        """Tell how many readings there were at a moment, read or not."""
        return 0 if self.start is None else max(0, min(self.fleet.rows, int((at - self.start) * self.fleet.rate)))

    def rows_per_s(self, now: float, over_s: float = 3.0) -> float:
        """Give the pace of the last few seconds."""
        return sum(epoch.rows for epoch in self.epochs if epoch.at > now - over_s) / over_s

    def committed_since(self, at: float) -> int:
        """Count the epochs committed after a moment."""
        return sum(epoch.at > at for epoch in self.epochs)

    def took_up(self, start: float, committed: int) -> None:
        """Learn that a driver has begun, and where."""
        self.start = start
        # Not what was heard of: a driver can die between committing an epoch and saying so.
        self.committed = committed

    def add(self, epoch: int, rows: int, at: float, duration_ms: float, keys: int) -> None:
        """Learn of a committed epoch."""
        self.committed += rows
        self.keys = max(self.keys, keys)
        self.epochs.append(EpochPoint(epoch, rows, at, duration_ms, self.committed))
        caught_up = self.committed >= min(self.fleet.rows, self.due(at) - self.fleet.rate * _CLOSE_S)
        for kill in self.kills:
            if at > kill.at:
                kill.recovered_at = kill.recovered_at or at
                kill.caught_up_at = kill.caught_up_at or (at if caught_up else None)

    def facts(self) -> dict[str, Any]:
        """Give what the run amounts to, as JSON values."""
        times = sorted(epoch.duration_ms for epoch in self.epochs)
        percentiles = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else times * 99
        return {
            "epochs_seen": len(times),
            "epoch_ms": {"p50": round(percentiles[49], 1), "p99": round(percentiles[98], 1)} if times else None,
            "kills": [kill.facts() for kill in self.kills],
        }
