"""One kind of processor, with the input it gets, and what Spark and Ferryman make of it, batch by batch."""

from __future__ import annotations

import datetime
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from processor.beside import Beside, Rows, until_ending
from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ferryman import Ferry, sinks

# The workers cannot import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

T0 = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
# The rows of each batch that has some, sorted.
Batches = list[list[str]]


def at(seconds: float) -> datetime.datetime:
    return T0 + datetime.timedelta(seconds=seconds)


def shown(value: Any) -> str:
    """Write a value with its type, as it is inside too; dicts in order, which Spark's come out of."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {shown(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, (list, tuple)):
        fields = list(getattr(value, "__fields__", ()))
        return f"{type(value).__name__}{fields or ''}({', '.join(map(shown, value))})"
    return f"{type(value).__name__} {value!r}"


class Telling(StatefulProcessor):
    """A processor that says what it sees, in a column of text."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def say(self, *what: Any) -> Row:
        return Row(what=" ".join(map(str, what)))

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Kind:
    """A processor, or a function, and its input.

    Attributes
    ----------
    make
        The processor's class, or the function.
    how
        Which of Spark's operators runs it: "rows", "pandas" or "function".
    until
        How many rows come out, for one that goes by the clock and does not end by itself on Spark.
    instances
        How many instances share the keys, and on Spark partitions.
    """

    name: str
    input: str
    batches: Sequence[Sequence[tuple[Any, ...]]]
    make: Any
    key: tuple[str, ...] = ("k",)
    how: str = "rows"
    output: str = "what string"
    time: str = "None"
    watermark: tuple[str, str] | None = None
    state: str = "n long"
    initial: Callable[[SparkSession], Any] | None = None
    until: int | None = None
    conf: dict[str, str] = field(default_factory=dict)
    instances: int = 1

    def spread(self) -> Kind:
        """Give the same on two instances, with frames of two rows."""
        conf = {**self.conf, "spark.sql.execution.arrow.maxRecordsPerBatch": "2"}
        return replace(self, name=f"{self.name}, spread", conf=conf, instances=2)

    def build(self, stream: Any, spark: SparkSession) -> Any:
        grouped = stream.groupBy(*self.key)
        if self.how == "function":
            timeout = {"None": "NoTimeout"}.get(self.time, f"{self.time}Timeout")
            return grouped.applyInPandasWithState(self.make, self.output, self.state, "append", timeout)
        call = grouped.transformWithState if self.how == "rows" else grouped.transformWithStateInPandas
        initial = None if self.initial is None else self.initial(spark)
        return call(self.make(), self.output, "append", self.time, initial)


class Runs:
    """Both runs of one kind, each in a session with settings of its own."""

    def __init__(self, kind: Kind, spark: SparkSession, place: Path) -> None:
        self.kind = kind
        # What rows of one task have to do with each other is to be the same: by itself one partition, one instance.
        self.spark = spark.newSession()
        for name, value in {"spark.sql.shuffle.partitions": str(kind.instances), **kind.conf}.items():
            self.spark.conf.set(name, value)
        self.beside = Beside(self.spark, place, kind.input)
        self.beside.give(*kind.batches)

    def on_spark(self) -> Batches:
        found: list[Rows] = []
        ending = threading.Event()
        query = (
            self.kind.build(self._source(), self.spark)
            .writeStream.outputMode("append")
            .foreachBatch(until_ending(ending, found.append))
            .option("checkpointLocation", str(self.beside.place / "spark"))
            .trigger(**({"availableNow": True} if self.kind.until is None else {"processingTime": "0 seconds"}))
            .start()
        )
        if self.kind.until is None:
            query.awaitTermination()
            return _batches(found)
        deadline = time.monotonic() + 120
        while sum(map(len, found)) < self.kind.until and time.monotonic() < deadline and query.isActive:
            query.awaitTermination(0.1)
        ending.set()
        query.stop()
        return _batches(found)

    def on_ferryman(self) -> Batches:
        found: list[Rows] = []
        stream = self.kind.build(Ferry(self.spark, self.beside.place / "ferried").stream(self._source()), self.spark)
        sink = sinks.foreach(lambda frame, _: found.append([tuple(row) for row in frame.collect()]))
        stream.write(sink).start("kind", instances=self.kind.instances, trigger={"availableNow": True}).wait()
        return _batches(found)

    def _source(self) -> Any:
        source = self.beside.stream()
        return source if self.kind.watermark is None else source.withWatermark(*self.kind.watermark)


def _batches(found: list[Rows]) -> Batches:
    # As text: a NaN is not equal to itself.
    return [sorted(map(repr, rows)) for rows in found if rows]


def differences(ours: Batches, theirs: Batches) -> str:
    """Say which rows of which batch only one of them has."""
    lines = []
    for number in range(max(len(ours), len(theirs))):
        mine, other = (batches[number] if number < len(batches) else [] for batches in (ours, theirs))
        lines += [f"batch {number}, only Ferryman: {row}" for row in mine if row not in other]
        lines += [f"batch {number}, only Spark:    {row}" for row in other if row not in mine]
    return "\n".join(lines) or f"rows more often than the other: {ours} {theirs}"
