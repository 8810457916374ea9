"""How an epoch went, as `job.progress()` tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EpochProgress:
    """Tell how an epoch went.

    `time_ms` is the epoch's own time, the same when it is redone after a kill; `back_ms` by how much it is behind that
    of the epoch before, where the clock was far ahead then and was put right; `committed_ms` is the clock's when
    its manifest was written. Both in milliseconds since 1970.
    """

    epoch: int
    batch: int
    silent: bool
    rows: int
    output: int
    keys: int
    duration_ms: float
    busy_ms: float
    delta_bytes: int
    time_ms: int
    committed_ms: int
    watermark_ms: int | None
    operators: Mapping[str, Mapping[str, Any]]
    back_ms: int = 0
