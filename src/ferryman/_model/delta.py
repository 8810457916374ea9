"""The name of one delta: the changes of one table by one instance in one epoch. JSON in and out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ferryman._model.json_values import MOST_GROUPS, file_name, mapped, text, whole


@dataclass(frozen=True)
class DeltaRef:
    """Name one delta: the changes of one table by one instance in one epoch."""

    file: str
    instance: int
    rows: int
    bytes: int
    checksum: str

    @classmethod
    def parse(cls, raw: Any) -> DeltaRef:
        """Read a reference back from JSON."""
        ref = cls(**mapped(raw, "a delta"))
        file_name(ref.file)
        whole(ref.instance, "instance", high=MOST_GROUPS - 1)
        whole(ref.rows, "rows")
        whole(ref.bytes, "bytes")
        text(ref.checksum, "checksum")
        return ref
