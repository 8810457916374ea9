"""Broadcast state: a small table that a stream updates and every instance of an operator reads, whole.

The driver holds it. In each epoch it folds in the rows that came, writes them as a delta like any other, and hands the
table to the tasks with the epoch; so all instances see the same version, the one of their epoch, and a restart or an
older epoch has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.fold.fold import fold, keys_of, rebuild
from ferryman._model.card import JobCard
from ferryman._model.delta import DeltaRef
from ferryman._model.errors import InvalidConfiguration, NullKey
from ferryman._model.routing import RoutingTable
from ferryman._state.expiry import EXPIRES, changed_by_time, expires_at, stored_fields
from ferryman._state.keys import KeySchema, last
from ferryman._state.store.contract import DELETED, HASH, delta_schema, part_schema
from ferryman._state.tables import TableSpec

# More than this is not small: it goes to every task with every epoch.
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Broadcast:
    """A stream whose rows update a broadcast state: the newest row of each key counts.

    Attributes
    ----------
    stream
        The stream, as whoever runs the job knows it.
    keys
        The columns that tell rows apart.
    deleted
        A boolean column that takes a key out where it is true; None if nothing is ever taken out.
    ttl
        After how many milliseconds a key is gone that no row came for; None for never.
    """

    stream: Any
    keys: tuple[str, ...]
    deleted: str | None
    ttl: int | None = None

    def table(self, operator: str, name: str, schema: pa.Schema) -> TableSpec:
        """Give the table that keeps it."""
        key = KeySchema(pa.schema([schema.field(column) for column in self.keys]), entries=True)
        state = pa.schema([field for field in schema if field.name not in (*self.keys, self.deleted)])
        state = pa.schema([*state, *stored_fields(self.ttl)])
        return TableSpec(name=f"{operator}.{name}", operator=operator, key=key, state=state, backend="", broadcast=True)


class BroadcastTable:
    """The newest version of one broadcast state, in the driver: as of an epoch, as the job's card declares it now."""

    def __init__(self, checkpoint: Checkpoint, card: JobCard, spec: TableSpec, declared: Broadcast, epoch: int) -> None:
        self._checkpoint = checkpoint
        self._spec = spec
        self._deleted = declared.deleted
        self._ttl = declared.ttl
        schema = part_schema(spec.key, spec.state)
        rows = rebuild(checkpoint, spec.name, epoch, card=card) if epoch else schema.empty_table()
        # Read on another thread too, so both at once.
        self._newest = rows, epoch
        self._next: pa.Table | None = None

    def update(self, rows: pa.Table, epoch: int, routing: RoutingTable, now_ms: int) -> DeltaRef | None:
        """Fold in the rows of an epoch, and publish them; the epoch counts when its manifest does."""
        self._next = None
        delta = self._delta(rows, epoch, now_ms)
        if not delta.num_rows:
            return None
        self._next = fold(self._rows, delta, self._spec.key, self._spec.state)
        if self._next.nbytes > MOST_BYTES:
            raise InvalidConfiguration(
                f"broadcast state {self._spec.name!r} has grown to {self._next.nbytes >> 20} MB in epoch {epoch}, and "
                f"{MOST_BYTES >> 20} MB is the most: it goes to every task with every epoch. Keep what is large as "
                "keyed state, or join it with Spark. The epoch was not committed."
            )
        # All its rows are of key group 0, whoever has that.
        return self._checkpoint.write_delta(epoch, self._spec.name, routing.owner[0], delta)

    def committed(self, epoch: int) -> None:
        """Take on the version of the epoch that was committed."""
        self._newest = (self._next if self._next is not None else self._rows), epoch

    @property
    def newest(self) -> tuple[pa.Table, int]:
        """Give the version of the newest committed epoch, and that epoch."""
        return self._newest

    @property
    def _rows(self) -> pa.Table:
        return self._newest[0]

    def packed(self) -> bytes:
        """Give the version of the epoch under way, as it travels to the tasks."""
        rows = (self._next if self._next is not None else self._rows).drop_columns([HASH])
        if self._ttl is not None:
            rows = rows.drop_columns([EXPIRES])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue())

    def _delta(self, rows: pa.Table, epoch: int, now_ms: int) -> pa.Table:
        key, state = self._spec.key, self._spec.state
        for name in key.fields.names:
            if rows.column(name).null_count:
                raise NullKey(
                    f"broadcast state {self._spec.name!r}, epoch {epoch}: a row has no value in its key column "
                    f"{name!r}. Filter such rows out. The epoch was not committed; no row is lost."
                )
        gone = np.zeros(rows.num_rows, bool)
        if self._deleted is not None:
            gone = np.asarray(rows.column(self._deleted).fill_null(False).to_numpy(), dtype=bool)
        schema = delta_schema(key, state)
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            HASH: pa.array(np.zeros(rows.num_rows, np.int64)),
            DELETED: pa.array(gone),
            **{column: rows.column(column) for column in (*key.fields.names, *state.names) if column != EXPIRES},
        }
        if self._ttl is not None:
            columns[EXPIRES] = pa.repeat(pa.scalar(expires_at(now_ms, self._ttl)), rows.num_rows)
        whole = pa.Table.from_arrays([columns[field.name] for field in schema], schema=schema)
        whole = pa.concat_tables([*self._timed(schema, now_ms), whole]).combine_chunks()
        return whole.take(pa.array(last(keys_of(whole, key))))

    def _timed(self, schema: pa.Schema, now_ms: int) -> list[pa.Table]:
        """Give what time alone changes."""
        if self._ttl is None:
            return []
        return [
            rows.append_column(DELETED, pa.repeat(pa.scalar(gone), rows.num_rows)).select(schema.names).cast(schema)
            for rows, gone in changed_by_time(self._rows, now_ms, self._ttl)
        ]
