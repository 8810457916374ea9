"""Several streams as one: the rows of each, in columns that all of them share or that are only its own.

How such a stream's rows are made does not depend on an epoch, so it is said once, as columns of each of its parts.
Where the parts are sources as they are, one DataFrame has the rows of all, and they are taken from it in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ferryman._engine.operator_spec import Reported
from ferryman._model.errors import InvalidConfiguration
from ferryman._spark.api.event_time import EventTime
from ferryman._spark.api.stream import Stream

# Whose time the watermark of a part goes by: a column for each part of a union that has one of its own.
_OWN_TIME = "_time."

# Gives a column by its name.
ByName = Callable[[str], Column]


class Joint(Stream):
    """A stream that is made of several."""

    def __init__(self, parts: Sequence[Stream], schema: StructType, event_time: EventTime | None) -> None:
        super().__init__(parts[0].ferry, schema, event_time)
        self.parts = tuple(parts)

    @property
    def rests_on_operator(self) -> bool:
        """Tell whether the rows of any part come from an operator."""
        return any(part.rests_on_operator for part in self.parts)

    def columns_of(self, number: int, column: ByName) -> Mapping[str, Column]:
        """Say what the columns are of the rows of a part; null where nothing is said."""
        raise NotImplementedError

    def of(self, frames: Sequence[DataFrame], also: Collection[str] = ()) -> DataFrame:
        """Make the rows of those of its parts, with columns that come along as they are."""
        whole: DataFrame | None = None
        for number, frame in enumerate(frames):
            given = self.columns_of(number, _by_name)
            columns = [
                given.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in self.task_columns
            ]
            rows = frame.select(*columns, *also)
            whole = rows if whole is None else whole.union(rows)
        assert whole is not None, "it has parts"
        return whole

    def of_one(self, rows: DataFrame, tag: str, parts: Sequence[tuple[int, str]], also: Collection[str]) -> DataFrame:
        """Make the rows of a DataFrame that has those of all parts: each with its number, in a struct of its own."""
        given = []
        for number, (value, struct) in enumerate(parts):
            given.append((value, self.columns_of(number, partial(_field, struct))))
        columns = []
        for field in self.task_columns:
            chosen = F.when(F.lit(False), F.lit(None))
            for value, by_name in given:
                if field.name in by_name:
                    chosen = chosen.when(F.col(tag) == F.lit(value), by_name[field.name])
            columns.append(chosen.cast(field.dataType).alias(field.name))
        return rows.where(F.col(tag).isin([value for value, _ in parts])).select(*columns, *also)


class United(Joint):
    """The rows of several streams that have the same columns."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        parts: list[Stream] = []
        for stream in streams:
            if not isinstance(stream, Stream):
                raise InvalidConfiguration(f"union needs streams, and got {stream!r}. Pass what ferry.stream gives.")
            parts += stream.parts if isinstance(stream, United) else [stream]
        refuse_strangers(parts, "union")
        for other in parts[1:]:
            _refuse_other_columns(parts[0], other)
        nullable = [any(part.schema[field.name].nullable for part in parts) for field in parts[0].schema]
        schema = StructType(
            [
                StructField(field.name, field.dataType, null, field.metadata)
                for field, null in zip(parts[0].schema, nullable, strict=True)
            ]
        )
        super().__init__(parts, schema, _common_time(parts))
        self.lost_time = next((part.lost_time for part in parts if part.lost_time is not None), None)

    @property
    def task_columns(self) -> StructType:
        """Give the columns, and one for each part whose time makes a watermark of its own."""
        own = [
            StructField(report.column, self.schema[part.event_time.column].dataType)
            for report, part in self._times()
            if part.event_time is not None
        ]
        return StructType([*self.schema.fields, *own])

    def watermarks_reported(self) -> list[tuple[Reported, Stream]]:
        """List those of all parts."""
        declared = [on for part in self.parts for _, on in part.watermarks_reported()]
        return list(zip((report for report, _ in self._times()), declared, strict=True))

    def columns_of(self, number: int, column: ByName) -> Mapping[str, Column]:
        """Take the columns as they are, and the time once more where it makes a watermark."""
        part = self.parts[number]
        given = {name: column(name) for name in self.schema.names}
        for report, _ in part.watermarks_reported():
            given[f"{_OWN_TIME}{number}"] = column(report.column)
        return given

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Take the step on each part: it goes row by row, so that is the same."""
        return United([part.transform(function) for part in self.parts])

    def with_watermark(
        self, column: str, delay: str | float, *, keep_late: bool = False, idle: str | float | None = None
    ) -> Stream:
        """Declare it on each part."""
        return United([part.with_watermark(column, delay, keep_late=keep_late, idle=idle) for part in self.parts])

    def withWatermark(self, eventTime: str, delayThreshold: str) -> Stream:
        """Declare it on each part."""
        return United([part.withWatermark(eventTime, delayThreshold) for part in self.parts])

    def _times(self) -> list[tuple[Reported, Stream]]:
        """List the watermarks of the parts, each on a column of its own, which is null in the rows of others."""
        return [
            (report._replace(column=f"{_OWN_TIME}{number}"), part)
            for number, part in enumerate(self.parts)
            for report, _ in part.watermarks_reported()
        ]


def _field(struct: str, name: str) -> Column:
    return F.col(f"`{struct}`.`{name}`")


def _by_name(name: str) -> Column:
    return F.col(f"`{name}`")


def refuse_strangers(parts: Sequence[Stream], what: str) -> None:
    """Refuse streams that no one job can read."""
    if any(part.ferry is not parts[0].ferry for part in parts):
        raise InvalidConfiguration(
            f"{what} needs streams of one Ferry, as one job reads them. Make all of them with the same ferry.stream."
        )


def _refuse_other_columns(one: Stream, other: Stream) -> None:
    names, others = one.schema.names, other.schema.names
    if sorted(names) != sorted(others):
        lacks = [name for name in names if name not in others]
        more = [name for name in others if name not in names]
        raise InvalidConfiguration(
            f"union goes by the names of columns, and the streams have others: one has {', '.join(names)}, and the "
            f"other {', '.join(others)}. "
            + (f"Add {', '.join(lacks)} to the other" if lacks else f"Leave {', '.join(more)} out")
            + " (select, withColumn, drop)."
        )
    for name in names:
        kinds = [stream.schema[name].dataType.simpleString() for stream in (one, other)]
        if kinds[0] != kinds[1]:
            raise InvalidConfiguration(
                f"union: column {name!r} is of type {kinds[0]} in one stream and {kinds[1]} in the other. Cast one: "
                f'withColumn("{name}", F.col("{name}").cast("{kinds[0]}")).'
            )


def _common_time(parts: Sequence[Stream]) -> EventTime | None:
    """Give the event time of a union: late rows go by the column, and each part has its own watermark."""
    times = [part.event_time for part in parts]
    known = [time for time in times if time is not None]
    if not known:
        return None
    if len(known) < len(times) or len({time.column for time in known}) > 1:
        raise InvalidConfiguration(
            "union: "
            + (
                "one stream has a watermark and another has none"
                if len(known) < len(times)
                else f"the streams have watermarks on {', '.join(sorted({time.column for time in known}))}"
            )
            + ". Declare it on the union instead, a.union(b).with_watermark(column, delay), or on each of them on one "
            "column."
        )
    return replace(
        known[0],
        reported=all(time.reported for time in known),
        drops=any(time.drops for time in known),
        keeps=any(time.keeps for time in known),
    )
