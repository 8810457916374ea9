"""The migration of one plan as a pure state machine: told what happened, it says what is to be done.

    prepare -> copy -> switch -> release -> done          aborted, from any phase before its switch commits

A group's main copy at its new place is a convenience: the checkpoint has everything at any time, so whatever is lost
on the way costs time and nothing else. What decides is the routing table that the manifest of an epoch commits.
Before that commit a plan can be aborted and was never there; after it, it is done and only tidies up.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ferryman._migrate.plan import Plan
from ferryman._migrate.plan_events import Arrived, EpochBegan, EpochEnded, Event, Failed, GivenUp, Instruction, Prepared
from ferryman._migrate.planning import Move
from ferryman._model.routing import RoutingTable


class Phase(enum.Enum):
    """Where a migration stands."""

    PREPARE = "prepare"
    COPY = "copy"
    SWITCH = "switch"
    RELEASE = "release"
    DONE = "done"
    ABORTED = "aborted"


OVER = (Phase.DONE, Phase.ABORTED)


@dataclass(frozen=True)
class Assignment:
    """Who owns what in an epoch, and whose rows wait in it.

    Attributes
    ----------
    table
        Who owns what.
    held
        The groups whose rows are kept for later.
    """

    table: RoutingTable
    held: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Migration:
    """Where a plan stands.

    Attributes
    ----------
    plan
        The plan.
    phase
        The phase it is in.
    table
        The routing table of the newest committed epoch.
    step
        The step under way.
    prepared
        Whether the layouts to come are ready.
    arrived
        The groups that need not be waited for any more: their main is at its new place, or it cannot be had and will
        be rebuilt there. So will one that is gone again with its host before the switch.
    running
        The assignment of the epoch under way, if one is.
    aborting
        Whether somebody asked to give up.
    reason
        Why it was given up.
    """

    plan: Plan
    phase: Phase
    table: RoutingTable
    step: int = 0
    prepared: bool = False
    arrived: frozenset[int] = frozenset()
    running: Assignment | None = None
    aborting: bool = False
    reason: str = ""

    @classmethod
    def of(cls, plan: Plan) -> Migration:
        """Begin a plan."""
        return cls(plan=plan, phase=Phase.PREPARE, table=plan.before)

    # -- what is to be done ------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Tell whether nothing is left to do."""
        return self.phase in OVER

    @property
    def stopped(self) -> bool:
        """Tell whether no epoch may begin."""
        return self.phase is Phase.COPY and self.plan.strategy.waits == "everything"

    def to_copy(self) -> tuple[Move, ...]:
        """List the moves whose state is to be copied now."""
        # Where the new owner takes over first, from the epoch on that hands over: the old one has done its last row.
        # A plan that is given up in that epoch has nothing to copy until it is known whether the epoch commits.
        # What was lost has no old owner.
        begun = self._switching or bool(self.plan.lost)
        over = self.phase is Phase.RELEASE or (self.phase is Phase.SWITCH and begun and not self.aborting)
        if self.phase is Phase.COPY or (over and self.plan.strategy.switches_first):
            return tuple(move for move in self._moving() if move.group not in self.arrived)
        return ()

    def to_release(self) -> tuple[Move, ...]:
        """List the moves whose old main copy is of no use any more."""
        return tuple(move for step in self.plan.steps[: self.step] for move in step)

    def assignment(self) -> Assignment:
        """Give the assignment of the epoch that is about to begin."""
        if self.phase is Phase.SWITCH:
            switched = self._with_step()
            if self.plan.strategy.switches_first:
                return Assignment(switched, self._missing())
            return Assignment(switched)
        if self.phase is Phase.COPY and self.plan.strategy.waits == "moving":
            return Assignment(self.table, frozenset(move.group for move in self._moving()))
        if self.phase is Phase.RELEASE and self.plan.strategy.switches_first:
            return Assignment(self.table, self._missing())
        if self.phase is Phase.PREPARE:
            return Assignment(self.table, self.plan.lost)
        return Assignment(self.table)

    # -- what happened -----------------------------------------------------------------------------

    def handle(self, event: Event) -> tuple[Migration, tuple[Instruction, ...]]:
        """Learn what happened; give the machine after it, and what is to be done because of it."""
        after = self.after(event)
        wanted = []
        # What waits is only known when an epoch has ended.
        if isinstance(event, EpochEnded) or after.over != self.over or after.assignment() != self.assignment():
            wanted.append(Instruction.EPOCH)
        if after.over and not self.over:
            wanted.append(Instruction.RELEASE)
        return after, tuple(wanted)

    def after(self, event: Event) -> Migration:
        """Give the machine after something happened."""
        match event:
            case Prepared(plan):
                return replace(self, plan=plan, prepared=True)._settled()
            case Arrived(groups):
                return self if self.over else replace(self, arrived=self.arrived | groups)._settled()
            case Failed(groups, reason):
                # Where they have switched already they are rebuilt from the checkpoint.
                return self.after(Arrived(groups) if self.phase is Phase.RELEASE else GivenUp(reason))
            case GivenUp(reason):
                over = self.over or self.phase is Phase.RELEASE
                return self if over else replace(self, aborting=True, reason=reason)._settled()
            case EpochBegan():
                return replace(self, running=self.assignment())
            case EpochEnded(committed):
                return self._ended(committed)

    def _ended(self, committed: bool) -> Migration:
        assert self.running is not None, "an epoch ends after it began"
        table = self.running.table if committed else self.table
        switched = table.version != self.table.version
        ended = replace(self, running=None, table=table)
        if switched:
            ended = replace(ended, step=self.step + 1, phase=ended._after_switch(self.step + 1))
            if ended.phase is Phase.RELEASE:
                # Too late to give up.
                ended = replace(ended, aborting=False, reason="")
        return ended._settled()

    # -- inside ------------------------------------------------------------------------------------

    def _after_switch(self, step: int) -> Phase:
        return Phase.RELEASE if step == len(self.plan.steps) else Phase.COPY

    def _settled(self) -> Migration:
        """Go on as far as what has happened allows."""
        if self.over:
            return self
        if self.aborting and self.phase is not Phase.RELEASE:
            # The epoch under way decides: what it commits cannot be taken back.
            return self if self._switching else replace(self, phase=Phase.ABORTED)
        if self.phase is Phase.PREPARE and self.prepared:
            return replace(self, phase=Phase.SWITCH if self.plan.strategy.switches_first else Phase.COPY)._settled()
        later = self.plan.strategy.switches_first
        if self.phase is Phase.COPY and not self._missing():
            return replace(self, phase=Phase.SWITCH)
        if self.phase is Phase.RELEASE and not (later and self._missing()) and self.running is None:
            return replace(self, phase=Phase.DONE)
        return self

    @property
    def _switching(self) -> bool:
        """Tell whether the epoch under way, if it commits, hands over."""
        return self.running is not None and self.running.table.version != self.table.version

    def _moving(self) -> tuple[Move, ...]:
        """List the moves of the step under way; after the last, all."""
        return self.plan.steps[self.step] if self.step < len(self.plan.steps) else self.plan.moves

    def _missing(self) -> frozenset[int]:
        return frozenset(move.group for move in self._moving()) - self.arrived

    def _with_step(self) -> RoutingTable:
        """Give the table after the step under way; after the last it is the plan's own, and only then pins change."""
        last = self.step + 1 == len(self.plan.steps)
        if last:
            return replace(self.plan.after, version=self.table.version + 1)
        owner = list(self.table.owner)
        for move in self.plan.steps[self.step]:
            owner[move.group] = move.target
        # Between two numbers of instances there are as many as in the larger.
        instances = max(self.plan.before.instances, self.plan.after.instances)
        return RoutingTable(self.table.version + 1, instances, tuple(owner), self.table.pins)


def replay(start: Migration, events: Iterable[Event]) -> Migration:
    """Give the machine that events lead to; the same one every time, whatever else went on when they came."""
    machine = start
    for event in events:
        machine = machine.after(event)
    return machine
