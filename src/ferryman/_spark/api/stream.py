"""What a user composes: streams, keyed streams, outputs. Nothing runs until a job starts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ferryman._engine.kafka_groups import ConsumerGroup
from ferryman._engine.operator_spec import OperatorSpec, Reported
from ferryman._engine.remote_session import is_remote, refuse
from ferryman._engine.routing_columns import PART
from ferryman._engine.sink import Sink
from ferryman._model.errors import InvalidConfiguration, PinningLost
from ferryman._model.interval import seconds
from ferryman._operator.declare.side_outputs import SIDE, column
from ferryman._operator.run.aggregate_runner import AggregateRunner
from ferryman._spark.api.column_names import find_name, grouping_name
from ferryman._spark.api.dataframe_names import FrameNames
from ferryman._spark.api.event_time import TIMES, EventTime, found_after, marked, spark_watermark
from ferryman._spark.compat.session import passed_on, plan_tree
from ferryman._spark.plan.file_of_row import knows_its_file
from ferryman._spark.plan.schema import to_spark
from ferryman._state.earlier_columns import Evolution
from ferryman._state.expiry import check_ttl

if TYPE_CHECKING:
    from ferryman._engine.broadcast import Broadcast
    from ferryman._spark.api.ferry import Ferry
    from ferryman._spark.api.job import Job
    from ferryman._spark.api.keyed import KeyedStream

# How a plan says that it repartitions, coalesces or unites: the node's name, after the lines of the tree.
_MOVES_ROWS = re.compile(r"^[\s:+|-]*(Repartition\w*|RebalancePartitions|Union)\b", re.MULTILINE)
# Sources are told apart by the order in which they were made, where they have no names.
_made = itertools.count()


class Stream(FrameNames):
    """Rows on their way: what the source gives, or what an operator puts out."""

    def __init__(self, ferry: Ferry | None, schema: StructType, event_time: EventTime | None = None) -> None:
        self.ferry = ferry
        self.schema = schema
        self.event_time = event_time if event_time is not None and event_time.column in schema.names else None
        # A watermark that was declared on a column which a step after it has left out, or computed anew.
        self.lost_time: EventTime | None = None

    @property
    def task_columns(self) -> StructType:
        """Give the columns that an operator's tasks get: those of the stream, and any that it brings along for them."""
        return self.schema

    def watermarks_reported(self) -> list[tuple[Reported, Stream]]:
        """List the watermarks that the next operator reports, each with the stream that it was declared on."""
        time = self.event_time
        if time is None or time.reported:
            return []
        declared = self
        while not isinstance(declared, (Watermarked, Source)):
            declared = getattr(declared, "parent")  # noqa: B009 - only streams of one parent come here
        return [(Reported(time.name, time.column, time.delay_ms, time.idle_ms), declared)]

    @property
    def case_sensitive(self) -> bool:
        """Tell whether Spark takes `a` and `A` for two columns."""
        return self.ferry is not None and self.ferry.spark.conf.get("spark.sql.caseSensitive") == "true"

    @property
    def rests_on_operator(self) -> bool:
        """Tell whether these rows come from an operator, directly or by steps after it."""
        parent: Stream | None = getattr(self, "parent", None)
        return parent is not None and parent.rests_on_operator

    def named(self, column: str) -> str | None:
        """Find a column as Spark does: by its name, in upper or lower case unless the session tells them apart."""
        return find_name(column, self.schema.names, exactly=self.case_sensitive)

    def key_by(self, *columns: str) -> KeyedStream:
        """Key the stream by one or more columns.

        Raises
        ------
        MissingKey
            If the stream has no such column.
        UnhashableKey
            If a column's type cannot be a key: arrays, maps, structs and the like.
        """
        from ferryman._spark.api.keyed import KeyedStream

        return KeyedStream(self, columns)

    def groupBy(self, *cols: str | Column | int | list[Any]) -> Any:
        """Group the stream by one or more columns, as `DataFrame.groupBy` does, for Spark's stateful operators.

        A number stands for the column at that place, from 1 on. With a window among the columns, as Spark's `window`
        and `session_window` make them, it is for aggregates.
        """
        from ferryman._spark.api.grouped_windows import GroupedWindows, window_of
        from ferryman._spark.processor.grouped import GroupedStream

        listed = cols[0] if len(cols) == 1 and isinstance(cols[0], list) else list(cols)
        if any(window_of(column) for column in listed):
            return GroupedWindows(self, listed)
        return GroupedStream(self.key_by(*(grouping_name(column, self.schema) for column in listed)))

    groupby = groupBy

    def with_watermark(
        self, column: str, delay: str | float, *, keep_late: bool = False, idle: str | float | None = None
    ) -> Stream:
        """Say how late rows may be: those whose time is not after the latest seen, less the delay, are left out.

        What was seen counts from the next epoch on for what is due, and from the one after that for what is late.
        Windows of declared aggregates (`KeyedStream.window`) take such rows as long as one that they fall into is open.

        Parameters
        ----------
        column
            A timestamp column.
        delay
            How late, as Spark writes it: "10 seconds".
        keep_late
            Whether operators after it put late rows into a side output, `side("late")`, as they came in.
        idle
            After how long without a row this watermark is not waited for: "5 minutes". Where a job has several, the
            least of them counts, and one that sees no rows would hold all windows for ever. It counts again with its
            next row; what is not after the watermark by then is late. If left out, `idle_after` of the source.
        """
        late = seconds(delay)
        if late is None:
            raise InvalidConfiguration("with_watermark needs a delay, for example '10 seconds'.")
        silent = seconds(idle)
        if silent is not None and silent <= 0:
            raise InvalidConfiguration(f"with_watermark(idle={idle!r}): give more than nothing, or leave it out.")
        name, idle_ms = self._event_time_column(column), self._idle_ms if silent is None else round(silent * 1000)
        event_time = EventTime(
            name=name,
            column=name,
            delay_ms=round(late * 1000),
            reported=False,
            drops=True,
            keeps=keep_late,
            idle_ms=idle_ms,
        )
        return Watermarked(self, event_time)

    def withWatermark(self, eventTime: str, delayThreshold: str) -> Stream:
        """Say how late rows may be, as `DataFrame.withWatermark` does: operators by event time leave later ones out."""
        late = seconds(delayThreshold)
        if late is None:
            raise InvalidConfiguration("withWatermark needs a delay, for example '10 seconds'.")
        name = self._event_time_column(eventTime)
        return Watermarked(
            self,
            EventTime(
                name=name,
                column=name,
                delay_ms=round(late * 1000),
                reported=False,
                drops=False,
                idle_ms=self._idle_ms,
            ),
        )

    @property
    def _idle_ms(self) -> int | None:
        """Give after how long its source is not waited for."""
        parent: Stream | None = getattr(self, "parent", None)
        return None if parent is None else parent._idle_ms

    def _event_time_column(self, column: str) -> str:
        if self.rests_on_operator:
            raise InvalidConfiguration(
                "a watermark is declared on rows of the source, before the first operator. An operator hands it on "
                "with its output: name the column of event time there (event_time on the class, eventTimeColumnName)."
            )
        name = self.named(column)
        if name is None:
            raise InvalidConfiguration(
                f"the stream has no column {column!r}; it has {', '.join(map(repr, self.schema.names))}. Name the "
                "column of event time."
            )
        if self.schema[name].dataType not in TIMES:
            raise InvalidConfiguration(
                f"column {column!r} is of type {self.schema[name].dataType.simpleString()}, and event time is a "
                "timestamp. Cast it before with_watermark."
            )
        return name

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Apply a stateless step, written as on any batch DataFrame: select, where, withColumn, a broadcast join.

        It must work row by row: no repartition, coalesce or union.
        """
        return Transformed(self, function)

    def union(self, *others: Stream) -> Stream:
        """Put the rows of several streams together, by the names of their columns, which must be of the same types.

        A watermark that each of them has stays its own: the least of them counts.
        """
        from ferryman._spark.api.joint import United

        return United((self, *others))

    def lookup(
        self,
        table: Any,
        *,
        on: str | Sequence[str],
        how: str = "inner",
        refresh: str | float | None = None,
        name: str | None = None,
    ) -> Stream:
        """Put the columns of a table beside the rows of the stream: those of its rows that have the same key.

        The rows are those of Spark's `rows.join(table, on, how)`. An epoch has one version of the table, for all
        instances, and the same one when it is done again.

        Parameters
        ----------
        table
            A batch DataFrame, a pyarrow table, or a function that gives one of them: it is called for each reading.
        on
            The columns that both have, of the same types.
        how
            "inner" leaves out the rows that the table has nothing for, "left" keeps them.
        refresh
            After how long the table is read again, between two epochs: "10 minutes". If left out, at each start only.
        name
            By which the checkpoint knows the lookup; `lookup_` and the key if left out.

        Examples
        --------
        >>> orders.lookup(spark.read.parquet("shops"), on="shop", how="left")  # doctest: +SKIP
        """
        from ferryman._spark.api.lookups import look_up

        return look_up(self, table, on=on, how=how, refresh=refresh, name=name)

    def broadcast(self, *keys: str, deleted: str | None = None, ttl: int | None = None) -> Broadcast:
        """Make a small state of the stream that every instance of an operator reads: the newest row of each key.

        Parameters
        ----------
        keys
            The columns that tell rows apart.
        deleted
            A boolean column; a row where it is true takes its key out.
        ttl
            After how many milliseconds by the clock a key is gone that no row came for; None for never.
        """
        from ferryman._engine.broadcast import Broadcast

        wrong = [column for column in (*keys, *([deleted] if deleted else [])) if column not in self.schema.names]
        if not keys or wrong:
            raise InvalidConfiguration(
                f"broadcast needs columns of the stream, which has {', '.join(self.schema.names)}, and got "
                f"{', '.join((*keys, deleted or '')) or 'none'}. Name the columns that tell rows apart."
            )
        if self.rests_on_operator:
            raise InvalidConfiguration(
                "a broadcast state is made of the source's rows (`where`, `select`), not of an operator's output."
            )
        check_ttl(ttl)
        return Broadcast(self, keys, deleted, ttl)

    def side(self, name: str) -> Stream:
        """Give the rows of a side output of the operator whose output this is."""
        if not isinstance(self, Parted) or name not in self.parent.spec.sides:
            known = ", ".join(self.parent.spec.sides) if isinstance(self, Parted) else "none"
            raise InvalidConfiguration(
                f"there is no side output {name!r} here; there are: {known}. Declare it on the operator (`sides`), and "
                "ask the stream that `process` gave."
            )
        return Parted(self.parent, name, to_spark(self.parent.spec.sides[name]))

    def write(self, sink: Sink) -> Output:
        """Send the rows to a sink."""
        if not all(hasattr(sink, name) for name in ("whole", "label", "begin", "write", "commit")):
            raise InvalidConfiguration(
                f"write needs a sink, and got {sink!r}. Make one with ferryman.sinks, for example "
                "sinks.parquet(path) or sinks.foreach(function)."
            )
        return Output(self, sink)


class Source(Stream):
    """The streaming DataFrame a job begins with."""

    def __init__(
        self, ferry: Ferry, frame: DataFrame, name: str | None = None, idle_after: str | float | None = None
    ) -> None:
        if is_remote(frame):
            refuse("this is a DataFrame of a session over Spark Connect")
        if not isinstance(frame, DataFrame):
            raise InvalidConfiguration(
                f"ferry.stream needs a streaming DataFrame, and got {frame!r}. Pass what spark.readStream gives."
            )
        if not frame.isStreaming:
            raise InvalidConfiguration(
                "ferry.stream needs a streaming DataFrame, and this one is a batch. Use spark.readStream instead of "
                'spark.read, with trigger={"availableNow": True} if it is to end. To run a StatefulProcessor on a '
                "batch, which keeps no state, leave ferry.stream out: Spark does that by itself. To begin with the "
                "state in a batch, give it as initialState. To try things out, take ferryman.sources.generator."
            )
        if name is not None and not (isinstance(name, str) and re.fullmatch(r"\w[\w.-]{0,99}", name)):
            raise InvalidConfiguration(
                f"ferry.stream(name={name!r}): give a name of letters, digits, '_', '.' and '-', by which the source "
                "is known from one start to the next."
            )
        idle = seconds(idle_after)
        if idle is not None and idle <= 0:
            raise InvalidConfiguration(
                f"ferry.stream(idle_after={idle_after!r}): give more than nothing, or leave it out."
            )
        self.idle_ms = None if idle is None else round(idle * 1000)
        time = spark_watermark(frame.schema)
        super().__init__(ferry, frame.schema, None if time is None else replace(time, idle_ms=self.idle_ms))
        self.frame = frame
        self.given_name = name
        # The consumer group of Kafka's that is told how far it was read.
        self.group: ConsumerGroup | None = None
        # What the job calls it: this name, or "source_1" and so on.
        self.known_as = name or ""
        self.order_made = next(_made)
        self.knows_its_file = knows_its_file(frame)

    @property
    def _idle_ms(self) -> int | None:
        return self.idle_ms

    @staticmethod
    def routable(frame: DataFrame) -> DataFrame:
        """Give a DataFrame of the source's as epochs get it: each row with its partition."""
        return frame.select("*", F.spark_partition_id().alias(PART))


class Watermarked(Stream):
    """A stream with a watermark."""

    def __init__(self, parent: Stream, event_time: EventTime) -> None:
        super().__init__(parent.ferry, marked(parent.schema, event_time), event_time)
        self.parent = parent


class Transformed(Stream):
    """A stateless step."""

    def __init__(self, parent: Stream, function: Callable[[DataFrame], DataFrame]) -> None:
        if parent.ferry is None:
            raise InvalidConfiguration("without Spark there are operators only. Test steps between operators on Spark.")
        spark: SparkSession = parent.ferry.spark
        before = parent.event_time
        given = spark.createDataFrame([], marked(parent.schema, before))
        made = function(given)
        if not isinstance(made, DataFrame):
            raise InvalidConfiguration(
                f"the function given to transform returned {made!r}. Let it return the DataFrame it makes of its input."
            )
        moving = moves_rows(made)
        if moving is not None:
            raise PinningLost(
                f"the function given to transform moves rows between partitions ({moving}), and then neither the "
                "order per key nor one partition per instance is kept. Leave repartition, coalesce and union out of "
                "it: use them on the streaming DataFrame before ferry.stream, or in a sink."
            )
        after = None if before is None else found_after(made.schema, before)
        super().__init__(parent.ferry, made.schema, after)
        self.lost_time = before if after is None and before is not None else parent.lost_time
        self.parent = parent
        self.function = function
        self.knows_its_file = knows_its_file(made)
        # The columns that it leaves as they are, if it goes row by row; asked for after operators only.
        self.passes_on = passed_on(made, given) if parent.rests_on_operator else frozenset()


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
        self.broadcasts: Mapping[str, Broadcast] = {}
        # The streams on which the watermarks were declared that it reports.
        self.declared: tuple[Stream, ...] = ()

    @property
    def rests_on_operator(self) -> bool:
        """Tell that they do."""
        return True

    @property
    def picks_by_place(self) -> bool:
        """Tell whether declared aggregates depend on the order of rows."""
        runner = self.spec.runner
        return isinstance(runner, AggregateRunner) and runner.aggregation.picks_by_place

    def evolve(self, evolutions: Mapping[str, Evolution]) -> None:
        """Read files of earlier declarations as the job's card says, which knows them all."""
        tables = tuple(replace(table, evolution=evolutions[table.name]) for table in self.spec.tables)
        self.spec = replace(self.spec, tables=tables)
        if self.combined is not None:
            self.combined = replace(self.combined, tables=tables)

    def report_as(self, names: Mapping[int, str]) -> None:
        """Report each watermark under a name of its own, given by the identity of the stream it was declared on."""
        reports = tuple(
            watermark._replace(name=names[id(stream)])
            for watermark, stream in zip(self.spec.time.watermarks, self.declared, strict=True)
        )
        self.spec = replace(self.spec, time=replace(self.spec.time, watermarks=reports))
        if self.combined is not None:
            named = tuple(
                watermark._replace(name=report.name)
                for watermark, report in zip(self.combined.time.watermarks, reports, strict=True)
            )
            self.combined = replace(self.combined, time=replace(self.combined.time, watermarks=named))

    def keep_in(self, store: str) -> None:
        """Keep all tables of the operator in one kind of store."""
        tables = tuple(replace(table, backend=store) for table in self.spec.tables)
        self.spec = replace(self.spec, tables=tables)
        if self.combined is not None:
            self.combined = replace(self.combined, tables=tables)


class Parted(Stream):
    """The own rows of an operator that has side outputs, or, with a name, those of one of them."""

    def __init__(
        self, parent: Operated, name: str | None, schema: StructType, event_time: EventTime | None = None
    ) -> None:
        super().__init__(parent.ferry, schema, event_time)
        self.parent = parent
        self.name = name

    def of(self, rows: DataFrame) -> DataFrame:
        """Take the rows out of all that the operator gave."""
        if self.name is None:
            return rows.where(F.col(SIDE).isNull()).select(*(F.col(f"`{name}`") for name in self.schema.names))
        return rows.where(F.col(SIDE) == F.lit(self.name)).select(f"{column(self.name)}.*")


def plain(stream: Stream) -> Stream:
    """Look through what changes no row."""
    while isinstance(stream, Watermarked):
        stream = stream.parent
    return stream


def moves_rows(frame: DataFrame) -> str | None:
    """Name the step of a DataFrame's plan that moves rows between partitions; None if none does."""
    found = _MOVES_ROWS.search(plan_tree(frame))
    return None if found is None else found[1]


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
