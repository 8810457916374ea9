"""What comes of a simulation: its epochs, what was decided, and the changes that were done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ferryman._scale.bottleneck import Finding
from ferryman._scale.decision import Decision
from ferryman._scale.epoch_metrics import EpochMetrics

# What is looked at of the rows of an epoch.
_PER_EPOCH = 101


@dataclass(frozen=True, kw_only=True)
class SimulatedEpoch:
    """One epoch: what it told, how long its oldest and its newest row took, and what was left in the source."""

    metrics: EpochMetrics
    late_s: float
    soon_s: float
    backlog: int


@dataclass(frozen=True, kw_only=True)
class SimulatedPlan:
    """A change of a simulated run: when it was asked for, how long it took, what moved between hosts."""

    asked_s: float
    took_s: float
    before: int
    after: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """What came of a simulation.

    Attributes
    ----------
    epochs
        All of them.
    decisions
        What the autoscaler decided, and what became of it.
    plans
        The changes that were done, those that were asked for and those that were decided.
    seconds
        How long it was.
    finding
        What held the job back in the end; None without an autoscaler.
    """

    epochs: tuple[SimulatedEpoch, ...]
    decisions: tuple[Decision, ...]
    plans: tuple[SimulatedPlan, ...]
    seconds: float
    finding: Finding | None = None

    @property
    def changes(self) -> list[Decision]:
        """List the decisions for another number of instances."""
        return [decision for decision in self.decisions if decision.changes]

    @property
    def instance_seconds(self) -> float:
        """Give for how long there were how many instances, summed up."""
        shown = [epoch.metrics for epoch in self.epochs]
        ends = [*[epoch.began_s for epoch in shown[1:]], self.seconds]
        return sum((end - epoch.began_s) * epoch.instances for epoch, end in zip(shown, ends, strict=True))

    def late_s(self, part: float = 0.99, since: float = 0.0, until: float = float("inf")) -> float:
        """Give how long this part of all rows took at the most, of those committed in a time."""
        some = [epoch for epoch in self.epochs if since <= epoch.metrics.ended_s < until and epoch.metrics.rows]
        if not some:
            return 0.0
        # The rows of an epoch came one after the other, so between its oldest and its newest they lie evenly.
        late = np.concatenate([np.linspace(epoch.soon_s, epoch.late_s, _PER_EPOCH) for epoch in some])
        order = np.argsort(late)
        passed = np.cumsum(np.repeat([epoch.metrics.rows for epoch in some], _PER_EPOCH)[order])
        return float(late[order][np.searchsorted(passed, part * passed[-1])])
