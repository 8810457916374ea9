"""What waits for key groups that are on their way: the rows that epochs have really held back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ferryman._model.manifest import Manifest


@dataclass(frozen=True)
class Backlog:
    """The rows that wait after an epoch.

    Attributes
    ----------
    rows
        How many wait, by key group.
    since
        When the first of them came, in seconds, by key group.
    """

    rows: Mapping[int, int] = field(default_factory=dict)
    since: Mapping[int, float] = field(default_factory=dict)

    def after(self, manifest: Manifest) -> Backlog:
        """Give what waits after the next epoch."""
        rows: dict[int, int] = {}
        for held in (held for parts in manifest.held.values() for held in parts):
            for group, some in zip(held.groups, held.rows, strict=True):
                rows[group] = rows.get(group, 0) + some
        now = manifest.time_ms / 1000
        return Backlog(rows, {group: self.since.get(group, now) for group in rows})

    @property
    def groups(self) -> frozenset[int]:
        """List the groups that have rows waiting."""
        return frozenset(self.rows)
