"""Compose the Spark plan of an epoch: route, shuffle, pin, run; from few expressions, built once.

    source -> select(columns, hash, sequence, token) -> [partials] -> repartition(N, token) -> [union anchor]
           -> mapInArrow(instance task)

Partition number and instance number are the same. On a cluster the anchor, a cached one-row-per-instance
DataFrame, ties each instance to the host that caches its row; on one host there is nothing to tie, and
the plan goes without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, IntegerType, LongType, StructField, StructType

from ferryman._model.errors import OperatorFailed
from ferryman._model.records import RoutingTable
from ferryman._routing.tokens import tokens
from ferryman._spark.combine import CombineTask
from ferryman._spark.file_order import FILE, with_file
from ferryman._spark.hosts import PLACES, EndHost, FindHost, Place
from ferryman._spark.processor.run import INITIAL
from ferryman._spark.schema import to_spark
from ferryman._spark.stream import Operated, Parted, Source, Stream, Transformed, Watermarked
from ferryman._spark.task import SEQUENCE, TOKEN, Control, InstanceTask, OperatorSpec
from ferryman._spark.user_code import Shared, pickled
from ferryman._state.store.contract import HASH

# What the plan of an epoch needs of the session that runs it, whatever the user's own session has.
EPOCH_CONF = {"spark.sql.adaptive.enabled": "false"}

# Whether a shuffle asks for the hosts that its rows are on. Read when the application starts, so never an epoch's own.
SHUFFLE_PULLS = "spark.shuffle.reduceLocality.enabled"
# How often an anchor is made at the most, to have the instances spread over the executors.
_MOST_ANCHORS = 10


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


@dataclass
class Node:
    """An operator's part of the plan that does not change from epoch to epoch."""

    stream: Operated
    columns: list[Column]
    output: StructType
    routed: StructType
    partial: StructType
    packed: Packed
    packed_combined: Packed | None
    by_file: bool
    anchor: DataFrame | None = None
    anchor_combined: DataFrame | None = None


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
        self._table = _literal(self.spark, self._tokens)
        self._pinned = {hash: self.tokens[instance] for hash, instance in self.routing.pinned.items()}
        self._anchor: DataFrame | None = None
        # Spark runs a partition of a union on the host that most of its parts ask for. Unless this is off, the shuffle
        # asks too, for the host that wrote most of its rows, and then it takes two anchors to outvote it.
        self._shuffle_pulls = self.spark.sparkContext.getConf().get(SHUFFLE_PULLS, "true") != "false"
        self._executors: frozenset[str] = frozenset()
        self._anchors_left = 0

    def settle(self, tries: int = 1) -> None:
        """Spread the instances over the executors there are now, if these are not those of the epoch before.

        An anchor's rows that were cached by a lost executor are computed again wherever there was room, and would keep
        their instances there, away from an executor that came in its place or later. Where Spark had no room but on
        some executors, or one was not ready yet, the anchor is made again: now, so many times, or in the next epochs.
        """
        if not self.pinned:
            return
        # Taken first: an executor that comes while the anchor is made is a change that the next epoch sees.
        executors = self._current_executors()
        if self._anchor is None or not self._anchor.is_cached or executors != self._executors:
            self._anchor_at(self._make_anchor())
            self._executors, self._anchors_left = executors, _MOST_ANCHORS
        while self._anchors_left:
            assert self._anchor is not None, "it was made above"
            fullest = self._fullest(self._anchor)
            # The driver is listed as an executor.
            if fullest <= -(-self.routing.instances // max(1, len(executors) - 1)):
                self._anchors_left = 0
            if not tries or not self._anchors_left:
                return
            tries, self._anchors_left = tries - 1, self._anchors_left - 1
            other = self._make_anchor()
            if self._fullest(other) < fullest:
                self._anchor_at(other)
            else:
                other.unpersist()

    def _anchor_at(self, anchor: DataFrame) -> None:
        self.release()
        self._anchor = anchor
        for node in self.nodes.values():
            node.anchor = _anchor_for(anchor, node.routed)
            node.anchor_combined = _anchor_for(anchor, node.partial)

    def _current_executors(self) -> frozenset[str]:
        context: Any = self.spark.sparkContext._jsc.sc()
        return frozenset(context.getExecutorMemoryStatus().keySet().mkString(",").split(","))

    def executor_hosts(self) -> set[str]:
        """Name the hosts of the executors there are now, as Spark does."""
        return {one.rpartition(":")[0] for one in self._current_executors()}

    def _fullest(self, anchor: DataFrame) -> int:
        """Count the rows of an anchor on the executor that has most."""
        where = [locations.mkString(",") for locations in self._cached_at(anchor)]
        return max(where.count(one) for one in where)

    def _cached_at(self, anchor: DataFrame) -> list[Any]:
        """Find where Spark has cached the row of each instance."""
        context: Any = self.spark.sparkContext._jsc.sc()
        rows = anchor._jdf.queryExecution().toRdd()
        return [context.getPreferredLocs(rows, one) for one in range(self.routing.instances)]

    def hosts(self) -> dict[int, str]:
        """Tell which host each instance is tied to, by the name that Spark has for it; nothing on a single host."""
        cached = [] if self._anchor is None else self._cached_at(self._anchor)
        return {instance: found.apply(0).host() for instance, found in enumerate(cached) if found.size()}

    def _make_anchor(self) -> DataFrame:
        schema = StructType([StructField(TOKEN, IntegerType(), False)])
        session = self.spark.newSession()
        for name, value in EPOCH_CONF.items():
            session.conf.set(name, value)
        rows = session.createDataFrame([(token,) for token in self.tokens], schema)
        anchor = rows.repartition(self.routing.instances, TOKEN).cache()
        anchor.count()
        return anchor

    @property
    def anchor(self) -> DataFrame | None:
        """Give what ties the instances to hosts: another one if they have been spread anew; None on a single host."""
        return self._anchor

    def places(self, find: FindHost) -> dict[int, Place]:
        """Tell where every instance is; nothing where there is only one host."""
        if self._anchor is None:
            return {}
        rows = self._anchor.mapInArrow(find, PLACES).collect()
        return {row["instance"]: Place(row["host"], row["location"]) for row in rows}

    def everywhere(self, work: EndHost) -> None:
        """Have something done on every executor, as far as Spark spreads a job over all."""
        tasks = 4 * self.spark.sparkContext.defaultParallelism
        self.spark.range(0, tasks, 1, tasks).mapInArrow(work, "id long").collect()

    def release(self, but_for: Planner | None = None) -> None:
        """Let go of the anchor, unless another planner has the same."""
        if self._anchor is not None and (but_for is None or self._anchor is not but_for._anchor):
            self._anchor.unpersist()

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
        node = Node(
            stream,
            self._columns(stream),
            # Whatever was declared: a null in a column that Spark takes for one without would be an error of Arrow's.
            stream.schema.toNullable(),
            StructType([*fields, *routing]),
            partial,
            Packed.of(spec),
            Packed.of(stream.combined) if stream.combined else None,
            by_file=stream.initial is None and self._by_file(parent),
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

    def _columns(self, stream: Operated) -> list[Column]:
        """Select what an operator's tasks get: its input, and where each row goes."""
        keys = [stream.parent.schema[name] for name in stream.spec.key.fields.names]
        hashed = hash_of(keys, [F.col(f"`{one.name}`") for one in keys])
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
            other.nodes[name] = replace(node, columns=other._columns(node.stream))
        if routing.instances == self.routing.instances:
            other._anchor, other._executors = self._anchor, self._executors
        return other

    def watermarks(self) -> list[str]:
        """Name the watermarks that operators report."""
        return sorted({name for node in self.nodes.values() for name, _, _ in node.stream.spec.time.watermarks})

    def idle(self) -> dict[str, int]:
        """Give how long the watermarks that are not waited for for ever are."""
        times = [node.stream.spec.time for node in self.nodes.values()]
        return {name: time.idle_ms for time in times for name, _, _ in time.watermarks if time.idle_ms is not None}

    def build(
        self,
        stream: Stream,
        source: DataFrame,
        controls: dict[str, Control],
        combine: set[str],
        made: dict[int, DataFrame],
        *,
        keep: bool = True,
        by_file: bool = False,
    ) -> DataFrame:
        """Give the DataFrame of a stream in an epoch; with `keep`, rows that several read are computed once.

        With `by_file`, those rows bring their files along, as the epoch's are from several.
        """

        def built(stream: Stream) -> DataFrame:
            if id(stream) not in made:
                frame = self._made_of(stream, source, controls, combine, built, by_file=by_file)
                if keep and id(stream) in self.shared:
                    if by_file and isinstance(stream, (Source, Watermarked, Transformed)):
                        frame = with_file(frame)
                    frame = frame.persist()
                made[id(stream)] = frame
            return made[id(stream)]

        frame = built(stream)
        return frame.drop(FILE) if by_file else frame

    def _made_of(
        self,
        stream: Stream,
        source: DataFrame,
        controls: dict[str, Control],
        combine: set[str],
        built: Callable[[Stream], DataFrame],
        *,
        by_file: bool,
    ) -> DataFrame:
        """Give the DataFrame of a stream, made of what it rests on."""
        if isinstance(stream, Source):
            return source
        if isinstance(stream, Watermarked):
            return built(stream.parent)
        if isinstance(stream, Parted):
            return stream.of(built(stream.parent))
        if isinstance(stream, Transformed):
            frame = built(stream.parent)
            return stream.function(frame.drop(FILE) if by_file else frame)
        assert isinstance(stream, Operated), "a stream is a source, a transformation or an operator's output"
        parent, control = built(stream.parent), controls[stream.spec.name]
        if stream.initial is not None:
            parent = with_initial(parent, stream.initial, stream.spec, first=control.first)
        return self._operate(self.nodes[stream.spec.name], parent, control, stream.spec.name in combine)

    def _operate(self, node: Node, parent: DataFrame, control: Control, combine: bool) -> DataFrame:
        packed, anchor = node.packed, node.anchor
        if combine and node.packed_combined is not None:
            combiner = CombineTask(packed.data, packed.digest, control.epoch, self._tokens, self._pinned, self.receipts)
            # The combiner makes sequence and token itself: two columns less on the way to Python.
            routed = parent.select(*node.columns[:-2]).mapInArrow(combiner, node.partial)
            packed, anchor = node.packed_combined, node.anchor_combined
        elif control.files:
            routed = with_file(parent).select(*node.columns, FILE)
            anchor = None if anchor is None else anchor.select("*", F.lit(0).cast("long").alias(FILE))
        else:
            routed = parent.select(*node.columns)
        routed = routed.repartition(self.routing.instances, TOKEN)
        if anchor is not None:
            routed = routed.union(anchor)
            if self._shuffle_pulls:
                routed = routed.union(anchor)
        task = InstanceTask(packed.data, packed.digest, control, self.receipts, packed.shared)
        return routed.mapInArrow(task, node.output)


def _literal(spark: SparkSession, values: npt.NDArray[np.int32]) -> Column:
    """Make ints one literal; `F.lit` would call the JVM for each of them, while epochs want it too."""
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.int, len(values))
    gateway.jvm.java.nio.ByteBuffer.wrap(bytearray(values.astype(">i4").tobytes())).asIntBuffer().get(array)
    return F.lit(array)


def with_initial(rows: DataFrame, initial: DataFrame, spec: OperatorSpec, *, first: bool) -> DataFrame:
    """Add the column for an operator's initial state; in the first epoch, its rows too."""
    rows = rows.withColumn(INITIAL, F.lit(None).cast(initial.schema[INITIAL].dataType))
    if not first:
        return rows
    keys = set(spec.key.fields.names)
    columns = [
        F.col(f"`{one.name}`") if one.name in keys else F.lit(None).cast(one.dataType).alias(one.name)
        for one in rows.schema
        if one.name != INITIAL
    ]
    return rows.union(initial.select(*columns, INITIAL))


def hash_of(keys: list[StructField], columns: list[Column]) -> Column:
    """Hash keys, given their fields and the columns they are in."""
    return F.xxhash64(*(_hashable(key, column) for key, column in zip(keys, columns, strict=True)))


def _hashable(key: StructField, column: Column) -> Column:
    # 0.0 and -0.0 are one key; adding 0.0 makes them one value.
    return column + F.lit(0.0) if isinstance(key.dataType, (FloatType, DoubleType)) else column


def _anchor_for(anchor: DataFrame, schema: StructType) -> DataFrame:
    def column(one: StructField) -> Column:
        if one.name == TOKEN:
            return F.col(TOKEN)
        value = F.lit(-1) if one.name in (SEQUENCE, HASH) else F.lit(None)
        return value.cast(one.dataType).alias(one.name)

    return anchor.select(*(column(one) for one in schema))
