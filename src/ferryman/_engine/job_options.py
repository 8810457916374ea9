"""The options of a job, as `Ferry` has checked them: one record, of which each part of a job takes what it goes by.

What a user gets by default stands in `Ferry`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ferryman._migrate.options import ChangeOptions
from ferryman._scale.options import Autoscale
from ferryman._scale.pool_options import Pool


@dataclass(frozen=True, kw_only=True)
class EpochOptions:
    """What of a job's options its epochs go by; `Ferry` says what each of them means."""

    home: str | None
    fsync: bool
    express: bool
    clock: Callable[[], int] | None


@dataclass(frozen=True, kw_only=True)
class SnapshotOptions:
    """What of a job's options snapshots and retention go by; `Ferry` says what each of them means."""

    snapshot_every: int
    retain: int


@dataclass(frozen=True, kw_only=True)
class JobOptions(EpochOptions, SnapshotOptions, ChangeOptions):
    """What a user can choose for a job; `Ferry` says what each of them means.

    Attributes
    ----------
    idle_s
        After how many seconds without data an epoch comes by itself; None for never.
    autoscale
        How the job chooses its number of instances by itself; None for not at all.
    pool
        Which executors it asks Spark for; None for none.
    """

    groups: int | None
    idle_s: float | None
    store: str | None
    single_driver: bool
    autoscale: Autoscale | None
    pool: Pool | None
