"""How fast the line between hosts is, from what was copied last."""

from __future__ import annotations

from dataclasses import dataclass

# What is copied in no time tells nothing of the line.
_TELLING = 1 << 20


@dataclass(frozen=True)
class LineSpeed:
    """What a line carries: as much as it last did, and before anybody has seen it, what one usually does."""

    bytes_per_s: float = 200e6

    def after(self, size: int, took_s: float) -> LineSpeed:
        """Learn how long so many bytes took."""
        return LineSpeed(size / took_s) if size >= _TELLING and took_s > 0 else self
