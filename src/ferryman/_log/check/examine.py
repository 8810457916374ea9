"""Examine one delta or one file of a snapshot: that it is what was written, and holds only what it may.

A checksum finds a file that was altered. What it cannot find is a file that was written wrong: a row of
another key group, a key that appears twice, a schema that is not the card's. Both are looked for here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ferryman._log.files.cards import schemas_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.untrusted import GROUPS_KEY, Unsound, parquet_of, parts_of, rows_of
from ferryman._log.fold.fold import LoggedTable, keys_of
from ferryman._model.card import TableCard
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import CorruptCheckpoint, MissingDelta
from ferryman._model.json_values import MOST_GROUPS
from ferryman._model.routing import RoutingTable
from ferryman._model.snapshot import SnapshotFile
from ferryman._routing.owners import routed
from ferryman._state.keys import distinct
from ferryman._state.store.contract import DELETED, HASH, delta_schema, part_schema

MISSING = "is missing"


@dataclass(frozen=True)
class TableFiles:
    """What the files of a table must look like: as it is declared now, or was before."""

    table: LoggedTable
    deltas: tuple[pa.Schema, ...]
    parts: tuple[pa.Schema, ...]

    @classmethod
    def of(cls, name: str, card: TableCard, groups: int) -> TableFiles:
        """Derive it from a table's card: the schema it has now, and those it had before."""
        table = LoggedTable.of(name, card, groups)
        states = [schemas_of(replace(card, schema=schema))[1] for schema in (card.schema, *card.earlier)]
        deltas = tuple(delta_schema(table.key, state) for state in states)
        return cls(table, deltas, tuple(_as_read(part_schema(table.key, state)) for state in states))


def _as_read(part: pa.Schema) -> pa.Schema:
    # Some types come back from Parquet as a neighbour, so ask Parquet what to expect.
    sink = pa.BufferOutputStream()
    pq.write_table(part.empty_table(), sink)
    return pq.read_schema(pa.BufferReader(sink.getvalue())).remove_metadata()


def examine_delta(
    checkpoint: Checkpoint, ref: DeltaRef, routing: RoutingTable | None, files: TableFiles | None
) -> str | None:
    """Tell what is wrong with a delta; None if nothing is.

    Parameters
    ----------
    routing
        The routing table of its epoch.
    files
        What its table's files look like; without it, only checksum and readability are examined.
    """
    try:
        rows = rows_of(_sound_bytes(checkpoint, ref), ref.rows)
        if files is None or routing is None:
            return None
        groups = _examine_rows(rows, files.deltas, files)
        owners = routed(rows.column(HASH).to_numpy(), np.array(routing.owner), routing.pinned)
        foreign = np.unique(groups[owners != ref.instance])
        if len(foreign):
            raise Unsound(
                f"holds rows of key group {_some(foreign)}, which version {routing.version} of the routing table does "
                f"not give to instance {ref.instance}"
            )
    except Unsound as fault:
        return str(fault)
    return None


def examine_snapshot_file(checkpoint: Checkpoint, file: SnapshotFile, files: TableFiles | None) -> str | None:
    """Tell what is wrong with a file of a snapshot; None if nothing is."""
    try:
        data = _sound_bytes(checkpoint, file)
        parquet, stored = parquet_of(data, file.bytes, MOST_GROUPS if files is None else files.table.total)
        parts = list(parts_of(parquet, range(parquet.num_row_groups), file.bytes, file.decoded))
        rows = pa.concat_tables(parts) if parts else parquet.schema_arrow.empty_table()
        _expect_rows(rows, file.rows)
        if files is None:
            return None
        groups = _examine_rows(rows, files.parts, files)
        stated = np.repeat(np.array(stored, np.int64), [part.num_rows for part in parts]) if parts else groups
        if len(stored) != len(parts) or not np.array_equal(groups, stated):
            raise Unsound(f"does not hold the key groups that its {GROUPS_KEY.decode()} names, row group by row group")
        outside = np.unique(groups[(groups < file.first) | (groups > file.last)])
        if len(outside):
            raise Unsound(f"holds rows of key group {_some(outside)}, beyond its groups {file.first} to {file.last}")
    except Unsound as fault:
        return str(fault)
    return None


def _sound_bytes(checkpoint: Checkpoint, ref: DeltaRef | SnapshotFile) -> pa.Buffer:
    try:
        return checkpoint.verified(ref.file, ref.checksum, ref.bytes)
    except MissingDelta as error:
        raise Unsound(MISSING) from error
    except CorruptCheckpoint as error:
        try:
            size = checkpoint.directory.read(ref.file).size
        except OSError as reason:
            raise Unsound(f"cannot be read ({reason.strerror or reason})") from error
        what = f"has {size} bytes instead of {ref.bytes}" if size != ref.bytes else "has altered bytes"
        raise Unsound(what) from error


def _expect_rows(rows: pa.Table, expected: int) -> None:
    if rows.num_rows != expected:
        raise Unsound(f"has {rows.num_rows} rows instead of {expected}")


def _examine_rows(
    rows: pa.Table, schemas: tuple[pa.Schema, ...], files: TableFiles
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Check the rows themselves and give their key groups."""
    found = rows.schema.remove_metadata()
    if found not in schemas:
        schema = schemas[0]
        wrong = [field.name for field in schema if field.name not in found.names or found.field(field.name) != field]
        extra = [name for name in found.names if name not in schema.names]
        raise Unsound(f"does not fit the job's card: columns {', '.join(wrong + extra) or 'in another order'}")
    for name in (HASH, DELETED, *(() if files.table.key.nulls else files.table.key.fields.names)):
        if name in found.names and rows.column(name).null_count:
            raise Unsound(f"has rows without a value in {name}")
    keys = keys_of(rows.combine_chunks(), files.table.key)
    if len(distinct(keys)[1]) != len(keys):
        raise Unsound("holds a key twice")
    return keys.groups(files.table.total).astype(np.int64)


def _some(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    shown = ", ".join(map(str, numbers[:5].tolist()))
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"
