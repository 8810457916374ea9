"""What can happen to an autoscaler, and what it may want done: all that goes into its machine, and comes out of it."""

from __future__ import annotations

from dataclasses import dataclass

from ferryman._scale.decision import Decision
from ferryman._scale.epoch_metrics import EpochMetrics


@dataclass(frozen=True)
class Committed:
    """An epoch was committed, and tells this."""

    metrics: EpochMetrics


@dataclass(frozen=True)
class Quiet:
    """It is so late, and no epoch has begun since the last one."""

    at_s: float
    time_ms: int


@dataclass(frozen=True)
class Behind:
    """The source has so many rows that no epoch has taken yet."""

    at_s: float
    rows: int


@dataclass(frozen=True)
class Changed:
    """The change that was wanted is done; it took so long, and so many bytes went from host to host."""

    at_s: float
    took_s: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class Refused:
    """The change that was wanted cannot be, or was given up."""

    at_s: float
    why: str


@dataclass(frozen=True)
class Fewer:
    """There are executors only for so many instances, and not for all that were wanted."""

    at_s: float
    instances: int
    why: str


Event = Committed | Quiet | Behind | Changed | Refused | Fewer


@dataclass(frozen=True)
class Rescale:
    """Change the number of instances, if no more than so many bytes have to go from host to host for it."""

    instances: int
    most_bytes: int | None = None


@dataclass(frozen=True)
class Keep:
    """Keep a decision, for whoever asks."""

    decision: Decision


Instruction = Rescale | Keep
