"""A keyed stream in windows of time, and the aggregates it can be given."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ferryman._engine.operator_spec import OperatorSpec, TimeSpec
from ferryman._model.errors import InvalidConfiguration
from ferryman._model.interval import seconds
from ferryman._operator.run.count_runner import HAD, CountRunner
from ferryman._operator.run.panes import Panes, Sessions
from ferryman._operator.run.session_runner import FROM, TO, SessionRunner
from ferryman._operator.run.window_runner import ROWS, SEEN, WINDOW, WindowRunner
from ferryman._spark.api.joint import United
from ferryman._spark.api.keyed import KeyedStream, kinds
from ferryman._spark.api.stream import Operated, Stream, Transformed
from ferryman._spark.plan.schema import to_arrow
from ferryman._state import store as stores
from ferryman._state.aggregates import Aggregate, Aggregation
from ferryman._state.aggregates.picks import Pick
from ferryman._state.keys import KeySchema
from ferryman._state.tables import PANE, TableSpec
from ferryman._state.words import from_words, one_array, to_words

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


class Paned(Transformed):
    """The step that gives each row its pane; one without a time falls into none, and is left out, as by Spark."""

    def __init__(self, parent: Stream, time: str, panes: Panes | Sessions) -> None:
        kind = parent.schema[time].dataType
        schema = StructType([*parent.schema.fields, StructField(PANE, kind, False)])
        Stream.__init__(self, parent.ferry, schema, parent.event_time)
        self.parent = parent
        self.function = self._select
        self.knows_its_file = True
        self.passes_on = frozenset(parent.schema.names)
        self._time = time
        self._panes = panes

    def _select(self, frame: DataFrame) -> DataFrame:
        length, start = (f"{of} microseconds" for of in (self._panes.length, self._panes.start % self._panes.length))
        pane = F.window(F.col(f"`{self._time}`"), length, length, start).getField("start")
        return frame.select("*", pane.alias(PANE))

    def rows(self, rows: pa.Table) -> pa.Table:
        """Do the same without Spark."""
        rows = rows.filter(pc.is_valid(rows.column(self._time)))
        time = one_array(rows.column(self._time), rows.schema.field(self._time).type)
        return rows.append_column(PANE, from_words(self._panes.of(to_words(time)), time.type))


def _paned(stream: Stream, time: str, panes: Panes | Sessions) -> Stream:
    """Take the step, on each part of a union."""
    if isinstance(stream, United):
        return United([_paned(part, time, panes) for part in stream.parts])
    return Paned(stream, time, panes)


class WindowedStream:
    """A keyed stream in windows: made by `KeyedStream.window`."""

    def __init__(self, keyed: KeyedStream, time: str, panes: Panes | Sessions) -> None:
        given, name = keyed.parent.event_time, keyed.parent.named(time)
        if name is None:
            raise InvalidConfiguration(
                f"the stream has no column {time!r}; it has {', '.join(map(repr, keyed.parent.schema.names))}. Name "
                "the column of event time."
            )
        if given is None or given.column != name:
            other = "" if given is None else f", but one on {given.column!r}"
            raise InvalidConfiguration(
                f"windows by {time!r} need a watermark on it, which says when they are over; the stream has none"
                f"{other}. "
                + (
                    "An operator hands it on with its output if its class names the column (event_time); aggregates "
                    "and joins do not: take windows before those."
                    if keyed.parent.rests_on_operator
                    else f'Add with_watermark("{name}", "10 seconds") before key_by.'
                )
            )
        if WINDOW in keyed.names:
            raise InvalidConfiguration(
                f"the key has a column {WINDOW!r}, and the windows come in a column of that name. Rename it."
            )
        self.keyed = keyed
        self.time = name
        self.panes = panes

    def aggregate(self, name: str | None = None, **aggregates: Aggregate) -> Stream:
        """Keep declared aggregates per key and window; the output begins with the column `window`, as Spark's does.

        Examples
        --------
        >>> stream.key_by("shop").window("time", "1 minute").aggregate(n=count())  # doctest: +SKIP
        """
        keyed = copy.copy(self.keyed)
        label, aggregation, columns = keyed.compiled(name, aggregates)
        kept = [*aggregation.state.names, *keyed.names]
        taken = [name for name in kept if name in (PANE, SEEN, ROWS, FROM, TO)]
        if taken:
            raise InvalidConfiguration(
                f"a column of the key or an aggregate's state is called {taken[0]!r}, a name Ferryman uses. Rename it."
            )
        if WINDOW in aggregates:
            raise InvalidConfiguration(f"an aggregate is called {WINDOW!r}, as the windows' column is. Rename it.")
        keyed.check(label, aggregation.state)
        keyed.parent = _paned(keyed.parent, self.time, self.panes)
        kind = keyed.parent.schema[self.time].dataType
        type = to_arrow(StructType([keyed.parent.schema[self.time]])).types[0]
        runner = self._runner(keyed, aggregation, type)
        aggregation = runner.aggregation
        key = KeySchema(pa.schema([(PANE, type), *keyed.key]), entries=True)
        needed = {PANE, self.time, *keyed.names, *aggregation.inputs}
        table = TableSpec(
            name=label,
            operator=label,
            key=key,
            state=aggregation.state,
            backend=stores.choose(key, aggregation.state, in_order=False),
            settings={**kinds(aggregates), PANE: self.panes.declared},
        )
        spec = OperatorSpec(
            name=label,
            key=key,
            input=to_arrow(StructType([field for field in keyed.parent.schema if field.name in needed])),
            tables=(table,),
            output=runner.output,
            runner=runner,
            time=TimeSpec(late=self.late, by_watermark=True, panes=self.panes),
        )
        stream = keyed.operated(spec, StructType([_window_field(kind), *columns.fields]))
        if isinstance(stream, Operated) and isinstance(runner, WindowRunner) and _tells_one_time(stream, self.time):
            stream.combined = _combined(stream.spec, runner)
        return stream

    @property
    def late(self) -> str:
        """Name the column by which a row is late: in windows of one size the pane, as all of its rows are then."""
        return self.time if isinstance(self.panes, Sessions) else PANE

    def _runner(self, keyed: KeyedStream, aggregation: Aggregation, type: pa.DataType) -> WindowRunner | SessionRunner:
        if not isinstance(self.panes, Sessions):
            return WindowRunner(aggregation, keyed.key, panes=self.panes, time=self.time, type=type)
        ends = Pick.of(FROM, self.time, "min", type), Pick.of(TO, self.time, "max", type)
        kept = aggregation.adding(self.time, type, *ends)
        return SessionRunner(kept, keyed.key, panes=self.panes, time=self.time, type=type, shown=aggregation)


class CountedStream:
    """A keyed stream in windows of so many rows: made by `KeyedStream.count_window`."""

    def __init__(self, keyed: KeyedStream, size: int) -> None:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InvalidConfiguration(
                f"count_window({size!r}): give how many rows a window has, a whole number above 0."
            )
        self.keyed = keyed
        self.size = size

    def aggregate(self, name: str | None = None, **aggregates: Aggregate) -> Stream:
        """Keep declared aggregates per key and window; each full window is put out once, as the key and its aggregates.

        Examples
        --------
        >>> stream.key_by("sensor").count_window(10).aggregate(mean=avg("value"))  # doctest: +SKIP
        """
        keyed = self.keyed
        label, shown, output = keyed.compiled(name, aggregates)
        if HAD in shown.state.names:
            raise InvalidConfiguration(f"an aggregate keeps state called {HAD!r}, a name Ferryman uses. Rename it.")
        kept = shown.counting(HAD)
        runner = CountRunner(kept, keyed.key, shown=shown, size=self.size)
        needed = {*keyed.names, *shown.inputs}
        if keyed.parent.event_time is not None and keyed.parent.event_time.drops:
            needed.add(keyed.parent.event_time.column)
        spec = keyed.spec(label, needed, kept.state, runner.output, runner)
        settings = {**kinds(aggregates), HAD: f"windows of {self.size} rows"}
        return keyed.operated(replace(spec, tables=(replace(spec.tables[0], settings=settings),)), output)


def sessions_of(gap: str | float) -> Sessions:
    """Read how sessions are declared."""
    length = _microseconds("gap", gap)
    if length <= 0:
        raise InvalidConfiguration(f"gap={gap!r}: give more than nothing.")
    return Sessions(length)


def panes_of(
    size: str | float,
    every: str | float | None,
    start: str | float | None,
    lateness: str | float | None,
    *,
    updates: bool,
) -> Panes:
    """Read how windows are declared."""
    length = _microseconds("size", size)
    step = length if every is None else _microseconds("every", every)
    begin, late = _microseconds("start", start or 0), _microseconds("allowed_lateness", lateness or 0)
    faults = []
    if length <= 0 or step <= 0:
        faults.append(f"a window of {size!r} every {every!r}: give more than nothing")
    elif step > length:
        faults.append(f"a window of {size!r} every {every!r}: rows between the windows would be lost; let them touch")
    elif begin >= step:
        faults.append(f"start={start!r}: give less than the {(every or size)!r} after which the next window begins")
    if faults:
        raise InvalidConfiguration.of(faults)
    return Panes(length, step, begin, late, updates)


def _microseconds(name: str, text: str | float) -> int:
    try:
        found = seconds(text)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(
            f"{name}={text!r} is not an interval of fixed length. Write it as '5 seconds' or '1 day'."
        ) from error
    assert found is not None, "something was given"
    return round(found * 1_000_000)


def _window_field(kind: DataType) -> StructField:
    return StructField(WINDOW, StructType([StructField("start", kind), StructField("end", kind)]), False)


def _tells_one_time(stream: Operated, time: str) -> bool:
    """Tell whether partials can say how far event time has come; of a union, each source has its own time."""
    return all(report.column == time for report in stream.spec.time.watermarks)


def _combined(spec: OperatorSpec, runner: WindowRunner) -> OperatorSpec:
    """Give the operator as it works on partials: the latest time of each says how far event time has come."""
    return replace(
        spec,
        input=pa.schema([*spec.key.fields, *runner.partials.state]),
        runner=replace(runner, combined=True),
        time=replace(
            spec.time, watermarks=tuple(watermark._replace(column=SEEN) for watermark in spec.time.watermarks)
        ),
    )
