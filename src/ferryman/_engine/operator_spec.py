"""What an operator is: all of it that does not change from epoch to epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from ferryman._operator.run.panes import Panes, Sessions
from ferryman._operator.run.runner import Runner
from ferryman._state.keys import KeySchema
from ferryman._state.tables import PANE, TableSpec


class Reported(NamedTuple):
    """A watermark that an operator reports to the driver.

    Attributes
    ----------
    column
        Where it reads the time: a row that has none there says nothing of this watermark.
    idle_ms
        After how long without a row it is not waited for; None for never.
    """

    name: str
    column: str
    delay_ms: int
    idle_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class TimeSpec:
    """Say what an operator has to do with time.

    Attributes
    ----------
    watermarks
        The watermarks that it reports to the driver.
    late
        The column by which rows are late, if late rows are to be left out.
    due
        The table of what is due, if it has one.
    by_watermark
        Whether that is due by the watermark; else by the clock.
    since_ms
        Where the watermark stands before any row was seen, and below which it never is; None where there is none then.
    panes
        The windows that it goes by, if it does; their panes come first in its key.
    """

    watermarks: tuple[Reported, ...] = ()
    late: str | None = None
    due: str | None = None
    by_watermark: bool = False
    since_ms: int | None = None
    panes: Panes | Sessions | None = None


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
    def routed(self) -> pa.Schema:
        """Give the columns by which rows go to instances: those of the key, but for the pane."""
        return pa.schema([field for field in self.key.fields if field.name != PANE])

    @property
    def state(self) -> pa.Schema:
        """Give the columns of the first table: one row per key."""
        return self.tables[0].state
