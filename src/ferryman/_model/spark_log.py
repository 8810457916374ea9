"""What a manifest keeps of Spark's own log. Frozen, JSON in and out, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ferryman._model.json_values import mapped, text, whole


@dataclass(frozen=True)
class SparkLog:
    """Keep what of Spark's own log an epoch rests on, so that it can be written again.

    Attributes
    ----------
    offsets
        The text of Spark's offsets files of the two newest micro-batches, by batch.
    metadata
        The text of the file with the query's id.

    Examples
    --------
    >>> log = SparkLog({7: "v1"}, "{}")
    >>> SparkLog.parse(log.json()) == log
    True
    """

    offsets: Mapping[int, str] = field(default_factory=dict)
    metadata: str = ""

    def json(self) -> dict[str, Any]:
        """Write it as JSON values."""
        return {"offsets": {str(batch): text for batch, text in self.offsets.items()}, "metadata": self.metadata}

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> SparkLog:
        """Read it back from JSON; an earlier version kept nothing."""
        kept = mapped(raw.get("offsets", {}), "offsets").items()
        offsets = {whole(int(batch), "a batch"): text(written, "offsets") for batch, written in kept}
        return cls(offsets, text(raw.get("metadata", ""), "metadata"))
