"""What the Spark tasks of an express epoch do, in Python workers. `_engine.express_epoch` does the work.

    ExpressTask       on one host: reads the rows of a segment, and runs all instances of its operators
    GatherTask        on several hosts, if rows may be wide: reads them, and brings them to the driver
    ExpressInstance   on several hosts: runs one instance of some operators, on the rows that the driver has sent it

What may come in is bounded, and so is what leaves, as it goes to the driver. A task that meets more gives up. What
leaves is bytes: first the receipts, or why there are none; then the rows of each kind as an Arrow stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ferryman._engine.control import Control
from ferryman._engine.express_epoch import (
    Hashes,
    OutputOf,
    OutputTooLarge,
    Parts,
    RowsLeave,
    Step,
    parted,
    run_together,
)
from ferryman._engine.express_or_shuffle import MOST_BYTES, MOST_ROWS
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.routing_columns import FILE, PART
from ferryman._engine.row_order import ordered
from ferryman._model.receipt import RowsLeft, TooMuch, encode_all
from ferryman._spark.plan.instance_task import carried, unpack
from ferryman._spark.plan.planner import Packed
from ferryman._state.spark_hash import spark_hash
from ferryman._state.store.contract import HASH
from ferryman._state.zones import in_zone


@dataclass(frozen=True)
class Work:
    """Operators as they travel to a task, and what it must know of the epoch.

    Attributes
    ----------
    packed
        The operators, each with whose rows it reads; None for those that come.
    wanted
        Whose rows leave the task.
    most_bytes
        What the operators may put out.
    """

    packed: tuple[tuple[Packed, OutputOf | None], ...]
    controls: Mapping[str, Control]
    wanted: tuple[OutputOf, ...]
    most_bytes: int = MOST_BYTES

    def steps(self) -> list[Step]:
        """Unpack the operators."""
        # A broadcast variable is good for a task: Spark may have taken its file away since the one before.
        return [
            Step(unpack(packed.data, packed.digest, again=bool(packed.shared)), reads) for packed, reads in self.packed
        ]

    def done(self, steps: Sequence[Step], came: Mapping[str, Parts], instances: Sequence[int]) -> list[bytes]:
        """Run some instances of the operators; give their receipts, and what is wanted of their output."""
        try:
            tables, receipts = run_together(
                steps, self.controls, came, self.wanted, instances=instances, most_bytes=self.most_bytes
            )
        except OutputTooLarge as large:
            return [TooMuch(rows=large.rows, size=large.size).encode()]
        except RowsLeave as leave:
            return [RowsLeft(operator=leave.operator).encode()]
        return [encode_all(receipts), *map(to_bytes, tables)]


@dataclass(frozen=True)
class ExpressTask:
    """The function of a segment's task for one epoch, where all instances are on one host.

    Attributes
    ----------
    routing
        By what rows are parted and ordered: the last columns of what comes.
    """

    work: Work
    routing: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> list[bytes]:
        """Run all instances of all operators on what comes."""
        came = taken(batches)
        if isinstance(came, TooMuch):
            return [came.encode()]
        with carried():
            steps, controls = self.work.steps(), self.work.controls
            readers = [step.spec for step in steps if step.reads is None]
            rows, hashes = in_order(readers, controls, self.routing, came)
            parts = {
                spec.name: parted(controls[spec.name], rows.select(spec.input.names), hashes[spec.name])
                for spec in readers
            }
            return self.work.done(steps, parts, range(len(controls[readers[0].name].tokens)))


@dataclass(frozen=True)
class GatherTask:
    """The function of the task that brings the rows of a segment to the driver."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> list[bytes]:
        """Give what comes, unless it is too much; of no batch at all, nothing is known but that."""
        came = taken(batches)
        if isinstance(came, TooMuch):
            return [came.encode()]
        return [encode_all([]), *([to_bytes(pa.Table.from_batches(came))] if came else [])]


@dataclass(frozen=True)
class ExpressInstance:
    """The function of the task of an instance in one round, where instances are on several hosts.

    Attributes
    ----------
    came
        The operators whose rows come with the task, one Arrow stream after the other.
    """

    work: Work
    came: tuple[str, ...]

    def __call__(self, instance: int, data: bytes) -> list[bytes]:
        """Run an instance of all operators on its rows."""
        streams = pa.BufferReader(data)
        came = {name: {instance: _read(streams)} for name in self.came}
        with carried():
            return self.work.done(self.work.steps(), came, [instance])

    @staticmethod
    def given(came: Mapping[str, Parts], instances: int) -> list[bytes]:
        """Make what comes with the task of each instance."""
        return [b"".join(to_bytes(parts[number]) for parts in came.values()) for number in range(instances)]


def in_order(
    readers: Sequence[OperatorSpec],
    controls: Mapping[str, Control],
    routing: Sequence[str],
    batches: Sequence[pa.RecordBatch],
) -> tuple[pa.Table, Mapping[str, Hashes]]:
    """Put what came into the source's order; give the rows, and the hashes of their keys for each operator.

    The last columns of what came are those of `routing`.
    """
    if not batches:
        fields = {field.name: field for spec in readers for field in spec.input}
        return pa.schema(fields.values()).empty_table(), {spec.name: np.empty(0, np.int64) for spec in readers}
    whole = in_zone(pa.Table.from_batches(batches))
    # By their place: a column of the user's may be called as one of these.
    first = whole.num_columns - len(routing)
    places = {name: first + number for number, name in enumerate(routing)}
    # A partition's rows come in order, one partition after the other; but which one is first is Spark's choice.
    sequence = (whole.column(places[PART]).to_numpy().astype(np.int64) << 33) + np.arange(whole.num_rows)
    file = whole.column(places[FILE]).to_numpy() if FILE in places else None
    whole, _ = ordered(whole, sequence, file, controls[readers[0].name].files)
    rows = whole.select(list(range(first)))
    return rows, {spec.name: _hashes(spec, whole, places) for spec in readers}


def _hashes(spec: OperatorSpec, whole: pa.Table, places: Mapping[str, int]) -> Hashes:
    """Give the hashes of an operator's keys: those that came, or make them."""
    place = places.get(HASH + spec.name)
    if place is None:
        return spark_hash([whole.column(name) for name in spec.routed.names])
    hashes: Hashes = whole.column(place).to_numpy()
    return hashes


def taken(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch] | TooMuch:
    """Take what comes, but no more than express may."""
    came: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        came.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > MOST_ROWS or size > MOST_BYTES:
            return TooMuch(rows=rows, size=size)
    return came


def to_bytes(table: pa.Table) -> bytes:
    """Write rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(data: bytes) -> pa.Table:
    """Read them back."""
    return _read(pa.BufferReader(data))


def _read(streams: pa.BufferReader) -> pa.Table:
    with pa.ipc.open_stream(streams) as reader:
        return reader.read_all()
