"""Compose the Spark plan of an epoch: route, shuffle, pin, run; from few expressions, built once.

    source -> select(columns, hash, sequence, token) -> [partials] -> repartition(N, token) -> [union anchor]
           -> mapInArrow(instance task)

Partition number and instance number are the same. On a cluster the anchor, a one-row-per-instance
DataFrame, ties each instance to its berth, a host; on one host there is nothing to tie, and
the plan goes without it. An operator that is chained has no shuffle of its own (`chaining`).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, IntegerType, LongType, StructField, StructType

from ferryman._engine.control import Control
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.routing_columns import FILE, PART, SEQUENCE, TOKEN
from ferryman._engine.when_partials_pay import Partials
from ferryman._migrate.layout import InstanceHost, Launch
from ferryman._model.errors import OperatorFailed
from ferryman._model.routing import RoutingTable
from ferryman._operator.run.aggregate_runner import AggregateRunner
from ferryman._routing.tokens import tokens
from ferryman._spark.api.job_sources import TAG, JobSources, struct_of
from ferryman._spark.api.joint import Joint
from ferryman._spark.api.stream import Operated, Parted, Source, Stream, Transformed, Watermarked, plain
from ferryman._spark.compat.frame_steps import MappedInArrow, Repartitioned
from ferryman._spark.compat.pinned_tasks import PinnedTasks
from ferryman._spark.compat.session import int_literal, passed_on
from ferryman._spark.plan.anchor import Anchor
from ferryman._spark.plan.batch_limits import MOST_BYTES
from ferryman._spark.plan.chaining import is_chained
from ferryman._spark.plan.executors_there import ExecutorsThere
from ferryman._spark.plan.file_of_row import with_file
from ferryman._spark.plan.instance_hosts import PLACES, EndHost, FindHost
from ferryman._spark.plan.instance_task import InstanceTask
from ferryman._spark.plan.operator_steps import OperatorSteps
from ferryman._spark.plan.partial_columns import partial_columns
from ferryman._spark.plan.partials import CombineTask
from ferryman._spark.plan.schema import to_spark
from ferryman._spark.plan.user_code import Shared, pickled
from ferryman._spark.processor.processor_runner import INITIAL
from ferryman._state.store.contract import HASH


class Bytes(AccumulatorParam[list[bytes]]):
    """Gather receipts in a list."""

    def zero(self, value: list[bytes]) -> list[bytes]:
        """Begin with none."""
        return []

    def addInPlace(self, value1: list[bytes], value2: list[bytes]) -> list[bytes]:
        """Append."""
        value1.extend(value2)
        return value1


@dataclass(frozen=True)
class Packed:
    """A spec as it travels: pickled once per job, as Spark pickles user code, and known by its digest.

    `shared` are the broadcast variables of Spark that it uses.
    """

    data: bytes
    digest: str
    shared: Shared = ()

    @classmethod
    def of(cls, spec: OperatorSpec) -> Packed:
        """Pack a spec; what cannot travel is refused before anything is started."""
        try:
            data, shared = pickled(spec)
        except Exception as error:
            raise OperatorFailed(
                f"operator {spec.name!r} cannot be sent to Spark's Python workers: {type(error).__name__}: {error}. "
                "It, its class or what its functions use holds something that belongs to this process: a lock, a "
                "connection, an open file, the Spark session. Make that in `process` when it is first needed, or in "
                "a function that a worker calls. Nothing was started."
            ) from error
        return cls(data, hashlib.blake2b(data, digest_size=12).hexdigest(), shared)


@dataclass(kw_only=True)
class Node:
    """An operator's part of the plan that does not change from epoch to epoch."""

    stream: Operated
    hashed: Column
    steps: OperatorSteps
    output: StructType
    routed: StructType
    partial: StructType
    packed: Packed
    packed_combined: Packed | None
    partial_columns: list[Column] | None
    by_file: bool
    chained: bool


@dataclass(kw_only=True)
class Planner:
    """Build the DataFrames of each epoch, for one routing table."""

    spark: SparkSession
    routing: RoutingTable
    pinned: bool
    shared: set[int]
    receipts: Accumulator[list[bytes]]
    sources: JobSources = field(default_factory=lambda: JobSources([]))
    # Operators whose tasks may be those of a stage that others have tasks in as well.
    united: frozenset[str] = frozenset()
    nodes: dict[str, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Choose the tokens."""
        self.tokens = tokens(self.routing.instances)
        self._tokens = np.array([self.tokens[owner] for owner in self.routing.owner], dtype=np.int32)
        self._table = int_literal(self.spark, self._tokens)
        self._pinned = {hash: self.tokens[instance] for hash, instance in self.routing.pinned.items()}
        # Tells how many hosts stand by for each.
        self.standbys: Callable[[], int] = lambda: 0
        self.executors = ExecutorsThere(self.spark)
        self.anchor = Anchor(self.spark, self.tokens, lambda: self.standbys(), self.executors)
        self._parted = Repartitioned(self.routing.instances, TOKEN)
        # The anchor's rows for each operator, with the frame that they were made of.
        self._tied: dict[tuple[str, bool], tuple[DataFrame, DataFrame]] = {}

    def settle(self, ran: Sequence[str] = ()) -> None:
        """Give the instances berths on the executors there are now, if these are not those of the epoch before."""
        if self.pinned:
            self.anchor.settle(ran)

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """Look for lost executors while an epoch is under way."""
        return self.anchor.watched() if self.pinned else contextlib.nullcontext()

    @property
    def spread(self) -> object | None:
        """Give where the instances are: another object if that was looked at anew; None on a single host."""
        return self.anchor.berths if self.pinned else None

    def tasks(self) -> PinnedTasks | None:
        """Give what runs a task per instance, each where its instance is; None on a single host."""
        return self.anchor.tasks() if self.pinned else None

    @property
    def stores(self) -> dict[str, str]:
        """Give the store of every table that is kept by key group."""
        return {table.name: table.backend for node in self.nodes.values() for table in node.stream.spec.kept}

    def hosts(self) -> dict[int, str]:
        """Tell which host each instance is tied to, by the name that Spark has for it; nothing on a single host."""
        return self.anchor.hosts()

    def cluster_hosts(self) -> set[str]:
        """Name the hosts of the executors there are now, as Spark does."""
        return self.anchor.executor_hosts()

    def hosts_on(self, open: frozenset[str]) -> dict[int, str]:
        """Tell which host each instance would be tied to if these hosts alone were open."""
        return dict(enumerate(self.anchor.berths_on(open).hosts))

    def keep_to(self, open: frozenset[str]) -> bool:
        """Have only these hosts open from now on, if no instance has to move for it; tell whether it is so."""
        return self.anchor.keep_to(open)

    @property
    def leaving(self) -> frozenset[str]:
        """Name the hosts whose executors are about to go, as it was looked last."""
        return self.executors.leaving

    def find_hosts(self, launch: Launch) -> dict[int, InstanceHost]:
        """Look where the instances are, and start the state hosts there; nothing where there is only one host."""
        frame = self.anchor.frame
        if frame is None:
            return {}
        rows = frame.mapInArrow(FindHost(launch), PLACES).collect()
        return {row["instance"]: InstanceHost(row["host"], row["location"]) for row in rows}

    def end_hosts(self, launch: Launch) -> None:
        """End the state hosts on every executor, as far as Spark spreads a job over all."""
        tasks = 4 * self.spark.sparkContext.defaultParallelism
        self.spark.range(0, tasks, 1, tasks).mapInArrow(EndHost(launch), "id long").collect()

    def release(self, but_for: Planner | None = None) -> None:
        """Let go of what ties the instances: nothing that would have to be given back."""

    def add(self, stream: Operated) -> None:
        """Prepare an operator's part of the plan."""
        parent, spec = stream.parent, stream.spec
        begins = {} if stream.initial is None else {INITIAL: stream.initial.schema[INITIAL].dataType}
        # In the order in which they are selected: what a union brings along comes last.
        fields = [
            StructField(name, begins[name]) if name in begins else parent.task_columns[name]
            for name in spec.input.names
        ]
        routing = [
            StructField(HASH, LongType(), False),
            StructField(SEQUENCE, LongType(), False),
            StructField(TOKEN, IntegerType(), False),
        ]
        keys = [parent.schema[name] for name in spec.key.fields.names]
        kept = to_spark(spec.runner.partials.state if isinstance(spec.runner, AggregateRunner) else spec.state)
        partial = StructType([*keys, *kept, *routing])
        routed_by = [parent.schema[name] for name in spec.routed.names]
        hashed = hash_of(routed_by, [F.col(f"`{key.name}`") for key in routed_by])
        # Whatever was declared: a null in a column that Spark takes for one without would be an error of Arrow's.
        output = stream.schema.toNullable()
        routed, partials = StructType([*fields, *routing]), _partial_columns(stream)
        self.nodes[spec.name] = Node(
            stream=stream,
            hashed=hashed,
            steps=self._steps(stream, hashed, routed, partial, output, partials),
            output=output,
            routed=routed,
            partial=partial,
            packed=Packed.of(spec),
            packed_combined=Packed.of(stream.combined) if stream.combined else None,
            partial_columns=partials,
            by_file=stream.initial is None and self._by_file(parent),
            chained=is_chained(stream),
        )

    def _steps(
        self,
        stream: Operated,
        hashed: Column,
        routed: StructType,
        partial: StructType,
        output: StructType,
        partials: list[Column] | None,
    ) -> OperatorSteps:
        columns, keys = self._columns(stream, hashed), stream.spec.key.fields.names
        return OperatorSteps(columns, routed, partial, output, keys=keys, hashed=hashed, partials=partials)

    def _by_file(self, stream: Stream) -> bool:
        """Tell whether rows that come to an operator know their file, if the source's are of files."""
        transformed = False
        if isinstance(stream, Joint):
            return all(self._by_file(part) for part in stream.parts)
        while not isinstance(stream, Source):
            if isinstance(stream, Transformed):
                transformed = True
                if not stream.knows_its_file:
                    return False
            elif not isinstance(stream, Watermarked):
                return False
            stream = stream.parent
            if transformed and id(stream) in self.shared:
                # What is kept for several readers is not read from files again.
                return False
        return stream.knows_its_file

    def _columns(self, stream: Operated, hashed: Column) -> list[Column]:
        """Select what an operator's tasks get: its input, and where each row goes by the hash of its key."""
        group = F.pmod(hashed, F.lit(len(self.routing.owner))).cast("int")
        token = self._table[group]
        if self._pinned:
            own = F.lit(np.array(list(self._pinned.values()), np.int32))
            place = F.array_position(F.lit(np.array(list(self._pinned), np.int64)), hashed) - 1
            # Only rows of pinned keys are looked up in the list; for the others this is one look into a set.
            token = F.when(hashed.isin(list(self._pinned)), own[place.cast("int")]).otherwise(token)
        token = F.coalesce(token, F.lit(self.tokens[0])).alias(TOKEN)
        columns = [F.col(f"`{name}`") for name in stream.spec.input.names]
        return [*columns, hashed.alias(HASH), F.monotonically_increasing_id().alias(SEQUENCE), token]

    def rerouted(self, routing: RoutingTable, open: frozenset[str] | None = None) -> Planner:
        """Give a planner for the same operators and another routing table; as many instances stay where they are.

        Unless other hosts are to be open from then on.
        """
        other = Planner(
            spark=self.spark,
            routing=routing,
            pinned=self.pinned,
            shared=self.shared,
            receipts=self.receipts,
            sources=self.sources,
            united=self.united,
        )
        for name, node in self.nodes.items():
            steps = other._steps(node.stream, node.hashed, node.routed, node.partial, node.output, node.partial_columns)
            other.nodes[name] = replace(node, steps=steps)
        other.standbys, other.executors = self.standbys, self.executors
        if routing.instances == self.routing.instances:
            other.anchor = self.anchor if open in (None, self.anchor.open) else self.anchor.on(open)
        else:
            other.anchor.executors, other.anchor.open = self.executors, self.anchor.open if open is None else open
        return other

    def build(
        self,
        stream: Stream,
        source: DataFrame,
        controls: Mapping[str, Control],
        combine: Mapping[str, Partials],
        made: dict[int, DataFrame],
        *,
        shared: Set[int] | None = None,
        by_file: bool = False,
        own_only: bool = True,
        most_bytes: int = MOST_BYTES,
    ) -> DataFrame:
        """Give the DataFrame of a stream in an epoch.

        `made` has those of other streams already. The rows of `shared` streams, by default those that several read, are
        computed once and kept. With `by_file`, these bring their files along, as the epoch's are from several. Unless
        told otherwise, the stream itself is given without that, and without what the source's rows bring along. No more
        than `most_bytes` goes back to Spark at once.
        """
        kept = self.shared if shared is None else shared

        def built(stream: Stream) -> DataFrame:
            if id(stream) not in made:
                frame = self._made_of(stream, source, controls, combine, built, by_file=by_file, most_bytes=most_bytes)
                if id(stream) in kept:
                    if by_file and isinstance(stream, (Source, Watermarked, Transformed, Joint)):
                        frame = with_file(frame)
                    frame = frame.persist()
                made[id(stream)] = frame
            return made[id(stream)]

        frame = built(stream)
        return _own_columns(frame, stream, by_file=by_file) if own_only else frame

    def _made_of(
        self,
        stream: Stream,
        source: DataFrame,
        controls: Mapping[str, Control],
        combine: Mapping[str, Partials],
        built: Callable[[Stream], DataFrame],
        *,
        by_file: bool,
        most_bytes: int,
    ) -> DataFrame:
        """Give the DataFrame of a stream, made of what it rests on."""
        if isinstance(stream, Source):
            return self.sources.rows_of(stream, source)
        if isinstance(stream, Joint):
            return self._joint(stream, source, built, by_file=by_file)
        if isinstance(stream, Watermarked):
            return built(stream.parent)
        if isinstance(stream, Parted):
            return stream.of(built(stream.parent))
        if isinstance(stream, Transformed):
            return stream.function(_own_columns(built(stream.parent), stream.parent, by_file=by_file))
        assert isinstance(stream, Operated), "a stream is a source, a transformation or an operator's output"
        parent, control = built(stream.parent), controls[stream.spec.name]
        if stream.initial is not None:
            parent = with_initial(parent, stream.initial, stream.spec, first=control.first)
        node = self.nodes[stream.spec.name]
        if node.chained and self._keeps_key(stream, parent, built):
            # Its rows are where they belong, and so are its tasks: they are those of the operator before.
            return self._run(node, node.steps.run, node.packed, node.steps.route.of(parent), control, most_bytes)
        return self._operate(node, parent, control, combine.get(stream.spec.name), most_bytes)

    def _joint(
        self, stream: Joint, source: DataFrame, built: Callable[[Stream], DataFrame], *, by_file: bool
    ) -> DataFrame:
        """Give the rows of a stream that is made of several: where all are sources as they are, in one pass."""
        also = [FILE] if by_file else []
        places = self._places(stream)
        if places is not None:
            rows = with_file(source) if by_file else source
            return stream.of_one(rows, TAG, [(place, struct_of(place)) for place in places], also)
        frames = [built(part) for part in stream.parts]
        return stream.of([with_file(frame) for frame in frames] if by_file else frames, also)

    def _places(self, stream: Joint) -> list[int] | None:
        """Give the places of the sources that a stream is made of, if it is made of sources as they are."""
        parts = [plain(part) for part in stream.parts]
        sources = [part for part in parts if isinstance(part, Source) and id(part) not in self.shared]
        distinct = len({id(part) for part in sources}) == len(stream.parts)
        return [self.sources.place(part) for part in sources] if distinct and not self.sources.alone else None

    @staticmethod
    def _keeps_key(stream: Operated, rows: DataFrame, built: Callable[[Stream], DataFrame]) -> bool:
        """Tell whether the steps before an operator that is chained leave the key alone in this epoch too."""
        above = stream.parent
        while isinstance(above, Transformed):
            above = above.parent
        return above is stream.parent or passed_on(rows, built(above)).issuperset(stream.spec.routed.names)

    def _operate(
        self, node: Node, parent: DataFrame, control: Control, partials: Partials | None, most_bytes: int
    ) -> DataFrame:
        """Give the DataFrame of an operator's output; where partials pay, its rows are aggregated before."""
        packed, steps, run = node.packed, node.steps, node.steps.run
        anchor = self._anchor_rows(node, combined=False)
        if partials is not None and node.packed_combined is not None:
            routed = self._partials(node, parent, control, in_spark=partials.in_spark)
            packed, run, anchor = node.packed_combined, steps.run_on_partials, self._anchor_rows(node, combined=True)
        elif control.files:
            routed, run = steps.route_with_file.of(with_file(parent)), steps.run_with_file
            anchor = None if anchor is None else anchor.select("*", F.lit(0).cast("long").alias(FILE))
        else:
            routed = steps.route.of(parent)
        routed = self.anchor.tied(self._parted.of(routed), anchor)
        return self._run(node, run, packed, routed, control, most_bytes)

    def _run(
        self, node: Node, run: MappedInArrow, packed: Packed, routed: DataFrame, control: Control, most_bytes: int
    ) -> DataFrame:
        united = node.stream.spec.name in self.united
        task = InstanceTask(
            packed=packed.data,
            digest=packed.digest,
            control=control,
            receipts=self.receipts,
            shared=packed.shared,
            most_bytes=most_bytes,
            united=united,
        )
        return run.of(routed, task)

    def _partials(self, node: Node, parent: DataFrame, control: Control, *, in_spark: bool) -> DataFrame:
        """Aggregate the rows of each task that reads, by Spark's own code if that can be; and route what that gives."""
        packed, steps = node.packed, node.steps
        made = steps.aggregate.of(parent) if in_spark and steps.aggregate is not None else None
        combiner = CombineTask(
            packed=packed.data,
            digest=packed.digest,
            epoch=control.epoch,
            tokens=self._tokens,
            pinned=self._pinned,
            receipts=self.receipts,
            made_already=made is not None,
        )
        if made is not None:
            return steps.tell.of(steps.hash.of(made), combiner)
        return steps.combine.of(steps.choose.of(parent), combiner)

    def _anchor_rows(self, node: Node, *, combined: bool) -> DataFrame | None:
        """Give what ties the tasks of an operator: of the anchor there is now, which plans may share."""
        name, frame = (node.stream.spec.name, combined), self.anchor.frame
        if frame is None:
            return None
        made_of, rows = self._tied.get(name, (None, frame))
        if made_of is not frame:
            rows = Anchor.rows_for(frame, node.partial if combined else node.routed)
            self._tied[name] = frame, rows
        return rows


def _own_columns(frame: DataFrame, stream: Stream, *, by_file: bool) -> DataFrame:
    """Give the DataFrame of a stream without the columns that are for routing only."""
    while isinstance(stream, Watermarked):
        stream = stream.parent
    ours = [*([FILE] if by_file else []), *([PART] if isinstance(stream, Source) else [])]
    ours += [name for name in stream.task_columns.names if name not in stream.schema.names]
    return frame.drop(*(F.col(f"`{name}`") for name in ours)) if ours else frame


def _partial_columns(stream: Operated) -> list[Column] | None:
    runner = stream.spec.runner
    if not isinstance(runner, AggregateRunner):
        return None
    return partial_columns(runner.partials, stream.parent.schema, stream.spec.key.fields.names)


def with_initial(rows: DataFrame, initial: DataFrame, spec: OperatorSpec, *, first: bool) -> DataFrame:
    """Add the column for an operator's initial state; in the first epoch, its rows too."""
    rows = rows.withColumn(INITIAL, F.lit(None).cast(initial.schema[INITIAL].dataType))
    if not first:
        return rows
    keys = set(spec.key.fields.names)
    columns = [
        F.col(f"`{column.name}`") if column.name in keys else F.lit(None).cast(column.dataType).alias(column.name)
        for column in rows.schema
        if column.name != INITIAL
    ]
    return rows.union(initial.select(*columns, INITIAL))


def hash_of(keys: list[StructField], columns: list[Column]) -> Column:
    """Hash keys, given their fields and the columns they are in."""
    return F.xxhash64(*(_hashable(key, column) for key, column in zip(keys, columns, strict=True)))


def _hashable(key: StructField, column: Column) -> Column:
    # 0.0 and -0.0 are one key; adding 0.0 makes them one value.
    return column + F.lit(0.0) if isinstance(key.dataType, (FloatType, DoubleType)) else column
