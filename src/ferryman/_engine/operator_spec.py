"""What an operator is: all of it that does not change from epoch to epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from ferryman._operator.run.runner import Runner
from ferryman._state.keys import KeySchema
from ferryman._state.tables import TableSpec


@dataclass(frozen=True)
class TimeSpec:
    """Say what an operator has to do with time.

    Attributes
    ----------
    watermarks
        The watermarks that it reports to the driver: (name, column, delay in ms).
    late
        The column by which rows are late, if late rows are to be left out.
    due
        The table of what is due, if it has one.
    by_watermark
        Whether that is due by the watermark; else by the clock.
    since_ms
        Where the watermark stands before any row was seen, and below which it never is; None where there is none then.
    idle_ms
        After how long without a row the watermarks that it reports are not waited for; None for never.
    """

    watermarks: tuple[tuple[str, str, int], ...] = ()
    late: str | None = None
    due: str | None = None
    by_watermark: bool = False
    since_ms: int | None = None
    idle_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class OperatorSpec:
    """All that does not change from epoch to epoch: what an operator is."""

    name: str
    key: KeySchema
    input: pa.Schema
    tables: tuple[TableSpec, ...]
    output: pa.Schema
    runner: Runner
    time: TimeSpec = TimeSpec()
    dropped: tuple[str, ...] = ()
    sides: Mapping[str, pa.Schema] = field(default_factory=dict)

    @property
    def kept(self) -> tuple[TableSpec, ...]:
        """Give the tables that tasks keep; broadcast ones are the driver's."""
        return tuple(table for table in self.tables if not table.broadcast)

    @property
    def state(self) -> pa.Schema:
        """Give the columns of the first table: one row per key."""
        return self.tables[0].state
