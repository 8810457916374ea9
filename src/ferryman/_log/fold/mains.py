"""Make a snapshot of main copies, where the deltas it would be folded from are damaged.

Tasks move main copies on while they are read. So they are taken one by one into a store of our own, as a standby takes
them, and brought to one epoch there by the deltas since, which are younger than what is damaged. Calls `advance`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.advance import advance
from ferryman._log.fold.fold import LoggedTable, fold
from ferryman._log.fold.snapshot import files_of_rows, write_snapshot_with
from ferryman._model.card import JobCard
from ferryman._model.errors import StaleTask
from ferryman._model.snapshot import Snapshot
from ferryman._state import store as stores
from ferryman._state.store import Store

# A main copy that moves on while it is read is read again, so often.
_TRIES = 20


class Mains(Protocol):
    """Main copies that somebody has."""

    def scratch(self) -> Path:
        """Give a directory on the same disk, for a while."""

    def stores(self) -> contextlib.AbstractContextManager[dict[str, Store]]:
        """Open the stores that they are in, by table."""

    def whole(self) -> Mapping[str, tuple[pa.Table, int]]:
        """Give tables that the driver has whole, each as of a committed epoch."""


def main_of(store: Store, group: int) -> tuple[pa.Table | None, int]:
    """Read a main that tasks may be moving on; nothing and -1 where there is none."""
    for _ in range(_TRIES):
        epoch = int(store.epochs()[group])
        if epoch < 0:
            break
        with contextlib.suppress(StaleTask):
            return store.scan(group, epoch), epoch
    return None, -1


def write_snapshot_of_mains(checkpoint: Checkpoint, card: JobCard, mains: Mains) -> Snapshot:
    """Write a snapshot of the newest epoch from main copies; tables that have none are folded as always."""
    with tempfile.TemporaryDirectory(dir=mains.scratch(), prefix="mending-") as place, mains.stores() as opened:
        tables = {
            name: LoggedTable.of(name, card.tables[name], card.groups)
            for name in opened
            if name in card.tables and not card.tables[name].dropped
        }
        with _copies(tables, Path(place)) as copies:
            for name, copy in copies.items():
                for group in range(card.groups):
                    part, at = main_of(opened[name], group)
                    if part is not None:
                        copy.ingest(part, np.array([group]), at)
            # Before the newest epoch, which is none before theirs then.
            driver = mains.whole()
            latest = checkpoint.latest()
            assert latest is not None, "there are main copies only of committed epochs"
            for name, copy in copies.items():
                _bring(checkpoint, tables[name], copy, latest.epoch)
            files = {
                name: files_of_rows(checkpoint, tables[name], latest.epoch, _scanned(copy, latest.epoch, card.groups))
                for name, copy in copies.items()
            }
            for name, (rows, at) in driver.items():
                if name in card.tables and not card.tables[name].dropped:
                    table = LoggedTable.of(name, card.tables[name], card.groups)
                    rows = _brought(checkpoint, table, rows, at, latest.epoch)
                    files[name] = files_of_rows(checkpoint, table, latest.epoch, [(0, rows)])
            return write_snapshot_with(checkpoint, latest.epoch, card, files)


@contextlib.contextmanager
def _copies(tables: dict[str, LoggedTable], place: Path) -> Iterator[dict[str, Store]]:
    with contextlib.ExitStack() as opened:
        yield {
            name: opened.enter_context(
                contextlib.closing(stores.open("lmdb", place / name, table.key, table.state, table.total))
            )
            for name, table in tables.items()
        }


def _bring(checkpoint: Checkpoint, table: LoggedTable, copy: Store, to: int) -> None:
    """Bring all copies to one epoch; those that are furthest behind first come up with the next."""
    for step in [*np.unique(copy.epochs())[1:].tolist(), to]:
        at = copy.epochs()
        advance(
            copy,
            checkpoint,
            table.name,
            np.flatnonzero((at < step) & ((at >= 0) | (step == to))),
            step,
            key=table.key,
            state=table.state,
            total=table.total,
            evolution=table.evolution,
        )


def _brought(checkpoint: Checkpoint, table: LoggedTable, rows: pa.Table, at: int, to: int) -> pa.Table:
    """Bring a whole table to an epoch by the deltas since."""
    return fold(
        rows, table.folded([delta for _, delta in table.read_chain(checkpoint, at, to, None)]), table.key, table.state
    )


def _scanned(copy: Store, epoch: int, groups: int) -> Iterator[tuple[int, pa.Table]]:
    for group in range(groups):
        yield group, copy.scan(group, epoch)
