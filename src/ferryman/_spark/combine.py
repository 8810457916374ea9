"""Aggregate before the shuffle: each task of the source makes partials of its own rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import Accumulator, TaskContext

from ferryman._model.errors import FerrymanError, to_text
from ferryman._operator.aggregate import AggregateRunner
from ferryman._routing.owners import routed
from ferryman._spark.batches import width
from ferryman._spark.task import SEQUENCE, TOKEN, OperatorSpec, TaskFailed, key_columns, unpack
from ferryman._state.heavy import Weight, heavy
from ferryman._state.keys import Keys, distinct
from ferryman._state.store.contract import HASH
from ferryman._state.zones import in_zone

# Rows taken at once: enough to find most of a key's rows together, and bounded in memory.
CHUNK_ROWS = 1_000_000

# Partials pay when the epoch before had this many rows, and this many rows to a key, or one key this part of them all.
WORTH_ROWS = 20_000
WORTH_RATIO = 3
WORTH_PART = 0.2


@dataclass(frozen=True)
class CombineTask:
    """One operator's function for the source's side of one epoch; `tokens` has one per key group, `pinned` per hash."""

    packed: bytes
    digest: str
    epoch: int
    tokens: npt.NDArray[np.int32]
    pinned: Mapping[int, int]
    receipts: Accumulator[list[bytes]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the partials of the task's rows, each routed as its rows were."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this inside a task"
        spec: OperatorSpec = unpack(self.packed, self.digest)
        # As Spark's monotonically_increasing_id: the source's task, then the row in it.
        base = context.partitionId() << 33
        rows = 0
        wide = 0
        found: list[Weight] = []
        for chunk in _chunks(batches):
            try:
                yield from self._partials(spec, chunk, base + rows, found).to_batches()
            except FerrymanError as error:
                raise TaskFailed(to_text(error)) from error
            rows, wide = rows + chunk.num_rows, max(wide, width(chunk))
        receipt = {
            "operator": spec.name,
            "epoch": self.epoch,
            "combined_by": context.partitionId(),
            "rows": rows,
            "heavy": found,
            "width": wide,
        }
        self.receipts.add([json.dumps(receipt).encode()])

    def _partials(self, spec: OperatorSpec, rows: pa.Table, begin: int, found: list[Weight]) -> pa.Table:
        assert isinstance(spec.runner, AggregateRunner), "only declared aggregates have partials"
        hashes = rows.column(HASH).to_numpy()
        keys = Keys.of(spec.key, hashes, key_columns(spec, self.epoch, rows))
        index, first = distinct(keys)
        partials = spec.runner.aggregation.partial(rows, index, len(first))
        touched = keys.take(first)
        found += heavy(touched, index)
        # A partial stands where its first row stood, so the order of the source's tasks is kept.
        routing = {
            HASH: pa.array(touched.hash),
            SEQUENCE: pa.array(first + begin),
            TOKEN: pa.array(routed(touched.hash, self.tokens, self.pinned)),
        }
        columns = dict(zip(spec.key.fields.names, touched.columns(), strict=True))
        columns.update(zip(partials.column_names, partials.columns, strict=True))
        return pa.table({**columns, **routing})


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cut rows into chunks of always so many, however they came: what is added up together must not depend on it."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        while rows >= CHUNK_ROWS:
            # In the session's zone until they are given away, as what comes next is.
            whole = pa.Table.from_batches(held)
            yield in_zone(whole.slice(0, CHUNK_ROWS))
            held = whole.slice(CHUNK_ROWS).to_batches()
            rows -= CHUNK_ROWS
    if rows:
        yield in_zone(pa.Table.from_batches(held))
