"""What can happen to a migration, and what it may want done: all that goes into its machine, and comes out of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ferryman._migrate.plan import Plan


@dataclass(frozen=True)
class Prepared:
    """The layouts to come are ready; the plan is now the one that fits the hosts they are on."""

    plan: Plan


@dataclass(frozen=True)
class Arrived:
    """The mains of groups are at their new places; or they will be rebuilt there from the checkpoint."""

    groups: frozenset[int]


@dataclass(frozen=True)
class Failed:
    """Groups cannot be copied."""

    groups: frozenset[int]
    reason: str


@dataclass(frozen=True)
class GivenUp:
    """Somebody wants the plan to be given up."""

    reason: str


@dataclass(frozen=True)
class EpochBegan:
    """An epoch has begun, with the assignment that the machine gave."""


@dataclass(frozen=True)
class EpochEnded:
    """The epoch under way was committed, or it failed."""

    committed: bool


Event = Prepared | Arrived | Failed | GivenUp | EpochBegan | EpochEnded


class Instruction(enum.Enum):
    """What a machine wants done, besides the copies that it lists."""

    # The next epoch is another than it would have been: it may be wanted now.
    EPOCH = "epoch"
    # The plan is over: what was made for it is of no use any more.
    RELEASE = "release"
