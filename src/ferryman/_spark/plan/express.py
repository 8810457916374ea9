"""Run the segments of a job by express: the rows of a small epoch reach their instances without a shuffle.

On one host, one Spark task reads the rows of a segment and runs all instances on them:

    source -> [select what the operators read] -> one partition -> express task, in Python -> driver

On several hosts, one task reads the rows, and a task per instance works on its own, where that instance is:

    source -> [select ...] -> one partition -> driver -> a task per instance -> driver

Each row brings along which partition it was in, as the last column: by that the rows are put in order. The source's own
rows have it already, and go to the task as they are. Calls `express_task` and `_engine.express_rounds`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ferryman._engine.control import Control
from ferryman._engine.express_epoch import OutputOf, Step
from ferryman._engine.express_or_shuffle import MOST_BYTES, MOST_ROWS
from ferryman._engine.express_rounds import Ran, Round, Rounds
from ferryman._engine.routing_columns import FILE, PART
from ferryman._model.receipt import Receipt, RowsLeft, TooMuch, decode_all
from ferryman._spark.api.stream import Source, Stream
from ferryman._spark.compat.one_task import OneTask
from ferryman._spark.compat.pinned_tasks import PinnedTasks
from ferryman._spark.plan.express_task import (
    ExpressInstance,
    ExpressTask,
    GatherTask,
    Work,
    from_bytes,
    in_order,
    taken,
)
from ferryman._spark.plan.file_of_row import with_file
from ferryman._spark.plan.planner import Node, with_initial
from ferryman._spark.plan.segments import Segment, cut, hashed_alike, output_of
from ferryman._state.store.contract import HASH


@dataclass(frozen=True)
class Done:
    """What came of a segment's tasks.

    Attributes
    ----------
    receipts, tables
        The receipts, and the rows of each stream that leaves it.
    reading_ms
        How long one task took to read the rows.
    """

    receipts: Sequence[Receipt]
    tables: Sequence[pa.Table]
    reading_ms: float


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
        self._packed = {operator.spec.name: nodes[operator.spec.name].packed for operator, _ in segment.operators}
        self._steps = [Step(operator.spec, reads) for operator, reads in segment.operators]
        self._wanted = tuple(output_of(stream) for stream in segment.given)
        self._first = segment.operators[0][0]
        self._rounds = Rounds(self._steps, self._wanted)
        readers = [nodes[step.spec.name] for step in self._steps if step.reads is None]
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

    def run(
        self, root: DataFrame, controls: Mapping[str, Control], tasks: PinnedTasks | None, *, narrow: bool
    ) -> Done | TooMuch:
        """Run the segment on the rows of its root; `narrow` ones are known to need no limit in bytes.

        `tasks` are those of the instances, where these are on several hosts.
        """
        if self._first.initial is not None:
            root = with_initial(root, self._first.initial, self._first.spec, first=False)
        by_file = bool(controls[self._first.spec.name].files)
        rows = self._rows_with_file if by_file else self._rows
        root = with_file(root) if by_file else root
        began = time.perf_counter()
        if tasks is None:
            task = ExpressTask(self._work(self._steps, controls, self._wanted), rows.routing)
            done = _told(rows.task.run(root, task, direct=narrow), len(self._wanted))
            assert not isinstance(done, RowsLeft), "all instances are in that task"
            if isinstance(done, TooMuch):
                return done
            busy_ms = sum(receipt.busy_ms for receipt in done.receipts)
            return Done(done.receipts, done.tables[0], (time.perf_counter() - began) * 1000 - busy_ms)
        came = rows.gather(root, narrow=narrow)
        reading_ms = (time.perf_counter() - began) * 1000
        if isinstance(came, TooMuch):
            return came
        ran = self._run_on_hosts(controls, rows.routing, came, tasks)
        return ran if isinstance(ran, TooMuch) else Done(ran[1], ran[0], reading_ms)

    def _run_on_hosts(
        self, controls: Mapping[str, Control], routing: Sequence[str], batches: list[pa.RecordBatch], tasks: PinnedTasks
    ) -> tuple[list[pa.Table], list[Receipt]] | TooMuch:
        """Run the instances where they are, on rows that have come to the driver."""
        readers = [step.spec for step in self._steps if step.reads is None]

        def run_round(given: Round) -> Ran | TooMuch | RowsLeft:
            work = self._work(given.steps, controls, given.wanted, given.most_bytes)
            task = ExpressInstance(work, tuple(given.came))
            instances = len(controls[readers[0].name].tokens)
            return _told(tasks.run(task, ExpressInstance.given(given.came, instances)), len(given.wanted))

        came, hashes = in_order(readers, controls, routing, batches)
        return self._rounds.run(controls, came, hashes, run_round, most_bytes=MOST_BYTES)

    def _work(
        self,
        steps: Sequence[Step],
        controls: Mapping[str, Control],
        wanted: Sequence[OutputOf],
        most_bytes: int = MOST_BYTES,
    ) -> Work:
        names = [step.spec.name for step in steps]
        packed = tuple((self._packed[step.spec.name], step.reads) for step in steps)
        return Work(packed, {name: controls[name] for name in names}, tuple(wanted), most_bytes)


def _told(data: Sequence[bytes], wanted: int) -> Ran | TooMuch | RowsLeft:
    """Read what tasks have told, one after the other, each of whom was to bring so many tables."""
    receipts: list[Receipt] = []
    tables: list[list[pa.Table]] = []
    parts = iter(data)
    for said in parts:
        told = decode_all(said)
        if not isinstance(told, list):
            return told
        receipts += told
        tables.append([from_bytes(next(parts)) for _ in range(wanted)])
    return Ran(receipts, tables)


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

    def gather(self, frame: DataFrame, *, narrow: bool) -> list[pa.RecordBatch] | TooMuch:
        """Bring the rows to the driver, but no more than express takes."""
        brought = self.task.rows(frame, MOST_ROWS + 1, MOST_BYTES)
        if brought is not None:
            return taken(brought)
        said, *streams = self.task.run(frame, GatherTask(), direct=narrow)
        told = decode_all(said)
        if isinstance(told, TooMuch):
            return told
        return [batch for data in streams for batch in from_bytes(data).to_batches()]
