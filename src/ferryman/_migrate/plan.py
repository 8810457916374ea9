"""A plan: what is to become of a routing table, and how."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ferryman._migrate.planning import Move, moves
from ferryman._migrate.strategies import RESTORE, Strategy, steps_of
from ferryman._model.routing import RoutingTable


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to become of a routing table, and how.

    Attributes
    ----------
    before, after
        The tables.
    strategy
        How to get from one to the other.
    steps
        The moves, in groups that switch together.
    lost
        The groups whose host was lost: no task works on them there, so their rows wait from the beginning.
    kept
        The state hosts that still have some of these, as their hosts are only about to go.
    open
        The hosts that instances may be on in the end; None for those that they may be on now.
    """

    before: RoutingTable
    after: RoutingTable
    strategy: Strategy
    steps: tuple[tuple[Move, ...], ...]
    lost: frozenset[int] = frozenset()
    kept: Mapping[int, str] = field(default_factory=dict, hash=False)
    open: frozenset[str] | None = None

    @classmethod
    def of(cls, before: RoutingTable, after: RoutingTable, strategy: Strategy) -> Plan:
        """Plan all that has to move between two tables."""
        return cls(before=before, after=after, strategy=strategy, steps=steps_of(moves(before, after), strategy))

    @classmethod
    def of_lost(cls, before: RoutingTable, after: RoutingTable, lost: Collection[int]) -> Plan:
        """Plan to restore groups at their owners of another table; of what is not lost, nothing moves."""
        step = tuple(Move(group, before.owner[group], after.owner[group]) for group in sorted(lost))
        return cls(before=before, after=after, strategy=RESTORE, steps=(step,), lost=frozenset(lost))

    @property
    def moves(self) -> tuple[Move, ...]:
        """List all moves."""
        return tuple(move for step in self.steps for move in step)
