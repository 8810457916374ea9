"""Compose the Spark plan of an epoch: route, shuffle, pin, run; from few expressions, built once.

    source -> select(columns, hash, sequence, token) -> [partials] -> repartition(N, token) -> [union anchor]
           -> mapInArrow(instance task)

Partition number and instance number are the same. On a cluster the anchor, a cached one-row-per-instance
DataFrame, ties each instance to the host that caches its row; on one host there is nothing to tie, and
the plan goes without it. An operator that is chained has no shuffle of its own (`chaining`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

import numpy as np
from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, IntegerType, LongType, StructField, StructType

from ferryman._engine.control import Control
from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.routing_columns import FILE, PART, SEQUENCE, TOKEN
from ferryman._migrate.layout import InstanceHost, Launch
from ferryman._model.errors import OperatorFailed
from ferryman._model.routing import RoutingTable
from ferryman._operator.run.aggregate_runner import AggregateRunner
from ferryman._routing.tokens import tokens
from ferryman._spark.api.stream import Operated, Parted, Source, Stream, Transformed, Watermarked
from ferryman._spark.compat.partitioned import aggregated_in_partitions
from ferryman._spark.compat.session import int_literal
from ferryman._spark.plan.anchor import Anchor
from ferryman._spark.plan.batch_limits import MOST_BYTES
from ferryman._spark.plan.chaining import is_chained
from ferryman._spark.plan.file_of_row import with_file
from ferryman._spark.plan.instance_hosts import PLACES, EndHost, FindHost
from ferryman._spark.plan.instance_task import InstanceTask
from ferryman._spark.plan.partial_columns import partial_columns
from ferryman._spark.plan.partials import COUNT, CombineTask
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
    columns: list[Column]
    output: StructType
    routed: StructType
    partial: StructType
    packed: Packed
    packed_combined: Packed | None
    partial_columns: list[Column] | None
    by_file: bool
    chained: bool


@dataclass
class Planner:
    """Build the DataFrames of each epoch, for one routing table."""

    spark: SparkSession
    routing: RoutingTable
    pinned: bool
    shared: set[int]
    receipts: Accumulator[list[bytes]]
    nodes: dict[str, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Choose the tokens."""
        self.tokens = tokens(self.routing.instances)
        self._tokens = np.array([self.tokens[owner] for owner in self.routing.owner], dtype=np.int32)
        self._table = int_literal(self.spark, self._tokens)
        self._pinned = {hash: self.tokens[instance] for hash, instance in self.routing.pinned.items()}
        self.anchor = Anchor(self.spark, self.tokens)
        # The anchor's rows for each operator, with the frame that they were made of.
        self._tied: dict[tuple[str, bool], tuple[DataFrame, DataFrame]] = {}

    def settle(self, tries: int = 1) -> None:
        """Spread the instances over the executors there are now, if these are not those of the epoch before."""
        if self.pinned:
            self.anchor.settle(tries)

    @property
    def spread(self) -> DataFrame | None:
        """Give what ties the instances to hosts: another one if they have been spread anew; None on a single host."""
        return self.anchor.frame

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
        """Let go of the anchor, unless another planner has the same."""
        self.anchor.release(None if but_for is None else but_for.anchor)

    def add(self, stream: Operated) -> None:
        """Prepare an operator's part of the plan."""
        parent, spec = stream.parent, stream.spec
        inputs = spec.input.names
        fields = [parent.schema[name] for name in inputs if name != INITIAL]
        if stream.initial is not None:
            fields.append(StructField(INITIAL, stream.initial.schema[INITIAL].dataType))
        routing = [
            StructField(HASH, LongType(), False),
            StructField(SEQUENCE, LongType(), False),
            StructField(TOKEN, IntegerType(), False),
        ]
        keys = [parent.schema[name] for name in spec.key.fields.names]
        partial = StructType([*keys, *to_spark(spec.state), *routing])
        hashed = hash_of(keys, [F.col(f"`{key.name}`") for key in keys])
        node = Node(
            stream=stream,
            hashed=hashed,
            columns=self._columns(stream, hashed),
            # Whatever was declared: a null in a column that Spark takes for one without would be an error of Arrow's.
            output=stream.schema.toNullable(),
            routed=StructType([*fields, *routing]),
            partial=partial,
            packed=Packed.of(spec),
            packed_combined=Packed.of(stream.combined) if stream.combined else None,
            partial_columns=_partial_columns(stream),
            by_file=stream.initial is None and self._by_file(parent),
            chained=is_chained(stream),
        )
        self.nodes[spec.name] = node

    def _by_file(self, stream: Stream) -> bool:
        """Tell whether rows that come to an operator know their file, if the source's are of files."""
        transformed = False
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

    def rerouted(self, routing: RoutingTable) -> Planner:
        """Give a planner for the same operators and another routing table; as many instances stay where they are."""
        other = Planner(self.spark, routing, self.pinned, self.shared, self.receipts)
        for name, node in self.nodes.items():
            other.nodes[name] = replace(node, columns=other._columns(node.stream, node.hashed))
        if routing.instances == self.routing.instances:
            other.anchor = self.anchor.same(other.tokens)
        return other

    def build(
        self,
        stream: Stream,
        source: DataFrame,
        controls: Mapping[str, Control],
        combine: Mapping[str, bool],
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
                    if by_file and isinstance(stream, (Source, Watermarked, Transformed)):
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
        combine: Mapping[str, bool],
        built: Callable[[Stream], DataFrame],
        *,
        by_file: bool,
        most_bytes: int,
    ) -> DataFrame:
        """Give the DataFrame of a stream, made of what it rests on."""
        if isinstance(stream, Source):
            return source
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
        if node.chained:
            # Its rows are where they belong, and so are its tasks: they are those of the operator before.
            return self._run(node.packed, parent.select(*node.columns), control, node.output, most_bytes)
        return self._operate(node, parent, control, combine.get(stream.spec.name), most_bytes)

    def _operate(
        self, node: Node, parent: DataFrame, control: Control, in_spark: bool | None, most_bytes: int
    ) -> DataFrame:
        """Give the DataFrame of an operator's output; its rows are aggregated before, unless `in_spark` is None."""
        packed, anchor = node.packed, self._anchor_rows(node, combined=False)
        if in_spark is not None and node.packed_combined is not None:
            routed = self._partials(node, parent, control, in_spark=in_spark)
            packed, anchor = node.packed_combined, self._anchor_rows(node, combined=True)
        elif control.files:
            routed = with_file(parent).select(*node.columns, FILE)
            anchor = None if anchor is None else anchor.select("*", F.lit(0).cast("long").alias(FILE))
        else:
            routed = parent.select(*node.columns)
        routed = routed.repartition(self.routing.instances, TOKEN)
        routed = self.anchor.tied(routed, anchor)
        return self._run(packed, routed, control, node.output, most_bytes)

    def _run(
        self, packed: Packed, routed: DataFrame, control: Control, output: StructType, most_bytes: int
    ) -> DataFrame:
        task = InstanceTask(packed.data, packed.digest, control, self.receipts, packed.shared, most_bytes)
        return routed.mapInArrow(task, output)

    def _partials(self, node: Node, parent: DataFrame, control: Control, *, in_spark: bool) -> DataFrame:
        """Aggregate the rows of each task that reads, by Spark's own code if that can be; and route what that gives."""
        packed, made = node.packed, None
        if in_spark and node.partial_columns is not None:
            keys = [F.col(f"`{name}`") for name in node.stream.spec.key.fields.names]
            rows = parent
            if rows.columns[-1] != PART:
                rows = rows.drop(PART).select("*", F.spark_partition_id().alias(PART))
            made = aggregated_in_partitions(rows, keys, [*node.partial_columns, F.count(F.lit(1)).alias(COUNT)])
        combiner = CombineTask(
            packed=packed.data,
            digest=packed.digest,
            epoch=control.epoch,
            tokens=self._tokens,
            pinned=self._pinned,
            receipts=self.receipts,
            made_already=made is not None,
        )
        # The combiner makes sequence and token itself: two columns less on the way to Python.
        chosen = parent.select(*node.columns[:-2]) if made is None else made.withColumn(HASH, node.hashed)
        return chosen.mapInArrow(combiner, node.partial)

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
    return frame.drop(*ours) if ours else frame


def _partial_columns(stream: Operated) -> list[Column] | None:
    runner = stream.spec.runner
    if not isinstance(runner, AggregateRunner):
        return None
    return partial_columns(runner.aggregation, stream.parent.schema, stream.spec.key.fields.names)


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
