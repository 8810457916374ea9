"""A plan: what is to become of a routing table, and how."""

from __future__ import annotations

from dataclasses import dataclass

from ferryman._migrate.planning import Move, moves
from ferryman._migrate.strategies import Strategy, steps_of
from ferryman._model.routing import RoutingTable


@dataclass(frozen=True)
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
    """

    before: RoutingTable
    after: RoutingTable
    strategy: Strategy
    steps: tuple[tuple[Move, ...], ...]

    @classmethod
    def of(cls, before: RoutingTable, after: RoutingTable, strategy: Strategy) -> Plan:
        """Plan all that has to move between two tables."""
        return cls(before, after, strategy, steps_of(moves(before, after), strategy))

    @property
    def moves(self) -> tuple[Move, ...]:
        """List all moves."""
        return tuple(move for step in self.steps for move in step)
