"""What a user composes: streams, keyed streams, outputs. Nothing runs until a job starts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from ferryman._model.errors import InvalidConfiguration, MissingKey, PinningLost, UnhashableKey
from ferryman._operator.aggregate import AggregateRunner
from ferryman._operator.arrow import ArrowRunner
from ferryman._operator.cells import tables_of
from ferryman._operator.declare import ArrowOperator, Declared, Operator
from ferryman._operator.rows import RowRunner
from ferryman._operator.stateful import StatefulRunner
from ferryman._operator.windows import Window
from ferryman._spark.interval import seconds
from ferryman._spark.processor.grouped import GroupedStream
from ferryman._spark.schema import declared_struct, to_arrow, to_spark
from ferryman._spark.sinks import Sink
from ferryman._spark.task import ROUTING_COLUMNS, OperatorSpec, TimeSpec
from ferryman._state import store as stores
from ferryman._state.aggregates import Aggregate, compile_aggregates
from ferryman._state.keys import KeySchema
from ferryman._state.store.contract import DELETED
from ferryman._state.tables import TableSpec

if TYPE_CHECKING:
    from ferryman._spark.ferry import Ferry
    from ferryman._spark.job import Job

# How a plan says that it repartitions, coalesces or unites: the node's name, after the lines of the tree.
_MOVES_ROWS = re.compile(r"^[\s:+|-]*(Repartition\w*|RebalancePartitions|Union)\b", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class Stream:
    """Rows on their way: what the source gives, or what an operator puts out."""

    def __init__(self, ferry: Ferry | None, schema: StructType, event_time: EventTime | None = None) -> None:
        self.ferry = ferry
        self.schema = schema
        self.event_time = event_time if event_time is not None and event_time.column in schema.names else None

    @property
    def case_sensitive(self) -> bool:
        """Tell whether Spark takes `a` and `A` for two columns."""
        return self.ferry is not None and self.ferry.spark.conf.get("spark.sql.caseSensitive") == "true"

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

    def groupBy(self, *cols: str | Column | list[Any]) -> GroupedStream:
        """Group the stream by one or more columns, as `DataFrame.groupBy` does, for Spark's stateful operators."""
        listed = cols[0] if len(cols) == 1 and isinstance(cols[0], list) else list(cols)
        return GroupedStream(self.key_by(*(_column_name(one) for one in listed)))

    groupby = groupBy

    def with_watermark(self, column: str, delay: str | float) -> Stream:
        """Say how late rows may be: those whose time is older than the latest seen, less the delay, are left out.

        Parameters
        ----------
        column
            A timestamp column.
        delay
            How late, as Spark writes it: "10 seconds".
        """
        if column not in self.schema.names:
            raise InvalidConfiguration(
                f"the stream has no column {column!r}; it has {', '.join(map(repr, self.schema.names))}. Name the "
                "column of event time."
            )
        if self.schema[column].dataType not in (TimestampType(), TimestampNTZType()):
            raise InvalidConfiguration(
                f"column {column!r} is of type {self.schema[column].dataType.simpleString()}, and event time is a "
                "timestamp. Cast it before with_watermark."
            )
        late = seconds(delay)
        if late is None:
            raise InvalidConfiguration("with_watermark needs a delay, for example '10 seconds'.")
        return Watermarked(self, EventTime(column, column, round(late * 1000), reported=False, drops=True))

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Apply a stateless step, written as on any batch DataFrame: select, where, withColumn, a broadcast join.

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
        if not all(hasattr(sink, name) for name in ("whole", "label", "begin", "write", "commit")):
            raise InvalidConfiguration(
                f"write needs a sink, and got {sink!r}. Make one with ferryman.sinks, for example "
                "sinks.parquet(path) or sinks.foreach(function)."
            )
        return Output(self, sink)


@dataclass(frozen=True)
class EventTime:
    """The column of event time of a stream, and the watermark on it.

    Attributes
    ----------
    name
        The watermark's name in the manifest: the column it was declared on.
    reported
        Whether an operator has seen it already; the first one after its declaration reports it.
    drops
        Whether every operator leaves late rows out, or only those that go by event time.
    """

    name: str
    column: str
    delay_ms: int
    reported: bool
    drops: bool


class Source(Stream):
    """The streaming DataFrame a job begins with."""

    def __init__(self, ferry: Ferry, frame: DataFrame) -> None:
        if not isinstance(frame, DataFrame):
            raise InvalidConfiguration(
                f"ferry.stream needs a streaming DataFrame, and got {frame!r}. Pass what spark.readStream gives."
            )
        if not frame.isStreaming:
            raise InvalidConfiguration(
                "ferry.stream needs a streaming DataFrame, and this one is a batch. Use spark.readStream instead of "
                "spark.read, or ferryman.sources.generator to try things out."
            )
        super().__init__(ferry, frame.schema, _spark_watermark(frame.schema))
        self.frame = frame


class Watermarked(Stream):
    """A stream with a watermark."""

    def __init__(self, parent: Stream, event_time: EventTime) -> None:
        super().__init__(parent.ferry, parent.schema, event_time)
        self.parent = parent


class Transformed(Stream):
    """A stateless step."""

    def __init__(self, parent: Stream, function: Callable[[DataFrame], DataFrame]) -> None:
        if parent.ferry is None:
            raise InvalidConfiguration("without Spark there are operators only. Test steps between operators on Spark.")
        spark: SparkSession = parent.ferry.spark
        made = function(spark.createDataFrame([], parent.schema))
        if not isinstance(made, DataFrame):
            raise InvalidConfiguration(
                f"the function given to transform returned {made!r}. Let it return the DataFrame it makes of its input."
            )
        moving = _MOVES_ROWS.search(made._jdf.queryExecution().analyzed().toString())
        if moving is not None:
            raise PinningLost(
                f"the function given to transform moves rows between partitions ({moving[1]}), and then neither the "
                "order per key nor one partition per instance is kept. Leave repartition, coalesce and union out of "
                "it: use them on the streaming DataFrame before ferry.stream, or in a sink."
            )
        super().__init__(parent.ferry, made.schema, parent.event_time)
        self.parent = parent
        self.function = function


class Operated(Stream):
    """An operator's output."""

    def __init__(
        self,
        parent: Stream,
        spec: OperatorSpec,
        output: StructType,
        event_time: EventTime | None = None,
        initial: DataFrame | None = None,
    ) -> None:
        super().__init__(parent.ferry, output, event_time)
        self.parent = parent
        self.spec = spec
        self.combined: OperatorSpec | None = None
        self.initial = initial


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
        twice = _repeated(have, exactly=parent.case_sensitive)
        if twice or len(set(columns)) < len(columns):
            raise InvalidConfiguration(
                f"the stream has several columns called {twice[0]!r}. Rename all but one before key_by."
                if twice
                else f"key_by got a column twice: {', '.join(columns)}. Name each once."
            )
        taken = [name for name in have if name in (*ROUTING_COLUMNS, DELETED)]
        if taken:
            raise InvalidConfiguration(
                f"the stream has a column {taken[0]!r}, a name Ferryman uses for routing. Rename the column."
            )
        self.parent = parent
        self.names = columns
        for name in columns:
            try:
                KeySchema(to_arrow(StructType([parent.schema[name]])))
            except (UnhashableKey, InvalidConfiguration) as error:
                kind = parent.schema[name].dataType.simpleString()
                raise UnhashableKey(
                    f"column {name!r} is of type {kind}, which cannot be a key: its values have no single canonical "
                    "form. Key by its parts, or by a string made of it (F.to_json, or a cast)."
                ) from error
        self.key = to_arrow(StructType([parent.schema[name] for name in columns]))

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
                f"process needs a class derived from Operator or ArrowOperator, and got {operator!r}. Pass the class "
                "itself, not an object of it."
            )
        if operator.process in (Operator.process, ArrowOperator.process):
            raise InvalidConfiguration(
                f"operator {operator.__name__!r} has no `process` method. Define process(self, key, row), or "
                "process(self, batch) if it is an ArrowOperator."
            )
        label = name or operator.__name__
        output = declared_struct(operator.output, label)
        twice = _repeated(output.names, exactly=True)
        if twice:
            raise InvalidConfiguration(
                f"operator {label!r} declares the output column {twice[0]!r} twice. Give each column its own name."
            )
        arrow, inputs = to_arrow(output), tuple(self.parent.schema.names)
        state = _state_of(operator, label)
        runner: RowRunner | ArrowRunner
        if operator.states() or (issubclass(operator, Operator) and operator.due is not Operator.due):
            return self._stateful(operator, label, state, output)
        if issubclass(operator, Operator):
            runner = RowRunner(operator, inputs, state, arrow)
        else:
            runner = ArrowRunner(operator, self.key, inputs, state, arrow)
        made = self._operated(label, None, state, arrow, output, runner)
        table = replace(made.spec.tables[0], evolution=operator.evolution())
        made.spec = replace(made.spec, tables=(table,), dropped=tuple(operator.dropped))
        return made

    def _stateful(self, operator: type[Declared], label: str, values: pa.Schema, output: StructType) -> Stream:
        """Run an operator that has more state than values."""
        if not issubclass(operator, Operator):
            raise InvalidConfiguration(
                f"operator {label!r} is an ArrowOperator and declares {', '.join(operator.states())}, which is more "
                "than one value per key. Use Value with a list or dict type, or derive it from Operator."
            )
        timers = operator.due is not Operator.due
        tables, due = tables_of(
            label,
            self.key,
            [one.variable() for one in operator.states().values()],
            timers=timers,
            values=values,
            windows=any(isinstance(one, Window) for one in operator.states().values()),
        )
        first = replace(tables[0], evolution=operator.evolution())
        arrow, inputs = to_arrow(output), self.parent.schema
        runner = StatefulRunner(
            operator, tuple(inputs.names), tuple(values.names), tuple(operator.states()), first.state, arrow
        )
        time = TimeSpec((), None, due, operator.by_event_time)
        spec = OperatorSpec(
            label, KeySchema(self.key), to_arrow(inputs), (first, *tables[1:]), arrow, runner, time, operator.dropped
        )
        self._check(label, first.state)
        return self.operated(spec, output)

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
            stream.spec.tables,
            runner.output,
            AggregateRunner(aggregation, self.key, combined=True),
        )
        return stream

    def _operated(
        self, label: str, needed: set[str] | None, state: pa.Schema, arrow: pa.Schema, output: StructType, runner: Any
    ) -> Operated:
        self._check(label, state)
        schema = self.parent.schema
        inputs = to_arrow(StructType([one for one in schema if needed is None or one.name in needed]))
        key = KeySchema(self.key)
        tables = (TableSpec(label, label, key, state, stores.choose(key, state)),)
        return self.operated(OperatorSpec(label, key, inputs, tables, arrow, runner), output)

    def _check(self, label: str, state: pa.Schema) -> None:
        if not _NAME.fullmatch(label):
            raise InvalidConfiguration(
                f"{label!r} cannot be an operator's name: it stands in file names. Use letters, digits, '_' and '.'."
            )
        clash = [name for name in state.names if name in self.names]
        if clash:
            raise InvalidConfiguration(
                f"operator {label!r} keeps state called {clash[0]!r}, which is the name of a key column. Give the "
                "state another name."
            )

    def operated(
        self,
        spec: OperatorSpec,
        output: StructType,
        *,
        event_time: str | None = None,
        initial: DataFrame | None = None,
    ) -> Operated:
        """Give an operator's output as a stream, and the operator its part in event time."""
        time, given = spec.time, self.parent.event_time
        if given is None and time.by_watermark:
            raise InvalidConfiguration(
                f"operator {spec.name!r} goes by event time, and its input has no watermark. Add "
                'with_watermark("time", "10 seconds") before groupBy or key_by.'
            )
        if given is not None and given.column in spec.input.names:
            reports = () if given.reported else ((given.name, given.column, given.delay_ms),)
            late = given.column if time.by_watermark or given.drops else None
            spec = replace(spec, time=replace(time, watermarks=reports, late=late))
        after = None
        if given is not None and event_time is not None:
            after = replace(given, column=event_time, reported=True)
        return Operated(self.parent, spec, output, after, initial)


def _column_name(column: Any) -> str:
    if isinstance(column, str):
        return column
    name = re.fullmatch(r"Column<'([^'()]+)'>", str(column))
    if name is None:
        raise InvalidConfiguration(
            f"groupBy got {column!r}. Group by columns of the stream, by name; compute new ones with select before."
        )
    return name[1]


def _spark_watermark(schema: StructType) -> EventTime | None:
    """Find the watermark that a streaming DataFrame has from `withWatermark`."""
    for field in schema:
        delay = field.metadata.get("spark.watermarkDelayMs")
        if delay is not None:
            return EventTime(field.name, field.name, int(delay), reported=False, drops=False)
    return None


def _repeated(names: list[str], *, exactly: bool) -> list[str]:
    """List the names that stand more than once; Spark by itself takes no note of upper and lower case."""
    counts = Counter(name if exactly else name.lower() for name in names)
    return [name for name in names if counts[name if exactly else name.lower()] > 1]


class Output:
    """A stream and the sink it goes to."""

    def __init__(self, stream: Stream, sink: Sink) -> None:
        self.stream = stream
        self.sink = sink

    def start(self, name: str, **options: Any) -> Job:
        """Start a job with this one output; the options are those of `Ferry.start`."""
        if self.stream.ferry is None:
            raise InvalidConfiguration("this stream belongs to a testing harness, which runs it itself.")
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
