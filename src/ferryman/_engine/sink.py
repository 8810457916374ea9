"""What the engine and the sinks of a job have to do with each other.

A sink writes before the manifest and is told afterwards that the epoch is committed. What it returns
from `write` stands in the manifest, so after a crash `commit` can be said again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

import pyarrow as pa


@dataclass(frozen=True)
class SinkStart:
    """What a sink learns when a run of its job begins.

    Attributes
    ----------
    epoch
        The epoch that the job has committed last; 0: none.
    term
        The run's number, greater than that of any run before. What a sink keeps of a run with a greater one must not
        be touched: this run has been taken over.
    fsync
        Whether what is written has to survive a power cut.
    written
        What this sink returned from `write` in the last committed epoch; empty if it was not there.
    written_in
        Gives what it returned in any epoch, as the checkpoint says now: None where that epoch is not committed, is
        forgotten, or was without this sink.
    """

    epoch: int
    term: int
    fsync: bool = False
    written: Mapping[str, Any] = field(default_factory=dict)
    written_in: Callable[[int], Mapping[str, Any] | None] = lambda epoch: None


class Sink(Protocol):
    """Take the rows of an epoch.

    Attributes
    ----------
    whole
        Whether `write` runs exactly one action over all rows, so that the engine need not keep them; a sink that may
        look at the rows twice, or only at some, gets rows that are already computed.
    beside
        Whether `write`, if it is `whole`, may be called on a thread of its own while others write. Only what the sink's
        own class says counts, as who derives from it may do anything in what it calls. May be left out: then it is
        called on the epoch's own thread, after those, in the order of outputs.
    skips_silence
        Whether `write` is left out in a silent epoch that has no rows. What the sink wrote last stands in its manifest
        too. A sink that does not say is left out unless it is `whole`.
    label
        What the sink is called in the manifests, from `claim` on. It is the sink's own and stays, however its place
        is written or wherever that is moved to; the next run finds by it what it has to say again.
    told
        Whether rows are only shown when the sink is told that their epoch is committed. If so, a job that ended
        before that does not start without the sink.
    """

    whole: bool
    skips_silence: bool
    label: str
    told: bool

    def claim(self, job_id: str) -> int:
        """Learn whose rows come, and refuse to mix them with another's; give the greatest term known here, or 0."""

    def begin(self, start: SinkStart) -> None:
        """Learn that a run begins, and where its job stands."""

    def write(self, rows: Any, epoch: int) -> dict[str, Any]:
        """Write the rows of an epoch; return what `commit` will need."""

    def commit(self, epoch: int, written: dict[str, Any]) -> None:
        """Learn that the epoch is committed; may be said more than once, by several runs."""


class TableSink(Sink, Protocol):
    """A sink that takes the rows of a small epoch as they are: in the driver, with no DataFrame made of them."""

    def write_table(self, rows: pa.Table, epoch: int) -> dict[str, Any]:
        """Do as `write` does."""


def takes_tables(sink: Sink) -> TypeGuard[TableSink]:
    """Tell whether a sink takes tables; one that only inherits how, and writes in another way, does not."""
    writer = next((kind for kind in type(sink).__mro__ if "write" in vars(kind)), object)
    return "write_table" in vars(writer)


def writes_beside(sink: Sink) -> bool:
    """Tell whether a sink writes beside others; one that only inherits that, or was given another way, does not."""
    return sink.whole and bool(vars(type(sink)).get("beside", False)) and "write" not in vars(sink)


def let_go(sink: Sink) -> None:
    """Have a sink let go of what it holds, such as a connection, if it says that it does by having `let_go`."""
    ends = getattr(sink, "let_go", None)
    if ends is not None:
        ends()


def skips_silence(sink: Sink) -> bool:
    """Tell whether a sink is left out in a silent epoch without rows; one of before it could say so, if not `whole`."""
    return bool(getattr(sink, "skips_silence", not sink.whole))
