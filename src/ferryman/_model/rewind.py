"""The note of a rewind that is under way, by which it is finished whatever happens. JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ferryman._model.json_values import mapped, text, whole
from ferryman._model.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class Rewind:
    """Go back to an epoch.

    Attributes
    ----------
    to
        The epoch whose state comes back.
    newest
        The newest epoch there was, or should have been.
    sinks
        Where the Parquet sinks are that take back what came later, by their names in manifests.
    moved
        The manifest of the epoch after, where the source goes on from where it is: nothing but its offsets has moved.
    """

    to: int
    newest: int
    sinks: Mapping[str, str] = field(default_factory=dict)
    moved: Manifest | None = None

    @property
    def last(self) -> int:
        """Give the newest epoch there is afterwards."""
        return self.to if self.moved is None else self.moved.epoch

    def json(self) -> dict[str, Any]:
        """Write it as JSON values."""
        moved = None if self.moved is None else self.moved.json()
        return {"to": self.to, "newest": self.newest, "sinks": dict(self.sinks), "moved": moved}

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Rewind:
        """Read it back from JSON."""
        to = whole(raw["to"], "to", low=1)
        moved = None if raw["moved"] is None else Manifest.parse(mapped(raw["moved"], "moved"))
        if moved is not None and moved.epoch != to + 1:
            raise ValueError("moved is not the epoch after")
        sinks = {text(name, "a sink"): text(path, "path") for name, path in mapped(raw["sinks"], "sinks").items()}
        return cls(to=to, newest=whole(raw["newest"], "newest"), sinks=sinks, moved=moved)
