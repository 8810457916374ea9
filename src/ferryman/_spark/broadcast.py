"""Broadcast state: a small table that a stream updates and every instance of an operator reads, whole.

The driver holds it. In each epoch it folds in the rows that came, writes them as a delta like any other, and hands the
table to the tasks with the epoch; so all instances see the same version, the one of their epoch, and a restart or an
older epoch has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._log.checkpoint import Checkpoint
from ferryman._log.fold import fold, keys_of, rebuild
from ferryman._model.errors import InvalidConfiguration, NullKey
from ferryman._model.records import DeltaRef, JobCard, RoutingTable
from ferryman._spark.stream import Stream
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
    keys
        The columns that tell rows apart.
    deleted
        A boolean column that takes a key out where it is true; None if nothing is ever taken out.
    """

    stream: Stream
    keys: tuple[str, ...]
    deleted: str | None

    def table(self, operator: str, name: str, schema: pa.Schema) -> TableSpec:
        """Give the table that keeps it."""
        key = KeySchema(pa.schema([schema.field(one) for one in self.keys]), entries=True)
        state = pa.schema([one for one in schema if one.name not in (*self.keys, self.deleted)])
        return TableSpec(f"{operator}.{name}", operator, key, state, "", broadcast=True)


class BroadcastTable:
    """The newest version of one broadcast state, in the driver: as of an epoch, as the job's card declares it now."""

    def __init__(self, checkpoint: Checkpoint, card: JobCard, spec: TableSpec, deleted: str | None, epoch: int) -> None:
        self._checkpoint = checkpoint
        self._spec = spec
        self._deleted = deleted
        self._rows = part_schema(spec.key, spec.state).empty_table()
        if epoch:
            self._rows = rebuild(checkpoint, spec.name, epoch, card=card)
        self._next: pa.Table | None = None

    def update(self, rows: pa.Table, epoch: int, routing: RoutingTable) -> DeltaRef | None:
        """Fold in the rows of an epoch, and publish them; the epoch counts when its manifest does."""
        self._next = None
        if not rows.num_rows:
            return None
        delta = self._delta(rows, epoch)
        self._next = fold(self._rows, delta, self._spec.key, self._spec.state)
        if self._next.nbytes > MOST_BYTES:
            raise InvalidConfiguration(
                f"broadcast state {self._spec.name!r} has grown to {self._next.nbytes >> 20} MB in epoch {epoch}, and "
                f"{MOST_BYTES >> 20} MB is the most: it goes to every task with every epoch. Keep what is large as "
                "keyed state, or join it with Spark. The epoch was not committed."
            )
        # All its rows are of key group 0, whoever has that.
        return self._checkpoint.write_delta(epoch, self._spec.name, routing.owner[0], delta)

    def committed(self) -> None:
        """Take on the version of the epoch that was committed."""
        self._rows = self._next if self._next is not None else self._rows

    def packed(self) -> bytes:
        """Give the version of the epoch under way, as it travels to the tasks."""
        rows = (self._next if self._next is not None else self._rows).drop_columns([HASH])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue())

    def _delta(self, rows: pa.Table, epoch: int) -> pa.Table:
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
        columns: Mapping[str, pa.Array] = {
            HASH: pa.array(np.zeros(rows.num_rows, np.int64)),
            DELETED: pa.array(gone),
            **{one.name: rows.column(one.name) for one in (*key.fields, *state)},
        }
        whole = pa.Table.from_arrays([columns[one.name] for one in schema], schema=schema).combine_chunks()
        return whole.take(pa.array(last(keys_of(whole, key))))
