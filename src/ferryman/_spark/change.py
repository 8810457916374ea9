"""A change of a running job as its user sees it: what it would take, and how it goes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ferryman._migrate.machine import Migration, Phase
from ferryman._routing.planning import Move


@dataclass(frozen=True)
class Preview:
    """What a plan would do.

    Attributes
    ----------
    instances
        How many instances there are, and how many there would be.
    moves
        The key groups, and the single keys, that would move.
    bytes
        About how much state that is, as it lies in the checkpoint.
    load
        The part of all rows that the fullest instance gets, now and then; 1 / instances is perfect.
    """

    instances: tuple[int, int]
    moves: tuple[Move, ...]
    bytes: int
    load: tuple[float, float]

    def __str__(self) -> str:
        before, after = self.instances
        head = f"{before} instances" if before == after else f"{before} -> {after} instances"
        fullest = f"the fullest instance gets {self.load[0]:.0%} of the rows now, {self.load[1]:.0%} then"
        keys = sum(bool(move.key) for move in self.moves)
        what = f"{len(self.moves) - keys} key groups" + (f" and {keys} single keys" if keys else "")
        return f"{head}: {what} move, about {self.bytes:,} bytes of state; {fullest}"


@dataclass
class Reconfiguration:
    """A plan under way, or over; `Job.rescale`, `move` and `rebalance` give it."""

    kind: str
    preview: Preview
    strategy: str
    requested_ms: int
    _machine: Migration
    _changed: threading.Condition = field(repr=False)
    _abort: Callable[[str], None] = field(repr=False)
    moved_bytes: int = 0
    # The groups whose rows waited for them, in the order in which they came.
    arrivals: list[int] = field(default_factory=list)
    ended_ms: int | None = None
    switched_epoch: int | None = None

    @property
    def phase(self) -> str:
        """Tell where it stands: prepare, copy, switch, release, done or aborted."""
        return self._machine.phase.value

    @property
    def over(self) -> bool:
        """Tell whether it is done or aborted."""
        return self._machine.over

    @property
    def reason(self) -> str:
        """Tell why it was aborted."""
        return self._machine.reason

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; tell whether everything is where it should be."""
        with self._changed:
            self._changed.wait_for(lambda: self.over, timeout)
        return self._machine.phase is Phase.DONE

    def abort(self) -> None:
        """Give up; a plan whose switch is committed goes on to its end."""
        self._abort("asked to")

    def facts(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return {
            "kind": self.kind,
            "strategy": self.strategy,
            "phase": self.phase,
            "reason": self.reason,
            "instances": list(self.preview.instances),
            "moves": sum(not move.key for move in self.preview.moves),
            "keys": [move.key for move in self.preview.moves if move.key],
            "bytes": self.preview.bytes,
            "moved_bytes": self.moved_bytes,
            "requested_ms": self.requested_ms,
            "duration_ms": None if self.ended_ms is None else self.ended_ms - self.requested_ms,
            "switched_epoch": self.switched_epoch,
        }
