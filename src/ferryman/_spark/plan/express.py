"""The express task: one Spark task that reads the rows of a small epoch and runs all instances on them.

    source -> [select what the operators read] -> one partition -> express task, in Python -> driver

It has one stage and no shuffle. What leaves it comes to the driver, where sinks take it on; so it is bounded, as is
what may come in. A task that meets more gives up, and the epoch is done by a shuffle.

Each row brings along which partition it was in, as the last column: by that the rows are put in order. The source's own
rows have it already, and go to the task as they are. What leaves is bytes: first the receipts, then the rows of each
kind as an Arrow stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ferryman._engine.control import Control
from ferryman._engine.express_epoch import Hashes, OutputOf, OutputTooLarge, Step, run_together
from ferryman._engine.express_or_shuffle import MOST_BYTES, MOST_ROWS
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.routing_columns import FILE, PART
from ferryman._engine.row_order import ordered
from ferryman._model.errors import FerrymanError, to_text
from ferryman._model.receipt import Receipt, TooMuch, decode_all, encode_all
from ferryman._spark.api.stream import Source, Stream
from ferryman._spark.compat.one_task import OneTask
from ferryman._spark.plan.file_of_row import with_file
from ferryman._spark.plan.instance_task import TaskFailed, unpack
from ferryman._spark.plan.planner import Node, Packed, with_initial
from ferryman._spark.plan.segments import Segment, cut, hashed_alike, output_of
from ferryman._state.spark_hash import spark_hash
from ferryman._state.store.contract import HASH
from ferryman._state.zones import in_zone


@dataclass(frozen=True)
class ExpressTask:
    """The function of a segment's task for one epoch.

    Attributes
    ----------
    packed
        The operators, each with whose rows it reads; None for those that come.
    wanted
        Whose rows leave the task.
    routing
        By what rows are parted and ordered: the last columns of what comes.
    """

    packed: tuple[tuple[Packed, OutputOf | None], ...]
    controls: Mapping[str, Control]
    wanted: tuple[OutputOf, ...]
    routing: tuple[str, ...]
    most_rows: int = MOST_ROWS
    most_bytes: int = MOST_BYTES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> list[bytes]:
        """Run all instances of all operators; give their receipts, and what is wanted of their output."""
        try:
            return self._made(batches)
        except FerrymanError as error:
            raise TaskFailed(to_text(error)) from error

    def _made(self, batches: Iterator[pa.RecordBatch]) -> list[bytes]:
        taken: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            taken.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > self.most_rows or size > self.most_bytes:
                return [TooMuch(rows=rows, size=size).encode()]
        steps = [
            # A broadcast variable is good for a task: Spark may have taken its file away since the one before.
            Step(unpack(packed.data, packed.digest, again=bool(packed.shared)), reads)
            for packed, reads in self.packed
        ]
        came, hashes = self._in_order(steps, taken)
        try:
            tables, receipts = run_together(steps, self.controls, came, hashes, self.wanted, most_bytes=self.most_bytes)
        except OutputTooLarge as large:
            return [TooMuch(rows=large.rows, size=large.size).encode()]
        return [encode_all(receipts), *map(_to_bytes, tables)]

    def _in_order(self, steps: Sequence[Step], taken: list[pa.RecordBatch]) -> tuple[pa.Table, Mapping[str, Hashes]]:
        """Put what came into the source's order; give the rows, and the hashes of their keys for each reader."""
        specs = [step.spec for step in steps if step.reads is None]
        if not taken:
            fields = {field.name: field for spec in specs for field in spec.input}
            return pa.schema(fields.values()).empty_table(), {spec.name: np.empty(0, np.int64) for spec in specs}
        whole = in_zone(pa.Table.from_batches(taken))
        # By their place: a column of the user's may be called as one of these.
        first = whole.num_columns - len(self.routing)
        places = {name: first + number for number, name in enumerate(self.routing)}
        # A partition's rows come in order, one partition after the other; but which one is first is Spark's choice.
        sequence = (whole.column(places[PART]).to_numpy().astype(np.int64) << 33) + np.arange(whole.num_rows)
        file = whole.column(places[FILE]).to_numpy() if FILE in places else None
        whole, _ = ordered(whole, sequence, file, self.controls[specs[0].name].files)
        rows = whole.select(list(range(first)))
        return rows, {spec.name: self._hashes(spec, whole, places) for spec in specs}

    def _hashes(self, spec: OperatorSpec, whole: pa.Table, places: Mapping[str, int]) -> Hashes:
        """Give the hashes of an operator's keys: those that came, or make them."""
        place = places.get(HASH + spec.name)
        if place is None:
            return spark_hash([whole.column(name) for name in spec.key.fields.names])
        hashes: Hashes = whole.column(place).to_numpy()
        return hashes


@dataclass(frozen=True)
class Done:
    """What came of a segment's task: the receipts, and the rows of each stream that leaves it."""

    receipts: list[Receipt]
    tables: list[pa.Table]


@dataclass(frozen=True)
class Segments:
    """A job in segments, planned; `Cut` says what is what."""

    plans: Sequence[SegmentPlan]
    read_on: Set[int]
    shared: Set[int]

    @classmethod
    def of(cls, outputs: Sequence[Stream], nodes: Mapping[str, Node]) -> Segments:
        """Cut a job, and plan its segments."""
        made = cut(outputs)
        return cls([SegmentPlan(segment, nodes) for segment in made.segments], made.read_on, made.shared)


class SegmentPlan:
    """The plan of a segment, as far as it does not change from epoch to epoch.

    Parameters
    ----------
    segment
        The segment.
    nodes
        The parts of all operators, by name.
    """

    def __init__(self, segment: Segment, nodes: Mapping[str, Node]) -> None:
        self.root = segment.root
        self.given = segment.given
        self._names = [operator.spec.name for operator, _ in segment.operators]
        self._packed = tuple((nodes[operator.spec.name].packed, reads) for operator, reads in segment.operators)
        self._wanted = tuple(output_of(stream) for stream in segment.given)
        self._first = segment.operators[0][0]
        readers = [nodes[operator.spec.name] for operator, reads in segment.operators if reads is None]
        self._plain = not any(packed.shared for packed, _ in self._packed)
        # The source's rows know their partition. They need no more than that if all of their columns are read, and if
        # their keys can be hashed here.
        read = [name for node in readers for name in node.stream.spec.input.names]
        as_they_are = (
            isinstance(segment.root, Source)
            and self._first.initial is None
            and sorted(set(read)) == sorted(segment.root.schema.names)
            and all(hashed_alike(node.stream) for node in readers)
        )
        self._rows = _Rows.as_they_are() if as_they_are else _Rows.selected(readers)
        self._rows_with_file = _Rows.selected(readers, by_file=True)

    def run(self, root: DataFrame, controls: Mapping[str, Control], *, narrow: bool) -> Done | TooMuch:
        """Run the segment on the rows of its root; `narrow` ones are known to need no limit in bytes."""
        if self._first.initial is not None:
            root = with_initial(root, self._first.initial, self._first.spec, first=False)
        by_file = bool(controls[self._first.spec.name].files)
        rows = self._rows_with_file if by_file else self._rows
        task = ExpressTask(self._packed, {name: controls[name] for name in self._names}, self._wanted, rows.routing)
        told, *tables = rows.task.run(with_file(root) if by_file else root, task, direct=narrow and self._plain)
        receipts = decode_all(told)
        return receipts if isinstance(receipts, TooMuch) else Done(receipts, [_from_bytes(table) for table in tables])


@dataclass(frozen=True)
class _Rows:
    """What of a DataFrame goes to the task, and which of its last columns part and order the rows."""

    task: OneTask
    routing: tuple[str, ...]

    @classmethod
    def as_they_are(cls) -> _Rows:
        """Let all columns go, of a DataFrame whose last one is the partition."""
        return cls(OneTask(), (PART,))

    @classmethod
    def selected(cls, readers: Sequence[Node], *, by_file: bool = False) -> _Rows:
        """Select what the operators read, each column once, and the hash of each one's keys."""
        inputs = {name: F.col(f"`{name}`") for node in readers for name in node.stream.spec.input.names}
        routing = {HASH + node.stream.spec.name: node.hashed for node in readers}
        if by_file:
            routing[FILE] = F.col(FILE)
        routing[PART] = F.spark_partition_id()
        columns = [*inputs.values(), *(column.alias(name) for name, column in routing.items())]
        return cls(OneTask(columns), tuple(routing))


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _from_bytes(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
