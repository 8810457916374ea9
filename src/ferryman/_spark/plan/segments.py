"""Cut a job into segments: operators that can run in one task, from the rows of one DataFrame on.

An operator that reads another's rows as they are goes into the other's segment. Where a step of Spark's lies between,
a new segment begins with what that step makes. Nothing here depends on an epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from ferryman._engine.express_epoch import OutputOf
from ferryman._spark.api.joint import Joint
from ferryman._spark.api.pipeline import reachable
from ferryman._spark.api.stream import Operated, Parted, Stream, Transformed, plain

_HASHED = (
    BinaryType, BooleanType, ByteType, DateType, DecimalType, DoubleType, FloatType, IntegerType, LongType, ShortType,
    TimestampNTZType, TimestampType,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Segment:
    """Operators that can run in one task.

    Attributes
    ----------
    root
        The stream whose rows come to the task.
    operators
        The operators, each with whose rows it reads; None for those that come. Who reads of another comes after it.
    given
        The streams whose rows leave the task: those of sinks, and those that Spark's steps and later segments read.
    """

    root: Stream
    operators: tuple[tuple[Operated, OutputOf | None], ...]
    given: tuple[Stream, ...]


@dataclass(frozen=True)
class Cut:
    """A job in segments.

    Attributes
    ----------
    segments
        First to last.
    read_on
        The streams of operators, by their identity, that Spark reads on from.
    shared
        The other streams, by their identity, that Spark computes and several read.
    """

    segments: tuple[Segment, ...]
    read_on: frozenset[int]
    shared: frozenset[int]


def cut(outputs: Sequence[Stream]) -> Cut:
    """Cut a job into segments, given the streams that sinks get."""
    streams = reachable(outputs)
    roots: dict[tuple[int, str], Stream] = {}
    members: dict[tuple[int, str], list[tuple[Operated, OutputOf | None]]] = {}
    place_of: dict[int, tuple[int, str]] = {}
    for operator in (stream for stream in streams if isinstance(stream, Operated)):
        parent = plain(operator.parent)
        above = _operator_of(parent)
        if above is not None and operator.initial is None and hashed_alike(operator):
            place, reads = place_of[id(above)], output_of(parent)
        else:
            # The rows of an initial state come with those of one operator only.
            place, reads = (id(parent), operator.spec.name if operator.initial is not None else ""), None
            roots[place] = parent
        place_of[id(operator)] = place
        members.setdefault(place, []).append((operator, reads))
    steps = [*roots.values(), *(stream.parent for stream in streams if isinstance(stream, Transformed))]
    steps += [part for stream in streams if isinstance(stream, Joint) for part in stream.parts]
    read = Counter(id(plain(stream)) for stream in (*outputs, *steps))
    given: dict[tuple[int, str], list[Stream]] = {place: [] for place in members}
    for stream in streams:
        if id(stream) in read and (above := _operator_of(stream)) is not None:
            given[place_of[id(above)]].append(stream)
    made = {id(stream) for some in given.values() for stream in some}
    return Cut(
        tuple(Segment(roots[place], tuple(some), tuple(given[place])) for place, some in members.items()),
        frozenset(id(plain(stream)) for stream in steps) & made,
        frozenset(stream for stream, readers in read.items() if readers > 1) - made,
    )


def output_of(stream: Stream) -> OutputOf:
    """Say whose rows a stream of an operator has."""
    above = _operator_of(stream)
    assert above is not None, "only an operator has output"
    return OutputOf(above.spec.name, stream.name if isinstance(stream, Parted) else None)


def _operator_of(stream: Stream) -> Operated | None:
    """Give the operator whose rows, or the rows of whose side output, a stream is; None for other streams."""
    stream = stream.parent if isinstance(stream, Parted) else stream
    return stream if isinstance(stream, Operated) else None


def hashed_alike(operator: Operated) -> bool:
    """Tell whether its keys are hashed without Spark as Spark does it."""
    return all(is_hashed(operator.parent.schema[name].dataType) for name in operator.spec.routed.names)


def is_hashed(kind: DataType) -> bool:
    """Tell whether a key of a type is hashed without Spark as Spark does it."""
    # A string of another collation is hashed by what it is compared by.
    return isinstance(kind, _HASHED) or kind == StringType()
