"""A stream with a key, and the operators it can be given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ferryman._engine.broadcast import Broadcast
from ferryman._engine.operator_spec import OperatorSpec, TimeSpec
from ferryman._engine.routing_columns import FILE, ROUTING_COLUMNS
from ferryman._model.errors import InvalidConfiguration, MissingKey, UnhashableKey
from ferryman._operator.declare.operator import AnyOperator, ArrowOperator, Operator
from ferryman._operator.declare.side_outputs import LATE, SIDE, sided_schema
from ferryman._operator.declare.two_inputs import TwoInputOperator
from ferryman._operator.run.aggregate_runner import AggregateRunner
from ferryman._operator.run.arrow_runner import ArrowRunner
from ferryman._operator.run.row_runner import RowRunner
from ferryman._operator.run.stateful_runner import StatefulRunner
from ferryman._spark.api.joins import ConnectedStreams, join
from ferryman._spark.api.paired import Paired
from ferryman._spark.api.stateful_spec import repeated, stateful_spec
from ferryman._spark.api.stream import Operated, Parted, Stream
from ferryman._spark.plan.schema import declared_struct, to_arrow, to_spark
from ferryman._state import store as stores
from ferryman._state.aggregates import Aggregate, Aggregation, compile_aggregates
from ferryman._state.expiry import EXPIRES
from ferryman._state.keys import KeySchema
from ferryman._state.store.contract import DELETED
from ferryman._state.tables import DUE_TIME, DUE_WHAT, GROUP, PANE, POSITION, TableSpec

if TYPE_CHECKING:
    from ferryman._spark.api.windowed import CountedStream, WindowedStream

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
# Names of columns that Ferryman adds to a stream's, or to its key in a table.
_RESERVED = {
    *ROUTING_COLUMNS,
    *(FILE, DELETED, SIDE, DUE_TIME, DUE_WHAT, POSITION, EXPIRES, GROUP, PANE),
    *("_value", "_timers"),
}


class KeyedStream:
    """A stream with a key: what operators work on."""

    def __init__(self, parent: Stream, columns: tuple[str, ...]) -> None:
        if not columns:
            raise MissingKey("key_by needs at least one column. Name the column that tells keys apart.")
        have = parent.schema.names
        found = {name: parent.named(name) for name in columns}
        missing = [name for name in columns if found[name] is None]
        if missing:
            raise MissingKey(
                f"the stream has no column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, have))}. "
                "Key by one of those."
            )
        # As the stream has them, and as they were said.
        said, columns = columns, tuple(name for name in map(found.get, columns) if name is not None)
        twice = repeated(have, exactly=parent.case_sensitive)
        if twice or len(set(columns)) < len(columns):
            raise InvalidConfiguration(
                f"the stream has several columns called {twice[0]!r}. Rename all but one before key_by."
                if twice
                else f"key_by got a column twice: {', '.join(columns)}. Name each once."
            )
        # Where Spark takes them for one column, so must we.
        taken = [name for name in have if (name if parent.case_sensitive else name.lower()) in _RESERVED]
        if taken:
            raise InvalidConfiguration(
                f"the stream has a column {taken[0]!r}, a name Ferryman uses itself. Rename the column."
            )
        self.parent = parent
        self.names = columns
        self.said = tuple(name.strip("`") for name in said)
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

    def process(
        self,
        operator: type[Operator] | type[ArrowOperator],
        name: str | None = None,
        *,
        broadcast: Mapping[str, Broadcast] | None = None,
    ) -> Stream:
        """Run an operator on the keyed stream: an `Operator` row by row, an `ArrowOperator` in columns.

        Parameters
        ----------
        operator
            The class, not an object: every task makes its own.
        name
            The operator's name in the checkpoint; the class's name if left out.
        broadcast
            Broadcast states by the name under which `process` sees them, each what `Stream.broadcast` gave: there
            `self.rules` is a dict from key to row, the same in all instances.
        """
        _check_class(operator)
        if issubclass(operator, TwoInputOperator) and not isinstance(self.parent, Paired):
            raise InvalidConfiguration(
                f"operator {operator.__name__!r} is on two streams, and is given one. Write "
                "left.key_by(...).connect(right.key_by(...)).process(...), or derive it from Operator."
            )
        label = name or operator.__name__
        output = _output_of(operator, label)
        arrow, inputs = to_arrow(output), tuple(self.parent.schema.names)
        state = _state_of(operator, label)
        runner: RowRunner | ArrowRunner
        sides = {
            side: to_arrow(declared_struct(kind, f"{label}, side {side}")) for side, kind in operator.sides.items()
        }
        if operator.states() or broadcast or (issubclass(operator, Operator) and operator.due is not Operator.due):
            return self._stateful(operator, label, state, output, sides, dict(broadcast or {}))
        if sides and not issubclass(operator, Operator):
            raise InvalidConfiguration(
                f"operator {label!r} is an ArrowOperator and declares side outputs. Derive it from Operator, or give "
                "the rows a column that tells them apart."
            )
        if issubclass(operator, Operator):
            runner = RowRunner(operator, inputs, state, arrow, sides)
        else:
            runner = ArrowRunner(operator, self.key, inputs, state, arrow)
        spec = self.spec(label, None, state, arrow, runner)
        table = replace(spec.tables[0], evolution=operator.evolution())
        spec = replace(spec, tables=(table,), dropped=tuple(operator.dropped), sides=sides)
        handed_on = operator.event_time if issubclass(operator, Operator) else None
        return self.operated(spec, output, event_time=handed_on)

    def _stateful(
        self,
        operator: type[AnyOperator],
        label: str,
        values: pa.Schema,
        output: StructType,
        sides: dict[str, pa.Schema],
        broadcasts: dict[str, Broadcast],
    ) -> Stream:
        """Run an operator that has more state than values."""
        if not issubclass(operator, Operator):
            raise InvalidConfiguration(
                f"operator {label!r} is an ArrowOperator and declares {', '.join(operator.states())}, which is more "
                "than one value per key. Use Value with a list or dict type, or derive it from Operator."
            )
        spec = stateful_spec(operator, label, self.parent.schema, self.key, values, to_arrow(output), sides, broadcasts)
        self.check(label, spec.state)
        return self.operated(spec, output, event_time=operator.event_time, broadcasts=broadcasts)

    def connect(self, other: KeyedStream) -> ConnectedStreams:
        """Put a second keyed stream beside this one, for one operator that processes both with shared state.

        Both are keyed by as many columns, of the same types; they may have other names.

        Examples
        --------
        >>> orders.key_by("item").connect(prices.key_by("item")).process(Priced)  # doctest: +SKIP
        """
        return ConnectedStreams(self, _keyed(other, "connect"))

    def join(
        self,
        other: KeyedStream,
        *,
        within: str | float | None = None,
        lower: str | float | None = None,
        upper: str | float | None = None,
        how: str = "inner",
        name: str | None = None,
    ) -> Stream:
        """Join the rows of two keyed streams that have one key and event times not too far apart.

        Rows are kept until the watermark says that no row to go with them can come. Columns are named as by Spark's
        join: the key once, then those of the left, then those of the right.

        Parameters
        ----------
        other
            The right side, keyed by as many columns of the same types.
        within
            How far apart the two times may be, either way.
        lower, upper
            Instead of that, by how much the right row may be later than the left one: lower="0 seconds",
            upper="1 hour" for a right row that comes up to an hour later; negative where it may be earlier.
        how
            As Spark has it: inner, left, right, full, semi or anti. Rows without a partner are put out when the
            watermark says that none can come. Or as_of: each left row with the newest right row that is not later, or
            alone, as soon as no newer one can come.
        name
            The operator's name in the checkpoint.

        Examples
        --------
        >>> clicks.key_by("ad").join(views.key_by("ad"), within="10 minutes")  # doctest: +SKIP
        """
        right = _keyed(other, "join")
        return join(self, right, within=within, lower=lower, upper=upper, how=how, name=name)

    def aggregate(self, name: str | None = None, **aggregates: Aggregate) -> Stream:
        """Keep declared aggregates per key, vectorised; every key touched in an epoch is put out.

        Examples
        --------
        >>> stream.key_by("room").aggregate(n=count(), mean=avg("value"))  # doctest: +SKIP
        """
        label, aggregation, output = self.compiled(name, aggregates)
        runner = AggregateRunner(aggregation, self.key)
        needed = {*self.names, *aggregation.inputs}
        if self.parent.event_time is not None and self.parent.event_time.drops:
            needed.add(self.parent.event_time.column)
        spec = self.spec(label, needed, aggregation.state, runner.output, runner)
        spec = replace(spec, tables=(replace(spec.tables[0], settings=kinds(aggregates)),))
        stream = self.operated(spec, output)
        if isinstance(stream, Operated) and stream.spec.time == TimeSpec():
            # What was combined before the shuffle has no event time of its own any more.
            stream.combined = OperatorSpec(
                name=label,
                key=spec.key,
                input=pa.schema([*self.key, *aggregation.state]),
                tables=spec.tables,
                output=runner.output,
                runner=AggregateRunner(aggregation, self.key, combined=True),
            )
        return stream

    def window(
        self,
        time: str,
        size: str | float,
        every: str | float | None = None,
        *,
        start: str | float | None = None,
        updates: bool = False,
        allowed_lateness: str | float | None = None,
    ) -> WindowedStream:
        """Part each key's rows into windows by their time, for `aggregate`; as Spark's `window` does.

        Parameters
        ----------
        time
            The column of event time, with a watermark.
        size
            How long a window is: "1 minute".
        every
            How long after a window the next one begins; the windows follow each other if left out.
        start
            How long after 1970-01-01 a window begins; all others follow from that.
        updates
            Whether each epoch puts out the windows that have changed in it, as Spark's update mode does. Else a window
            is put out once, when the watermark has passed its end.
        allowed_lateness
            For how long after that a window still takes rows, and is put out again for them.

        Examples
        --------
        >>> shops = stream.with_watermark("time", "10 seconds").key_by("shop")  # doctest: +SKIP
        >>> shops.window("time", "1 minute").aggregate(n=count())  # doctest: +SKIP
        """
        from ferryman._spark.api.windowed import WindowedStream, panes_of

        return WindowedStream(self, time, panes_of(size, every, start, allowed_lateness, updates=updates))

    def session(self, time: str, gap: str | float) -> WindowedStream:
        """Part each key's rows into sessions, for `aggregate`: one ends when no row has come for as long as the gap.

        It is put out when the watermark has passed its end.

        Examples
        --------
        >>> users = stream.with_watermark("time", "10 seconds").key_by("user")  # doctest: +SKIP
        >>> users.session("time", "5 minutes").aggregate(clicks=count())  # doctest: +SKIP
        """
        from ferryman._spark.api.windowed import WindowedStream, sessions_of

        return WindowedStream(self, time, sessions_of(gap))

    def count_window(self, size: int) -> CountedStream:
        """Part each key's rows into windows of so many, in the source's order, for `aggregate`.

        A window is put out in the epoch in which its last row comes.

        Examples
        --------
        >>> stream.key_by("sensor").count_window(10).aggregate(mean=avg("value"))  # doctest: +SKIP
        """
        from ferryman._spark.api.windowed import CountedStream

        return CountedStream(self, size)

    def compiled(self, name: str | None, aggregates: Mapping[str, Aggregate]) -> tuple[str, Aggregation, StructType]:
        """Check declared aggregates; give the operator's name, what they are compiled to, and the columns they make."""
        if name is not None and not isinstance(name, str):
            raise InvalidConfiguration(
                f"name={name!r}: `name` is the operator's own name. Give the aggregate another, for example "
                "first_name=first(...)."
            )
        if not aggregates:
            raise InvalidConfiguration("aggregate needs at least one aggregate, for example n=count().")
        clash = [aggregate for aggregate in aggregates if aggregate in self.names]
        if clash:
            raise InvalidConfiguration(
                f"the aggregate {clash[0]!r} has the name of a key column. Give it another name."
            )
        aggregation = compile_aggregates(aggregates, to_arrow(self.parent.schema))
        output = StructType(
            [self.parent.schema[column] for column in self.names]
            + list(_output_fields(aggregation.output, aggregates, self))
        )
        return name or "aggregate_" + "_".join(self.names), aggregation, output

    def spec(
        self, label: str, needed: set[str] | None, state: pa.Schema, arrow: pa.Schema, runner: Any
    ) -> OperatorSpec:
        """Describe an operator with one table, of a row per key, and the columns that it needs."""
        self.check(label, state)
        schema = self.parent.schema
        inputs = to_arrow(StructType([field for field in schema if needed is None or field.name in needed]))
        key = KeySchema(self.key)
        tables = (TableSpec(name=label, operator=label, key=key, state=state, backend=stores.choose(key, state)),)
        return OperatorSpec(name=label, key=key, input=inputs, tables=tables, output=arrow, runner=runner)

    def check(self, label: str, state: pa.Schema) -> None:
        """Refuse names that cannot be: of an operator, or of a state beside its key."""
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
        broadcasts: Mapping[str, Broadcast] | None = None,
    ) -> Stream:
        """Give an operator's output as a stream, and the operator its part in event time."""
        if isinstance(self.parent, Paired) and isinstance(spec.runner, (RowRunner, StatefulRunner)):
            spec = replace(spec, runner=replace(spec.runner, input=self.parent.rows))
        time, given = spec.time, self.parent.event_time
        declared: tuple[Stream, ...] = ()
        lost = self.parent.lost_time
        if given is None and lost is not None and (time.by_watermark or (lost.drops and not lost.reported)):
            raise InvalidConfiguration(
                f"operator {spec.name!r}: its input has a watermark on {lost.column!r}, and a step between them leaves "
                "that column out or computes it anew, so that nothing would be late or due. "
                + (
                    "Keep it as it is, by this name or a new one."
                    if lost.reported
                    else "Keep it as it is, by this name or a new one, or declare the watermark after that step."
                )
            )
        if given is None and time.by_watermark:
            raise InvalidConfiguration(
                f"operator {spec.name!r} goes by event time, and its input has no watermark. Add "
                'with_watermark("time", "10 seconds") before groupBy or key_by.'
            )
        if given is not None and given.column in spec.input.names:
            listed = self.parent.watermarks_reported()
            reports, declared = tuple(report for report, _ in listed), tuple(stream for _, stream in listed)
            late = time.late or (given.column if time.by_watermark or given.drops else None)
            spec = replace(spec, time=replace(time, watermarks=reports, late=late))
            if given.keeps:
                if LATE in spec.sides:
                    raise InvalidConfiguration(
                        f"operator {spec.name!r} has a side output {LATE!r} of its own, and with keep_late=True late "
                        "rows go there. Rename it."
                    )
                aside = [field for field in spec.input if field.name != PANE]
                spec = replace(spec, sides={**spec.sides, LATE: pa.schema(aside)})
            along = [field for field in self.parent.task_columns if field.name not in self.parent.schema.names]
            spec = replace(spec, input=pa.schema([*spec.input, *to_arrow(StructType(along))]))
        after = None
        if given is not None and event_time is not None:
            after = replace(given, column=event_time, reported=True)
        if not spec.sides:
            made = Operated(self.parent, spec, output, after, initial)
            made.broadcasts, made.declared = broadcasts or {}, declared
            return made
        whole = to_spark(sided_schema(spec.output, spec.sides))
        physical = StructType([*output.fields, *whole.fields[len(output.fields) :]])
        whole_rows = Operated(self.parent, spec, physical, None, initial)
        whole_rows.broadcasts, whole_rows.declared = broadcasts or {}, declared
        return Parted(whole_rows, None, output, after)


def kinds(aggregates: Mapping[str, Aggregate]) -> dict[str, str]:
    """Say of which kind aggregates are, for the card.

    Another kind may keep columns of the same name and type, and would go on with its state. Which column it is of is
    not asked: that may have got another name.
    """
    return {column: aggregate.kept for column, aggregate in aggregates.items()}


def _keyed(other: KeyedStream, what: str) -> KeyedStream:
    if not isinstance(other, KeyedStream):
        raise InvalidConfiguration(
            f"{what} needs another keyed stream, and got {other!r}. Key it first: "
            f'left.key_by("k").{what}(right.key_by("k"), ...). A batch DataFrame is joined before: '
            "stream.transform(lambda rows: rows.join(F.broadcast(other), ...))."
        )
    return other


def _check_class(operator: type[Operator] | type[ArrowOperator]) -> None:
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


def _output_of(operator: type[AnyOperator], label: str) -> StructType:
    output = declared_struct(operator.output, label)
    if issubclass(operator, Operator) and operator.event_time not in (None, *output.names):
        raise InvalidConfiguration(
            f"operator {label!r}: event_time={operator.event_time!r} is not a column of its output, which has "
            f"{', '.join(output.names)}."
        )
    twice = repeated(output.names, exactly=True)
    if twice:
        raise InvalidConfiguration(
            f"operator {label!r} declares the output column {twice[0]!r} twice. Give each column its own name."
        )
    return output


def _state_of(operator: type[AnyOperator], label: str) -> pa.Schema:
    state = operator.state_schema()
    taken = [name for name in state.names if name.startswith("_")]
    if taken:
        raise InvalidConfiguration(
            f"operator {label!r} declares state {taken[0]!r}; names with a leading '_' are Ferryman's."
        )
    return state


def _output_fields(result: pa.Schema, aggregates: Mapping[str, Aggregate], keyed: KeyedStream) -> list[Any]:
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
