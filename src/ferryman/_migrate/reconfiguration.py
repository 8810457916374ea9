"""A change of a running job as its user sees it: what it would take, and how it goes."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ferryman._migrate.machine import OVER, Migration, Phase
from ferryman._migrate.planning import Move
from ferryman._migrate.time_estimate import Took


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a plan would do.

    Attributes
    ----------
    instances
        How many instances there are, and how many there would be.
    moves
        The key groups, and the single keys, that would move.
    bytes
        About how much state that is, uncompressed.
    load
        The part of all load that the fullest instance bears, now and then; 1 / instances is perfect.
    between
        About how much state comes to another host; instances of one host share theirs.
    seconds
        About how long it takes, going by earlier changes of the run.
    by
        What load is measured in: rows, busy (time spent on them) or bytes of state.
    """

    instances: tuple[int, int]
    moves: tuple[Move, ...]
    bytes: int
    load: tuple[float, float]
    between: int = 0
    seconds: float = 0.0
    by: str = "rows"

    def __str__(self) -> str:
        before, after = self.instances
        head = f"{before} instances" if before == after else f"{before} -> {after} instances"
        what = {"rows": "gets {} of the rows", "busy": "does {} of the work", "bytes": "has {} of the state"}[self.by]
        fullest = f"the fullest instance {what.format(f'{self.load[0]:.0%}')} now, {self.load[1]:.0%} then"
        keys = sum(bool(move.key) for move in self.moves)
        what = f"{len(self.moves) - keys} key groups" + (f" and {keys} single keys" if keys else "")
        state = f"about {self.bytes:,} bytes of state, {self.between:,} of them to another host"
        return f"{head}: {what} move, {state}, in about {self.seconds:.1f} s; {fullest}"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(kw_only=True)
class Reconfiguration:
    """A plan under way, or over, as far as this was told; `Job.rescale`, `move` and `rebalance` give it."""

    kind: str
    preview: Preview
    strategy: str
    _changed: threading.Condition = field(repr=False)
    _abort: Callable[[str], None] = field(repr=False)
    requested_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    moved_bytes: int = 0
    # The groups whose rows waited for them, in the order in which they came.
    arrivals: list[int] = field(default_factory=list)
    ended_ms: int | None = None
    switched_epoch: int | None = None
    since_ms: dict[str, int] = field(default_factory=dict, repr=False)
    _phase: Phase = Phase.PREPARE
    _reason: str = ""

    def show(self, machine: Migration) -> None:
        """Be told where it stands."""
        now_ms = time.time_ns() // 1_000_000
        self._phase, self._reason = machine.phase, machine.reason
        self.since_ms.setdefault(self.phase, now_ms)
        if machine.over and self.ended_ms is None:
            self.ended_ms = now_ms

    @property
    def took(self) -> Took | None:
        """Give what it took, if it is done."""
        if self._phase is not Phase.DONE or self.ended_ms is None:
            return None
        # Where the new owner takes over first, it copies from then on.
        began = self.since_ms.get(Phase.COPY.value) or self.since_ms.get(Phase.SWITCH.value) or self.ended_ms
        copying = self.ended_ms - began
        return Took((self.ended_ms - self.requested_ms) / 1000, copying / 1000, self.moved_bytes)

    @property
    def phase(self) -> str:
        """Tell where it stands: prepare, copy, switch, release, done or aborted."""
        return self._phase.value

    @property
    def over(self) -> bool:
        """Tell whether it is done or aborted."""
        return self._phase in OVER

    @property
    def reason(self) -> str:
        """Tell why it was aborted."""
        return self._reason

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; tell whether everything is where it should be."""
        with self._changed:
            self._changed.wait_for(lambda: self.over, timeout)
        return self._phase is Phase.DONE

    def abort(self) -> None:
        """Give up; a plan whose switch is committed goes on to its end."""
        self._abort("asked to")

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.kind}, {self.strategy}: {self.phase}{why}; {self.preview}"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

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
