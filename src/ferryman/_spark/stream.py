"""What a user composes: streams, keyed streams, outputs. Nothing runs until a job starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from ferryman._model.errors import InvalidConfiguration, MissingKey, UnhashableKey
from ferryman._operator.aggregate import AggregateRunner
from ferryman._operator.arrow import ArrowRunner
from ferryman._operator.declare import ArrowOperator, Declared, Operator
from ferryman._operator.rows import RowRunner
from ferryman._spark.schema import declared_struct, to_arrow, to_spark
from ferryman._spark.sinks import Sink
from ferryman._spark.task import ROUTING_COLUMNS, OperatorSpec
from ferryman._state import store as stores
from ferryman._state.aggregates import Aggregate, compile_aggregates
from ferryman._state.keys import KeySchema

if TYPE_CHECKING:
    from ferryman._spark.ferry import Ferry
    from ferryman._spark.job import Job

_NAME = re.compile(r"[A-Za-z0-9_.]+")


class Stream:
    """Rows on their way: what the source gives, or what an operator puts out."""

    def __init__(self, ferry: Ferry, schema: StructType) -> None:
        self.ferry = ferry
        self.schema = schema

    def key_by(self, *columns: str) -> KeyedStream:
        """Key the stream by one or more columns.

        Raises
        ------
        MissingKey
            If the stream has no such column.
        UnhashableKey
            If a column's type cannot be a key: arrays, maps, structs and the like.
        """
        return KeyedStream(self, columns)

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Apply a stateless step, written as on any batch DataFrame: select, where, withColumn, a join.

        It must work row by row: no repartition, coalesce or union.
        """
        return Transformed(self, function)

    def select(self, *columns: str | Column) -> Stream:
        """Choose or compute columns, as DataFrame.select does."""
        return self.transform(lambda frame: frame.select(*columns))

    def where(self, condition: str | Column) -> Stream:
        """Keep the rows that fulfil a condition, as DataFrame.where does."""
        return self.transform(lambda frame: frame.where(condition))

    def write(self, sink: Sink) -> Output:
        """Send the rows to a sink."""
        return Output(self, sink)


class Source(Stream):
    """The streaming DataFrame a job begins with."""

    def __init__(self, ferry: Ferry, frame: DataFrame) -> None:
        if not frame.isStreaming:
            raise InvalidConfiguration(
                "ferry.stream needs a streaming DataFrame, and this one is a batch. Use spark.readStream instead of "
                "spark.read, or ferryman.sources.generator to try things out."
            )
        super().__init__(ferry, frame.schema)
        self.frame = frame


class Transformed(Stream):
    """A stateless step."""

    def __init__(self, parent: Stream, function: Callable[[DataFrame], DataFrame]) -> None:
        spark: SparkSession = parent.ferry.spark
        super().__init__(parent.ferry, function(spark.createDataFrame([], parent.schema)).schema)
        self.parent = parent
        self.function = function


class Operated(Stream):
    """An operator's output."""

    def __init__(self, parent: Stream, spec: OperatorSpec, output: StructType, combined: OperatorSpec | None) -> None:
        super().__init__(parent.ferry, output)
        self.parent = parent
        self.spec = spec
        self.combined = combined


class KeyedStream:
    """A stream with a key: what operators work on."""

    def __init__(self, parent: Stream, columns: tuple[str, ...]) -> None:
        if not columns:
            raise MissingKey("key_by needs at least one column. Name the column that tells keys apart.")
        have = parent.schema.names
        missing = [name for name in columns if name not in have]
        if missing:
            raise MissingKey(
                f"the stream has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, have))}. "
                "Key by one of those."
            )
        taken = [name for name in have if name in ROUTING_COLUMNS]
        if taken:
            raise InvalidConfiguration(
                f"the stream has a column {taken[0]!r}, a name Ferryman uses for routing. Rename the column."
            )
        self.parent = parent
        self.names = columns
        arrow = to_arrow(StructType([parent.schema[name] for name in columns]))
        for field in arrow:
            try:
                KeySchema(pa.schema([field]))
            except UnhashableKey as error:
                kind = parent.schema[field.name].dataType.simpleString()
                raise UnhashableKey(
                    f"column {field.name!r} is of type {kind}, which cannot be a key. Key by its parts, or by a "
                    "string made of it (F.to_json)."
                ) from error
        self.key = arrow

    def process(self, operator: type[Operator] | type[ArrowOperator], name: str | None = None) -> Stream:
        """Run an operator on the keyed stream: an `Operator` row by row, an `ArrowOperator` in columns.

        Parameters
        ----------
        operator
            The class, not an object: every task makes its own.
        name
            The operator's name in the checkpoint; the class's name if left out.
        """
        if not (isinstance(operator, type) and issubclass(operator, (Operator, ArrowOperator))):
            raise InvalidConfiguration(
                f"process needs a class derived from Operator or ArrowOperator, and got {operator!r}."
            )
        label = name or operator.__name__
        output = declared_struct(operator.output, label)
        arrow, inputs = to_arrow(output), tuple(self.parent.schema.names)
        state = _state_of(operator, label)
        runner: RowRunner | ArrowRunner
        if issubclass(operator, Operator):
            runner = RowRunner(operator, inputs, state, arrow)
        else:
            runner = ArrowRunner(operator, self.key, inputs, state, arrow)
        return self._operated(label, None, state, arrow, output, runner)

    def aggregate(self, name: str | None = None, **aggregates: Aggregate) -> Stream:
        """Keep declared aggregates per key, vectorised; every key touched in an epoch is put out.

        Examples
        --------
        >>> stream.key_by("room").aggregate(n=count(), mean=avg("value"))  # doctest: +SKIP
        """
        if not aggregates:
            raise InvalidConfiguration("aggregate needs at least one aggregate, for example n=count().")
        clash = [one for one in aggregates if one in self.names]
        if clash:
            raise InvalidConfiguration(
                f"the aggregate {clash[0]!r} has the name of a key column. Give it another name."
            )
        aggregation = compile_aggregates(aggregates, to_arrow(self.parent.schema))
        runner = AggregateRunner(aggregation, self.key)
        label = name or "aggregate_" + "_".join(self.names)
        output = StructType(
            [self.parent.schema[one] for one in self.names] + list(_output_fields(aggregation.output, aggregates, self))
        )
        stream = self._operated(
            label, {*self.names, *aggregation.inputs}, aggregation.state, runner.output, output, runner
        )
        stream.combined = OperatorSpec(
            label,
            stream.spec.key,
            pa.schema([*self.key, *aggregation.state]),
            aggregation.state,
            runner.output,
            AggregateRunner(aggregation, self.key, combined=True),
            stream.spec.backend,
        )
        return stream

    def _operated(
        self, label: str, needed: set[str] | None, state: pa.Schema, arrow: pa.Schema, output: StructType, runner: Any
    ) -> Operated:
        if not _NAME.fullmatch(label):
            raise InvalidConfiguration(
                f"{label!r} cannot be an operator's name: it stands in file names. Use letters, digits, '_' and '.'."
            )
        schema = self.parent.schema
        inputs = to_arrow(StructType([one for one in schema if needed is None or one.name in needed]))
        spec = OperatorSpec(label, KeySchema(self.key), inputs, state, arrow, runner, stores.choose(state))
        return Operated(self.parent, spec, output, None)


class Output:
    """A stream and the sink it goes to."""

    def __init__(self, stream: Stream, sink: Sink) -> None:
        self.stream = stream
        self.sink = sink

    def start(self, name: str, **options: Any) -> Job:
        """Start a job with this one output; the options are those of `Ferry.start`."""
        return self.stream.ferry.start(name, self, **options)


def _state_of(operator: type[Declared], label: str) -> pa.Schema:
    state = operator.state_schema()
    taken = [name for name in state.names if name.startswith("_")]
    if taken:
        raise InvalidConfiguration(
            f"operator {label!r} declares state {taken[0]!r}; names with a leading '_' are Ferryman's."
        )
    return state


def _output_fields(result: pa.Schema, aggregates: dict[str, Aggregate], keyed: KeyedStream) -> list[Any]:
    """Give the aggregates' Spark fields; where the type is the input column's own, exactly that one."""
    spark = to_spark(result)
    fields = []
    for name, aggregate in aggregates.items():
        field = spark[name]
        if aggregate.column is not None and to_arrow(StructType([keyed.parent.schema[aggregate.column]])).types == [
            result.field(name).type
        ]:
            field.dataType = keyed.parent.schema[aggregate.column].dataType
        fields.append(field)
    return fields
