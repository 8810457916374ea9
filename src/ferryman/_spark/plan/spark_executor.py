"""Run the tasks of epochs on Spark: the engine's `Executor`, on the DataFrames that a `Planner` builds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ferryman._engine.broadcast import Broadcast
from ferryman._engine.control import Control
from ferryman._engine.executor import Frame, one_after_the_other
from ferryman._engine.express_or_shuffle import Route, too_much_for_express
from ferryman._engine.lost_receipts import Receipts, with_lost_receipts
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.when_partials_pay import Partials
from ferryman._model.errors import PinningLost
from ferryman._model.receipt import PartialsReceipt, Receipt, TooMuch, decode
from ferryman._spark.api.joint import Joint
from ferryman._spark.api.pipeline import lookups_of, reachable
from ferryman._spark.api.stream import Operated, Stream, moves_rows, plain
from ferryman._spark.compat.partitioned import fast_table
from ferryman._spark.compat.session import computed, opaque
from ferryman._spark.compat.task_function import TRIED
from ferryman._spark.plan.batch_limits import BatchLimits, most_bytes
from ferryman._spark.plan.epoch_settings import EPOCH_CONF, EpochSettings
from ferryman._spark.plan.express import Segments
from ferryman._spark.plan.planner import Planner
from ferryman._spark.plan.side_by_side import side_by_side
from ferryman._state.zones import in_zone


@dataclass(frozen=True)
class SparkFrame:
    """The rows that one sink gets, as a DataFrame."""

    rows: DataFrame

    def compute(self) -> None:
        """Compute all rows once, and keep them."""
        computed(self.rows.persist())

    def is_empty(self) -> bool:
        """Tell whether there are none."""
        return self.rows.isEmpty()

    @property
    def table(self) -> None:
        """Tell that they are not in this process."""


class TableFrame:
    """The rows that one sink gets, which have come to the driver."""

    def __init__(self, table: pa.Table, schema: StructType, spark: SparkSession) -> None:
        self.table = table
        self._schema = schema
        self._spark = spark
        self._rows: DataFrame | None = None

    @property
    def rows(self) -> DataFrame:
        """Make a DataFrame of them."""
        if self._rows is None:
            # In one piece: after a piece without rows, Spark 4.3 takes no more of them; and for times in structs it
            # needs a piece, if an empty one.
            whole = self.table.combine_chunks() if self.table.num_rows else self.table.schema.empty_table()
            made = self._spark.createDataFrame(whole, self._schema)
            # In one partition, as by a shuffle all rows of a key are. And Spark must not know how few they are: it
            # would choose other joins, and drop what it takes for empty.
            self._rows = opaque(made.coalesce(1))
        return self._rows

    def compute(self) -> None:
        """Nothing to do."""

    def forget(self) -> None:
        """Let go of what a sink has had kept."""
        if self._rows is not None and self._rows.is_cached:
            self._rows.unpersist()

    def is_empty(self) -> bool:
        """Tell whether there are none."""
        return not self.table.num_rows


class SparkExecutor:
    """Run the tasks of one job's epochs on Spark.

    Parameters
    ----------
    planner
        Any of the job's planners: all have the same operators.
    outputs
        The streams that sinks get.
    """

    def __init__(self, planner: Planner, outputs: Sequence[Stream]) -> None:
        self.operators: Mapping[str, OperatorSpec] = {name: node.stream.spec for name, node in planner.nodes.items()}
        self.broadcasts: Mapping[str, Broadcast] = {
            table.name: node.stream.broadcasts[table.name.rpartition(".")[2]]
            for node in planner.nodes.values()
            for table in node.stream.spec.tables
            if table.broadcast
        }
        self.lookups = lookups_of(reachable(outputs))
        self.by_file = frozenset(name for name, node in planner.nodes.items() if node.by_file)
        self._nodes = planner.nodes
        self._outputs = outputs
        self._spark, self._pinned = planner.spark, planner.pinned
        self._segments = Segments.of(outputs, planner.nodes)
        self._with_initial = {name for name, node in planner.nodes.items() if node.stream.initial is not None}
        self._limits = BatchLimits(most_bytes(planner.spark), [spec.input for spec in self.operators.values()])
        self._settings = EpochSettings()

    def combinable(self, *, in_order: bool) -> Set[str]:
        """Name the operators with partials: those that take the first or the last row need rows that are in order.

        Before one that is chained there is no shuffle, and nothing to make less.
        """
        return {
            name
            for name, node in self._nodes.items()
            if node.packed_combined is not None and not node.chained and not (in_order and node.stream.picks_by_place)
        }

    def unfit_for_express(self, layout: Planner, *, first: Set[str]) -> str | None:
        """Say why an epoch cannot go by express."""
        if layout.pinned and not TRIED:
            return "the instances are on several hosts, and that was not tried on this version of Spark"
        if first & self._with_initial:
            return "an operator begins with its initial state"
        return None

    def takes_turns(self, layout: Planner) -> bool:
        """Tell whether instances run one after the other by express: on one host, in one task."""
        return not layout.pinned

    def side_by_side(self, calls: Sequence[Callable[[], object]]) -> None:
        """Make calls that run Spark jobs: at the same time on one host, else one after the other.

        A task that is tied to a host waits for it only so long. Behind the tasks of other outputs it would go elsewhere
        in the end, and rebuild there all that its own host has.
        """
        if self._pinned:
            one_after_the_other(calls)
        else:
            side_by_side(self._spark, calls)

    @contextlib.contextmanager
    def execution(self, layout: Planner, source: DataFrame, *, silent: bool, by_file: bool) -> Iterator[SparkExecution]:
        """Begin to carry out an epoch; what it has kept is let go of in the end."""
        # A silent epoch comes in another session than Spark's batches.
        settings = EpochSettings() if silent else self._settings
        settings.give(source.sparkSession, {**EPOCH_CONF, **self._limits.conf()})
        layout.receipts.value = []
        layout.settle()
        execution = SparkExecution(
            layout, source, self._outputs, self._segments, self._limits, settings, by_file=by_file
        )
        try:
            with layout.watched():
                yield execution
        finally:
            execution.forget()
        if execution.saw_rows:
            self._limits.note(receipt.width for receipt in execution.receipts)


class SparkExecution:
    """One epoch on Spark."""

    def __init__(
        self,
        planner: Planner,
        source: DataFrame,
        outputs: Sequence[Stream],
        segments: Segments,
        limits: BatchLimits,
        settings: EpochSettings,
        *,
        by_file: bool,
    ) -> None:
        self.route = Route(False, "")
        self.reading_ms = 0.0
        # Whether all tasks saw the rows themselves: of partials that Spark has made, nothing is to be learned of these.
        self.saw_rows = True
        self._planner = planner
        self._source = source
        self._outputs = outputs
        self._segments = segments
        self._by_file = by_file
        self._limits = limits
        self._settings = settings
        self._made: dict[int, DataFrame] = {}
        self._kept: list[DataFrame] = []
        self.receipts: Receipts = []

    def broadcast_rows(self, table: str) -> pa.Table:
        """Give the rows that came for a broadcast state."""
        operator, _, state = table.rpartition(".")
        stream = self._planner.nodes[operator].stream.broadcasts[state].stream
        return in_zone(self._build(stream, {}, {}, self._made).toArrow())

    def run(
        self,
        controls: Mapping[str, Control],
        route: Route,
        combine: Mapping[str, Partials],
        write: Callable[[Sequence[Frame]], None],
    ) -> Sequence[Receipt | PartialsReceipt]:
        """Run the tasks: by express before the sinks write, else as these ask for their rows."""
        self.route = route
        frames = self._express(controls) if route.express else None
        if frames is not None:
            try:
                write(frames)
            finally:
                for frame in frames:
                    if isinstance(frame, TableFrame):
                        frame.forget()
        else:
            self.saw_rows = not any(partials.in_spark for partials in combine.values())
            self._shuffle(controls, combine, write)
        return self.receipts

    def _express(self, controls: Mapping[str, Control]) -> list[Frame] | None:
        """Run the tasks by express, segment after segment; None if one had more to do than it may."""
        frames: dict[int, TableFrame] = {}
        receipts: list[Receipt | PartialsReceipt] = []
        # What is made of operators' rows here is of no use to a shuffle.
        made = dict(self._made)

        def build(stream: Stream, *, own_only: bool = True) -> DataFrame:
            frame = self._build(stream, controls, {}, made, self._segments.shared, own_only=own_only)
            if isinstance(stream, Joint):
                for part in stream.parts:
                    build(part)
            elif stream.rests_on_operator:
                _refuse_moves(stream, frame)
            return frame

        tasks = self._planner.tasks()
        for segment in self._segments.plans:
            done = segment.run(build(segment.root, own_only=False), controls, tasks, narrow=self._limits.narrow)
            if isinstance(done, TooMuch):
                self.route = too_much_for_express(done)
                return None
            receipts += done.receipts
            # Not all together: each has some milliseconds that do not depend on how many tasks read.
            self.reading_ms = max(self.reading_ms, done.reading_ms)
            for stream, table in zip(segment.given, done.tables, strict=True):
                frame = frames[id(stream)] = TableFrame(table, stream.schema.toNullable(), self._source.sparkSession)
                if id(stream) in self._segments.read_on:
                    made[id(stream)] = frame.rows
        self.receipts = receipts
        return [frames.get(id(plain(stream))) or self._frame(build(stream)) for stream in self._outputs]

    def _shuffle(
        self, controls: Mapping[str, Control], combine: Mapping[str, Partials], write: Callable[[Sequence[Frame]], None]
    ) -> None:
        """Have the sinks write; the tasks run as their rows are asked for."""
        made_by_spark = [partials.keys for partials in combine.values() if partials.in_spark]
        if made_by_spark:
            self._settings.give(self._source.sparkSession, fast_table(max(made_by_spark)))
        frames = [self._frame(self._build(stream, controls, combine, self._made)) for stream in self._outputs]
        try:
            write(frames)
        finally:
            self.forget()

        def run_again(name: str) -> None:
            computed(self._build(self._planner.nodes[name].stream, controls, combine, {}, frozenset()))

        self.receipts = with_lost_receipts(controls, self._planner.routing.instances, self._read, run_again)

    def _read(self) -> list[Receipt | PartialsReceipt]:
        return [decode(data) for data in self._planner.receipts.value]

    def forget(self) -> None:
        """Let go of the rows that were kept."""
        for frame in self._kept:
            if frame.is_cached:
                frame.unpersist()

    def _frame(self, rows: DataFrame) -> SparkFrame:
        # A sink may have it kept.
        self._kept.append(rows)
        return SparkFrame(rows)

    def _build(
        self,
        stream: Stream,
        controls: Mapping[str, Control],
        combine: Mapping[str, Partials],
        made: dict[int, DataFrame],
        shared: Set[int] | None = None,
        *,
        own_only: bool = True,
    ) -> DataFrame:
        known = set(made)
        frame = self._planner.build(
            stream,
            self._source,
            controls,
            combine,
            made,
            shared=shared,
            by_file=self._by_file,
            own_only=own_only,
            most_bytes=self._limits.most_bytes,
        )
        self._kept += [made[number] for number in made.keys() - known]
        return frame


def _refuse_moves(stream: Stream, frame: DataFrame) -> None:
    """Refuse a step after an operator that moves rows in an epoch, though it did not when it was declared.

    By a shuffle the tasks notice, as their number is then another. Here they would not.
    """
    moving = moves_rows(frame)
    if moving is not None:
        above = stream
        while not isinstance(above, Operated):
            above = above.parent
        raise PinningLost(
            f"operator {above.spec.name!r}: a step after it moves rows between partitions ({moving}), so Spark would "
            "not run one partition per instance. Keep unions, coalesce and repartition out of `transform` between "
            "operators. The epoch was not committed."
        )
