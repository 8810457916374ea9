"""The list of the files that hold every table as of one epoch. JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferryman._model.json_values import MOST_GROUPS, file_name, label, listed, mapped, text, whole


@dataclass(frozen=True, kw_only=True)
class SnapshotFile:
    """Name one Parquet file of a snapshot: the folded state of a run of key groups.

    Attributes
    ----------
    decoded
        The bytes of its rows in memory; None in lists of earlier versions.
    """

    file: str
    first: int
    last: int
    rows: int
    bytes: int
    checksum: str
    decoded: int | None = None

    @classmethod
    def parse(cls, raw: Any) -> SnapshotFile:
        """Read a file's entry back from JSON."""
        file = cls(**mapped(raw, "a file"))
        file_name(file.file)
        for group in (file.first, file.last):
            whole(group, "a key group", high=MOST_GROUPS - 1)
        whole(file.rows, "rows")
        whole(file.bytes, "bytes")
        text(file.checksum, "checksum")
        if file.decoded is not None:
            whole(file.decoded, "decoded")
        return file


@dataclass(frozen=True)
class Snapshot:
    """List the files that hold every table as of one epoch."""

    epoch: int
    tables: Mapping[str, tuple[SnapshotFile, ...]]

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Snapshot:
        """Read a snapshot's list back from JSON."""
        files = {
            label(name, "table"): tuple(SnapshotFile.parse(file) for file in listed(ones, "files"))
            for name, ones in mapped(raw["tables"], "tables").items()
        }
        return cls(whole(raw["epoch"], "epoch"), files)

    @property
    def bytes(self) -> int:
        """Sum up the size of all files."""
        return sum(file.bytes for listed in self.tables.values() for file in listed)
