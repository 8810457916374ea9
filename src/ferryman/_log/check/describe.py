"""Describe a checkpoint: whose it is, which epochs it keeps, and what each table of its state holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.bases import bases
from ferryman._log.fold.fold import rebuild
from ferryman._log.scan.epochs_kept import epoch_to_read
from ferryman._log.scan.state_scan import state_parts
from ferryman._model.card import JobCard, TableCard
from ferryman._model.errors import UnknownOption
from ferryman._model.key_groups import group_of
from ferryman._model.manifest import Manifest
from ferryman._model.snapshot import Snapshot
from ferryman._state.store.contract import HASH


@dataclass(frozen=True, kw_only=True)
class TableState:
    """Say what a table of an operator's state holds.

    Attributes
    ----------
    key, state
        Its columns, as (name, Arrow type).
    rows
        How many rows it has: keys, or entries of keys.
    groups
        How many of them each key group has.
    delta_bytes, snapshot_bytes
        What its files weigh, over all kept epochs.
    """

    name: str
    operator: str
    key: tuple[tuple[str, str], ...]
    state: tuple[tuple[str, str], ...]
    rows: int
    groups: tuple[int, ...]
    delta_bytes: int
    snapshot_bytes: int

    def spread(self) -> dict[str, float]:
        """Give the fewest, the median and the most keys of a key group."""
        return {"min": min(self.groups), "median": float(np.median(self.groups)), "max": max(self.groups)}


@dataclass(frozen=True, kw_only=True)
class Description:
    """Say what is in a checkpoint, as of one epoch.

    Attributes
    ----------
    epoch
        The epoch described: the newest, unless another was asked for; 0 before the first.
    first, last
        The oldest and the newest epoch that are kept; None before the first.
    snapshots
        The epochs of which there is a snapshot.
    batch, offsets
        The last Spark micro-batch the epoch covers, and the source offsets it read up to.
    instances, routing_version
        Who owns the key groups.
    """

    checkpoint: str
    job: str
    id: str
    format: int
    groups: int
    epoch: int
    time_ms: int | None
    first: int | None
    last: int | None
    snapshots: tuple[int, ...]
    batch: int
    offsets: tuple[Any, ...]
    instances: int
    routing_version: int
    tables: tuple[TableState, ...]

    def json(self) -> dict[str, Any]:
        """Write the description as JSON values."""
        raw = asdict(self)
        for table, written in zip(self.tables, raw["tables"], strict=True):
            written["keys_per_group"] = {**table.spread(), "groups": written.pop("groups")}
        return raw


def describe(checkpoint: Checkpoint, epoch: int | None = None) -> Description:
    """Say what is in a checkpoint, as of its newest epoch or the one given."""
    card = checkpoint.job_card()
    kept = checkpoint.epochs()
    manifests = {number: checkpoint.manifest(number) for number in kept}
    epoch = epoch_to_read(checkpoint, epoch)
    manifest = (manifests.get(epoch) or checkpoint.manifest(epoch)) if epoch else None
    snapshots = [*bases(checkpoint, 1 << 62)][::-1]
    return Description(
        checkpoint=checkpoint.directory.uri,
        job=card.job,
        id=card.id,
        format=card.format,
        groups=card.groups,
        epoch=epoch,
        time_ms=manifest.time_ms if manifest else None,
        first=kept[0] if kept else None,
        last=kept[-1] if kept else None,
        snapshots=tuple(snapshot.epoch for snapshot in snapshots),
        batch=manifest.batch if manifest else -1,
        offsets=_offsets(manifests, epoch),
        instances=manifest.routing.instances if manifest else 0,
        routing_version=manifest.routing.version if manifest else 0,
        tables=tuple(
            _table(checkpoint, card, name, table, epoch, list(manifests.values()), snapshots)
            for name, table in card.tables.items()
        ),
    )


def first_rows(checkpoint: Checkpoint, table: str, epoch: int, limit: int) -> pa.Table:
    """Give the first rows of a table's state in the order of the key: key columns, then state columns."""
    card = checkpoint.job_card()
    if table not in card.tables:
        raise UnknownOption(
            f"{checkpoint.directory.uri} has no table {table!r}; it has: {', '.join(sorted(card.tables))}. "
            "Check the name."
        )
    order = [(name, "ascending") for name, _ in card.tables[table].key]
    best: pa.Table | None = None
    for part in _parts(checkpoint, card, table, epoch):
        rows = part.drop_columns([HASH])
        best = (rows if best is None else pa.concat_tables([best, rows])).sort_by(order).slice(0, limit)
    assert best is not None, "there is at least one run of groups"
    return best


def _table(
    checkpoint: Checkpoint,
    card: JobCard,
    name: str,
    columns: TableCard,
    epoch: int,
    manifests: list[Manifest],
    snapshots: list[Snapshot],
) -> TableState:
    held = np.zeros(card.groups, np.int64)
    for part in _parts(checkpoint, card, name, epoch):
        held += np.bincount(group_of(part.column(HASH).to_numpy(), card.groups), minlength=card.groups)
    # A snapshot shares the files of the one before where nothing changed in between.
    files = {file.file: file.bytes for snapshot in snapshots for file in snapshot.tables.get(name, ())}
    return TableState(
        name=name,
        operator=columns.operator,
        key=columns.key,
        state=columns.state,
        rows=int(held.sum()),
        groups=tuple(held.tolist()),
        delta_bytes=sum(ref.bytes for manifest in manifests for ref in manifest.tables.get(name, ())),
        snapshot_bytes=sum(files.values()),
    )


def _parts(checkpoint: Checkpoint, card: JobCard, table: str, epoch: int) -> Iterator[pa.Table]:
    """Rebuild a table's state run by run of key groups, so that memory does not follow the whole of it."""
    for groups in state_parts(checkpoint, card, table, epoch):
        yield rebuild(checkpoint, table, epoch, groups)


def _offsets(manifests: dict[int, Manifest], epoch: int) -> tuple[Any, ...]:
    """Give the offsets of the newest epoch up to this one that read the source: a silent epoch has none."""
    for number in sorted((number for number in manifests if number <= epoch), reverse=True):
        if manifests[number].offsets:
            return manifests[number].offsets
    return ()
