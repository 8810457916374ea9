"""`Stream.lookup`: the rows of a stream with those of a table beside them, as Spark's join on columns gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ferryman._model.errors import InvalidConfiguration, LookupFailed
from ferryman._model.interval import seconds
from ferryman._model.json_values import MOST_LETTERS
from ferryman._spark.api.column_names import find_name
from ferryman._spark.api.joint import United
from ferryman._spark.api.stateful_spec import repeated
from ferryman._spark.api.stream import Stream, Transformed
from ferryman._spark.compat.session import opaque
from ferryman._spark.plan.schema import to_arrow, to_spark
from ferryman._state.zones import in_zone

Table: TypeAlias = DataFrame | pa.Table
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_HOW = {"inner": "inner", "left": "left", "leftouter": "left"}


class LookedUp:
    """A table that is looked up: how it is read, and its rows in the epoch under way.

    Parameters
    ----------
    given
        The table, or a function that reads it.
    exactly
        Whether `a` and `A` are two columns.
    """

    def __init__(
        self,
        name: str,
        given: Table | Callable[[], Table],
        on: Sequence[str],
        how: str,
        refresh_s: float | None,
        *,
        exactly: bool,
    ) -> None:
        self.name = name
        self.how = how
        self.refresh_s = refresh_s
        self.rows: pa.Table | None = None
        self._given = given
        self._frame: DataFrame | None = None
        self.schema = _schema_of(self._table(), refresh_s=None if callable(given) else refresh_s)
        if twice := repeated(self.schema.names, exactly=exactly):
            raise InvalidConfiguration(f"the table has several columns called {twice[0]!r}. Rename all but one.")
        self.on = tuple(_column(column, self.schema.names, "the table", exactly=exactly) for column in on)
        self.columns = to_arrow(self.schema)

    def read(self) -> pa.Table:
        """Read it as it is now, with its columns as they were declared."""
        table = self._table()
        kinds = {field.name: field.dataType.simpleString() for field in _schema_of(table)}
        for field in self.schema:
            if kinds.get(field.name) != field.dataType.simpleString():
                now = f"is {kinds[field.name]}" if field.name in kinds else "is not there any more"
                raise LookupFailed(
                    f"lookup {self.name!r}: the table's column {field.name!r} was {field.dataType.simpleString()} when "
                    f"the job was declared, and now {now}. The epoch was not begun; nothing is lost. Give the column "
                    "as it was, or start the job again: it takes the table as it is then."
                )
        rows = table if isinstance(table, pa.Table) else in_zone(table.toArrow())
        return rows.select(self.schema.names).cast(self.columns).combine_chunks()

    def use(self, rows: pa.Table) -> None:
        """Take these rows for it from now on."""
        self.rows, self._frame = rows, None

    def joined(self, frame: DataFrame, on: Sequence[str]) -> DataFrame:
        """Put its rows beside those of a DataFrame."""
        assert self.rows is not None, "an epoch has a version of it"
        if self._frame is None:
            spark = frame.sparkSession
            # In one piece: of several Spark 4.3 may leave some out. And Spark must not know how few they are: it would
            # drop what it takes for empty, and with it the epoch's tasks.
            whole = self.rows.combine_chunks() if self.rows.num_rows else self.rows.schema.empty_table()
            self._frame = opaque(spark.createDataFrame(whole, self.schema).coalesce(1))
        table = self._frame
        for mine, other in zip(on, self.on, strict=True):
            table = table if mine == other else table.withColumnRenamed(other, mine)
        return frame.join(F.broadcast(table), list(on), self.how)

    def _table(self) -> Table:
        table = self._given() if callable(self._given) else self._given
        if not isinstance(table, (DataFrame, pa.Table)) or (isinstance(table, DataFrame) and table.isStreaming):
            streams = isinstance(table, DataFrame)
            raise InvalidConfiguration(
                f"lookup needs a table: a batch DataFrame, a pyarrow table, or a function that gives one; and got "
                f"{'a streaming DataFrame' if streams else repr(table)}. "
                + (
                    'Two streams are joined by left.key_by("k").join(right.key_by("k"), within="10 minutes").'
                    if streams
                    else "Pass what spark.read gives."
                )
            )
        return table


class Looked(Transformed):
    """A stream with a table beside it: the key, the stream's other columns, the table's other columns."""

    def __init__(self, parent: Stream, table: LookedUp, on: Sequence[str]) -> None:
        self.table = table
        self.on = tuple(on)
        fields = [parent.schema[name] for name in self.on]
        fields += [field for field in parent.schema if field.name not in self.on]
        fields += [StructField(field.name, field.dataType) for field in table.schema if field.name not in table.on]
        Stream.__init__(self, parent.ferry, StructType(fields), parent.event_time)
        self.lost_time = parent.lost_time
        self.parent = parent
        self.function = self._join
        self.knows_its_file = False
        self.passes_on = frozenset()

    def _join(self, frame: DataFrame) -> DataFrame:
        return self.table.joined(frame, self.on)


def look_up(
    stream: Stream,
    table: Table | Callable[[], Table],
    *,
    on: str | Sequence[str],
    how: str,
    refresh: str | float | None,
    name: str | None,
) -> Stream:
    """Put a table beside a stream; see `Stream.lookup`."""
    columns = [on] if isinstance(on, str) else list(on)
    kind = _HOW.get(str(how).replace("_", "").lower())
    refresh_s = seconds(refresh)
    faults = []
    if not columns or not all(isinstance(column, str) for column in columns):
        faults.append(f"on={on!r}: name the columns that tell which rows of the table go with a row of the stream")
    if kind is None:
        faults.append(f"how={how!r}: give 'inner', or 'left' to keep rows that the table has nothing for")
    if refresh_s is not None and refresh_s <= 0:
        faults.append(f"refresh={refresh!r}: give more than nothing, or leave it out to read the table at each start")
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        faults.append(f"name={name!r}: give letters, digits, '_' and '.': it stands in file names")
    label = name or "lookup_" + "_".join(re.sub(r"\W", "_", str(column)) for column in columns)
    # It becomes a part of a file's name, which counts bytes.
    if len(label.encode()) > MOST_LETTERS:
        faults.append(
            f"name={name!r}: give at most {MOST_LETTERS} letters"
            if name
            else f"its name would be {label!r}: give name=, of at most {MOST_LETTERS} letters"
        )
    if faults:
        raise InvalidConfiguration.of([f"lookup: {fault}" for fault in faults])
    assert kind is not None, "it was checked"
    exactly = stream.case_sensitive
    looked_up = LookedUp(label, table, columns, kind, refresh_s, exactly=exactly)
    mine = [_column(column, stream.schema.names, "the stream", exactly=exactly) for column in columns]
    _refuse_other_types(stream, looked_up, mine)
    own = [name for name in stream.schema.names if name not in mine]
    theirs = [name for name in looked_up.schema.names if name not in looked_up.on]
    if twice := repeated([*mine, *own, *theirs], exactly=exactly):
        raise InvalidConfiguration(
            f"lookup {label!r}: both the stream and the table have a column {twice[0]!r}, and a row has both beside "
            f"each other. Rename the table's, or leave it out: "
            f'table.withColumnRenamed("{twice[0]}", "other_{twice[0]}").'
        )
    parts = stream.parts if isinstance(stream, United) else (stream,)
    made = [Looked(part, looked_up, mine) for part in parts]
    return United(made) if isinstance(stream, United) else made[0]


def _schema_of(table: Table, refresh_s: float | None = None) -> StructType:
    if isinstance(table, pa.Table):
        try:
            return to_spark(table.schema)
        except PySparkException as error:
            raise InvalidConfiguration(
                f"lookup: the table has a column of a type that Spark does not have ({error}). Cast it, or leave it "
                "out."
            ) from error
    if refresh_s is not None and table.inputFiles():
        raise InvalidConfiguration(
            "lookup(refresh=...): a DataFrame of files lists them once, so it would not see new ones. Give a function "
            "that reads it anew: lookup(lambda: spark.read.parquet(path), ...)."
        )
    return table.schema


def _column(name: str, names: Sequence[str], what: str, *, exactly: bool) -> str:
    found = find_name(name, names, exactly=exactly)
    if found is None:
        raise InvalidConfiguration(
            f"lookup(on={name!r}): {what} has no such column; it has {', '.join(map(repr, names))}. Both need it, by "
            "one name: rename it with withColumnRenamed."
        )
    return found


def _refuse_other_types(stream: Stream, table: LookedUp, on: Sequence[str]) -> None:
    for mine, other in zip(on, table.on, strict=True):
        kinds: list[Any] = [stream.schema[mine].dataType, table.schema[other].dataType]
        ours, theirs = (kind.simpleString() for kind in kinds)
        if ours != theirs:
            raise InvalidConfiguration(
                f"lookup(on={mine!r}): the column is of type {ours} in the stream and {theirs} in the table, and equal "
                "values of two types need not be one key. Cast one: "
                f'table.withColumn("{other}", F.col("{other}").cast("{ours}")).'
            )
