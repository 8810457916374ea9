"""Event time of a stream: the column that has it, marked as Spark marks it, and the watermark on that column."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql.types import StructField, StructType, TimestampNTZType, TimestampType

# How Spark marks the column that a watermark was declared on.
_DELAY = "spark.watermarkDelayMs"
TIMES = (TimestampType(), TimestampNTZType())


@dataclass(frozen=True, kw_only=True)
class EventTime:
    """The column of event time of a stream, and the watermark on it.

    Attributes
    ----------
    name
        The column it was declared on: the watermark's name in the manifest, unless several are on that column.
    reported
        Whether an operator has seen it already; the first one after its declaration reports it.
    drops
        Whether every operator leaves late rows out, or only those that go by event time.
    keeps
        Whether late rows go into a side output.
    idle_ms
        After how long without a row it is not waited for; None for never.
    """

    name: str
    column: str
    delay_ms: int
    reported: bool
    drops: bool
    keeps: bool = False
    idle_ms: int | None = None


def spark_watermark(schema: StructType) -> EventTime | None:
    """Find the watermark that a streaming DataFrame has from `withWatermark`."""
    for field in schema:
        delay = field.metadata.get(_DELAY)
        if delay is not None:
            return EventTime(name=field.name, column=field.name, delay_ms=int(delay), reported=False, drops=False)
    return None


def marked(schema: StructType, event_time: EventTime | None) -> StructType:
    """Mark the column of event time, and no other, as Spark does: the mark goes with it through steps."""
    if event_time is None:
        return schema
    fields = []
    for field in schema:
        metadata = {name: value for name, value in field.metadata.items() if name != _DELAY}
        if field.name == event_time.column:
            metadata[_DELAY] = event_time.delay_ms
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields)


def found_after(schema: StructType, before: EventTime) -> EventTime | None:
    """Find the column of event time after a step: under its name or a new one, unless it was computed anew."""
    # A window has the mark as well, and is no time.
    marked = [field.name for field in schema if _DELAY in field.metadata and field.dataType in TIMES]
    if not marked:
        return None
    return replace(before, column=before.column if before.column in marked else marked[0])
