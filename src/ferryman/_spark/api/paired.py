"""Two keyed streams side by side, as one: what an operator on both of them reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, StructField, StructType

from ferryman._engine.operator_spec import Reported
from ferryman._model.errors import InvalidConfiguration
from ferryman._operator.declare.two_inputs import INPUT, TwoInputs
from ferryman._spark.api.event_time import EventTime
from ferryman._spark.api.joint import ByName, Joint, refuse_strangers
from ferryman._spark.api.stream import Stream

if TYPE_CHECKING:
    from ferryman._spark.api.keyed import KeyedStream

SIDES = ("left", "right")
# The event time of a row, of whichever side it is.
TIME = "_event_time"


class Paired(Joint):
    """The rows of two keyed streams: the key, by the names it has on the left, and the columns of either side.

    With `whole_keys`, those whose key has a null in it are left out: they go with no other.
    """

    def __init__(self, left: KeyedStream, right: KeyedStream, *, whole_keys: bool = False) -> None:
        refuse_strangers([left.parent, right.parent], "connect and join")
        _refuse_other_key(left, right)
        self.keyed = (left, right)
        self.whole_keys = whole_keys
        times = [side.parent.event_time for side in self.keyed]
        _refuse_other_times(left.parent, right.parent)
        fields = [StructField(name, left.parent.schema[name].dataType) for name in left.names]
        fields.append(StructField(INPUT, ByteType()))
        for number, side in enumerate(self.keyed):
            fields += [
                StructField(column_of(number, field.name), field.dataType)
                for field in side.parent.task_columns
                if field.name in self._own(number)
            ]
        known = [time for time in times if time is not None]
        timed = next(
            (side.parent.schema[side.parent.event_time.column] for side in self.keyed if side.parent.event_time), None
        )
        event_time = None
        if timed is not None:
            fields.append(StructField(TIME, timed.dataType))
            event_time = replace(
                known[0],
                name=TIME,
                column=TIME,
                reported=all(time.reported for time in known),
                drops=any(time.drops for time in known),
                keeps=False,
            )
        super().__init__([left.parent, right.parent], StructType(fields), event_time)
        self.lost_time = next((part.lost_time for part in self.parts if part.lost_time is not None), None)

    @property
    def rows(self) -> TwoInputs:
        """Say where the columns of either side are, by their names there."""
        return TwoInputs(self._named(0), self._named(1))

    def watermarks_reported(self) -> list[tuple[Reported, Stream]]:
        """List those of both sides."""
        return [
            (report._replace(column=column_of(number, report.column)), declared)
            for number, part in enumerate(self.parts)
            for report, declared in part.watermarks_reported()
        ]

    def columns_of(self, number: int, column: ByName) -> Mapping[str, Column]:
        """Give the key, which side it is, and the columns of that side."""
        left, mine, time = self.keyed[0], self.keyed[number], self.parts[number].event_time
        given = {name: column(own) for name, own in zip(left.names, mine.names, strict=True)}
        given[INPUT] = F.lit(number).cast("byte")
        given |= {column_of(number, name): column(name) for name in self._own(number)}
        if time is not None:
            given[TIME] = column(time.column)
        return given

    def of(self, frames: Sequence[DataFrame], also: Collection[str] = ()) -> DataFrame:
        """Make the rows of those of both sides."""
        return self._with_keys(super().of(frames, also))

    def of_one(self, rows: DataFrame, tag: str, parts: Sequence[tuple[int, str]], also: Collection[str]) -> DataFrame:
        """Make the rows of a DataFrame that has those of both sides."""
        return self._with_keys(super().of_one(rows, tag, parts, also))

    def _with_keys(self, rows: DataFrame) -> DataFrame:
        for name in self.keyed[0].names if self.whole_keys else ():
            rows = rows.where(F.col(f"`{name}`").isNotNull())
        return rows

    def _own(self, number: int) -> list[str]:
        """Name the columns of a side that are not the key's; its event time is among them in any case."""
        side = self.keyed[number]
        time = side.parent.event_time
        kept = () if time is None else (time.column,)
        return [name for name in side.parent.task_columns.names if name not in side.names or name in kept]

    def _named(self, number: int) -> tuple[tuple[str, str], ...]:
        keys = dict(zip(self.keyed[number].names, self.keyed[0].names, strict=True))
        return tuple((name, keys.get(name) or column_of(number, name)) for name in self.parts[number].schema.names)


def column_of(number: int, name: str) -> str:
    """Name a column of a side.

    Examples
    --------
    >>> column_of(0, "price")
    'left.price'
    """
    return f"{SIDES[number]}.{name}"


def _refuse_other_key(left: KeyedStream, right: KeyedStream) -> None:
    if len(left.names) != len(right.names):
        raise InvalidConfiguration(
            f"the left stream is keyed by {', '.join(left.names)} and the right one by {', '.join(right.names)}: two "
            "streams meet on as many columns. Give key_by the same number on both sides."
        )
    for mine, other in zip(left.names, right.names, strict=True):
        kinds = [side.parent.schema[name].dataType.simpleString() for side, name in ((left, mine), (right, other))]
        if kinds[0] != kinds[1]:
            raise InvalidConfiguration(
                f"the key {mine!r} is of type {kinds[0]} on the left, and {other!r} of type {kinds[1]} on the right: "
                "equal values of two types need not be one key. Cast one before key_by: "
                f'withColumn("{other}", F.col("{other}").cast("{kinds[0]}")).'
            )


def _refuse_other_times(left: Stream, right: Stream) -> None:
    times: list[tuple[EventTime, Stream]] = [(part.event_time, part) for part in (left, right) if part.event_time]
    if any(time.keeps for time, _ in times):
        raise InvalidConfiguration(
            "with_watermark(keep_late=True) is for operators on one stream: late rows of two streams have other "
            "columns. Leave keep_late out, or take late rows aside with an operator before."
        )
    kinds = {part.schema[time.column].dataType.simpleString() for time, part in times}
    if len(kinds) > 1:
        raise InvalidConfiguration(
            f"the event times of the two streams are of the types {' and '.join(sorted(kinds))}. Cast one of them "
            "before with_watermark."
        )
