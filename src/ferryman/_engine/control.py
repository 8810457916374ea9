"""What the tasks of an operator must know of one epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ferryman._migrate.keepers import Keepers
from ferryman._model.delta import DeltaRef
from ferryman._model.held_rows import HeldRows


@dataclass(frozen=True, kw_only=True)
class Control:
    """What an instance must know of this epoch; travels with the function, in-band with the data."""

    epoch: int
    run_id: str
    checkpoint: str
    fsync: bool
    home: str | None
    owner: tuple[int, ...]
    tokens: tuple[int, ...]
    newest: Mapping[str, tuple[DeltaRef, ...]] | None
    newest_same_routing: bool
    time_ms: int = 0
    watermark_ms: int | None = None
    late_ms: int | None = None
    due_ms: int | None = None
    broadcasts: Mapping[str, bytes] = field(default_factory=dict)
    first: bool = False
    held: frozenset[int] = frozenset()
    waiting: tuple[HeldRows, ...] = ()
    pinned: Mapping[int, int] = field(default_factory=dict)
    files: tuple[int, ...] = ()
    keepers: Keepers | None = None
