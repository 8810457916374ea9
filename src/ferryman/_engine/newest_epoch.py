"""The newest committed epoch of a job, as whoever runs it remembers it, and what the next one goes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferryman._model.delta import DeltaRef
from ferryman._model.held_rows import HeldRows
from ferryman._model.lookup_version import LookupVersion
from ferryman._model.manifest import Manifest, OperatorRecord
from ferryman._model.spark_log import SparkLog
from ferryman._model.watermarks import Watermarks


class Newest:
    """Remember the newest committed epoch; before the first there is nothing in it.

    Examples
    --------
    >>> newest = Newest(None)
    >>> newest.epoch, newest.next, newest.batch, newest.time_ms
    (0, 1, -1, None)
    """

    def __init__(self, manifest: Manifest | None) -> None:
        self.manifest = manifest

    @property
    def epoch(self) -> int:
        """Give its number; 0 before the first."""
        return self.manifest.epoch if self.manifest else 0

    @property
    def next(self) -> int:
        """Give the number of the epoch after it."""
        return self.epoch + 1

    @property
    def batch(self) -> int:
        """Give the last micro-batch of Spark's that it covers; -1: none."""
        return self.manifest.batch if self.manifest else -1

    @property
    def time_ms(self) -> int | None:
        """Give its time."""
        return self.manifest.time_ms if self.manifest else None

    @property
    def watermarks(self) -> Watermarks:
        """Give the watermarks after it."""
        return self.manifest.watermarks if self.manifest else Watermarks()

    @property
    def operators(self) -> Mapping[str, OperatorRecord]:
        """Give what each operator did in it."""
        return self.manifest.operators if self.manifest else {}

    @property
    def held(self) -> Mapping[str, tuple[HeldRows, ...]]:
        """Give the rows that wait after it, by operator."""
        return self.manifest.held if self.manifest else {}

    @property
    def lookups(self) -> Mapping[str, LookupVersion]:
        """Give the versions of tables that it looked up."""
        return self.manifest.lookups if self.manifest else {}

    @property
    def covered(self) -> tuple[tuple[Any, ...], SparkLog]:
        """Give the source's offsets it ends with, and what Spark wrote of them."""
        return (self.manifest.offsets, self.manifest.spark) if self.manifest else ((), SparkLog())

    def deltas(self, table: str) -> tuple[DeltaRef, ...]:
        """Give its deltas of a table."""
        return self.manifest.tables.get(table, ()) if self.manifest else ()
