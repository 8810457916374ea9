"""Aggregate before the shuffle: each task of the source makes partials of its own rows, here or in Spark's own code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import Accumulator, TaskContext

from ferryman._engine.null_keys import key_columns
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.routing_columns import SEQUENCE, TOKEN, width
from ferryman._model.errors import FerrymanError, to_text
from ferryman._model.receipt import HeavyKey, PartialsReceipt
from ferryman._operator.run.aggregate_runner import AggregateRunner
from ferryman._routing.owners import routed
from ferryman._spark.plan.instance_task import TaskFailed, unpack
from ferryman._state.compiled import Ints
from ferryman._state.heavy_keys import heavy, heavy_by_count
from ferryman._state.keys import Keys, distinct
from ferryman._state.store.contract import HASH
from ferryman._state.zones import in_zone

# Rows taken at once: enough to find most of a key's rows together, and bounded in memory.
CHUNK_ROWS = 1_000_000
# Of a partial that Spark has made: how many rows it is of.
COUNT = "_ferryman_count"


@dataclass(frozen=True, kw_only=True)
class CombineTask:
    """One operator's function for the source's side of one epoch.

    Attributes
    ----------
    tokens, pinned
        The token of each key group, and of each pinned hash.
    made_already
        Whether partials come, that Spark has made: they are routed and told of.
    """

    packed: bytes
    digest: str
    epoch: int
    tokens: npt.NDArray[np.int32]
    pinned: Mapping[int, int]
    receipts: Accumulator[list[bytes]]
    made_already: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the partials of the task's rows, each routed as its rows were."""
        context = TaskContext.get()
        assert context is not None, "Spark calls this inside a task"
        spec: OperatorSpec = unpack(self.packed, self.digest)
        # As Spark's monotonically_increasing_id: the source's task, then the row in it.
        base = context.partitionId() << 33
        rows = 0
        wide = 0
        found: list[HeavyKey] = []
        for chunk in _chunks(batches):
            try:
                if self.made_already:
                    count, partials = self._routed(spec, chunk, base + rows, found)
                else:
                    count, partials = chunk.num_rows, self._partials(spec, chunk, base + rows, found)
            except FerrymanError as error:
                raise TaskFailed(to_text(error)) from error
            yield from partials.to_batches()
            rows, wide = rows + count, max(wide, width(chunk))
        receipt = PartialsReceipt(
            operator=spec.name,
            epoch=self.epoch,
            part=context.partitionId(),
            rows=rows,
            heavy=tuple(found),
            width=wide,
        )
        self.receipts.add([receipt.encode()])

    def _partials(self, spec: OperatorSpec, rows: pa.Table, begin: int, found: list[HeavyKey]) -> pa.Table:
        assert isinstance(spec.runner, AggregateRunner), "only declared aggregates have partials"
        hashes = rows.column(HASH).to_numpy()
        keys = Keys.of(spec.key, hashes, key_columns(spec, self.epoch, rows))
        index, first = distinct(keys)
        partials = spec.runner.partials.partial(rows, index, len(first))
        touched = keys.take(first)
        found += heavy(touched, index)
        # A partial stands where its first row stood, so the order of the source's tasks is kept.
        return self._with_routing(spec, touched, partials, first + begin)

    def _routed(self, spec: OperatorSpec, made: pa.Table, begin: int, found: list[HeavyKey]) -> tuple[int, pa.Table]:
        """Route partials that Spark has made; count their rows."""
        assert isinstance(spec.runner, AggregateRunner), "only declared aggregates have partials"
        counts, groups = made.column(COUNT).to_numpy(), made.select([*spec.key.fields.names, HASH])
        keys = Keys.of(spec.key, made.column(HASH).to_numpy(), key_columns(spec, self.epoch, groups, counts))
        found += heavy_by_count(keys, counts)
        partials = made.select(spec.runner.partials.state.names).cast(spec.runner.partials.state)
        return int(counts.sum()), self._with_routing(spec, keys, partials, np.arange(len(keys)) + begin)

    def _with_routing(self, spec: OperatorSpec, keys: Keys, partials: pa.Table, sequence: Ints) -> pa.Table:
        routing = {
            HASH: pa.array(keys.hash),
            SEQUENCE: pa.array(sequence),
            TOKEN: pa.array(routed(keys.hash, self.tokens, self.pinned)),
        }
        columns = dict(zip(spec.key.fields.names, keys.columns(), strict=True))
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
