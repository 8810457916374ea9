"""A change of a running job as its user sees it: what it would take, and how it goes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ferryman._migrate.estimate import Took
from ferryman._migrate.machine import Migration, Phase, Plan
from ferryman._model.records import RoutingTable
from ferryman._routing.planning import Move, numbers
from ferryman._routing.sites import Places, Site

# Gives the table to get to, from the one there is and where the instances are, or are going to be.
Choice = Callable[[RoutingTable, Places], RoutingTable]


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
    _choose: Choice = field(repr=False)
    moved_bytes: int = 0
    # The groups whose rows waited for them, in the order in which they came.
    arrivals: list[int] = field(default_factory=list)
    ended_ms: int | None = None
    switched_epoch: int | None = None
    since_ms: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def took(self) -> Took | None:
        """Give what it took, if it is done."""
        if self._machine.phase is not Phase.DONE or self.ended_ms is None:
            return None
        # Where the new owner takes over first, it copies from then on.
        began = self.since_ms.get(Phase.COPY.value) or self.since_ms.get(Phase.SWITCH.value) or self.ended_ms
        copying = self.ended_ms - began
        return Took((self.ended_ms - self.requested_ms) / 1000, copying / 1000, self.moved_bytes)

    @property
    def phase(self) -> str:
        """Tell where it stands: prepare, copy, switch, release, done or aborted."""
        return self._machine.phase.value

    def chosen(self, plan: Plan, were: Sequence[str], are: Sequence[str], sites: tuple[Site, ...]) -> RoutingTable:
        """Choose again, now that the hosts of other instances are known, where it matters where these are."""
        if not sites:
            return plan.after
        hosts = tuple(are[number] for number in numbers(were, are))
        return self._choose(plan.before, Places((*hosts, *were[len(hosts) :]), sites, len(hosts)))

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
