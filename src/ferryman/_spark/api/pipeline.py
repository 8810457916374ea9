"""What the outputs of a job rest on: all its streams, the source, the operators, and who reads what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ferryman._engine.operator_spec import OperatorSpec
from ferryman._engine.sink import Sink
from ferryman._model.errors import InvalidConfiguration
from ferryman._spark.api.job_sources import JobSources
from ferryman._spark.api.joint import Joint
from ferryman._spark.api.lookups import Looked, LookedUp
from ferryman._spark.api.stream import Operated, Output, Source, Stream
from ferryman._spark.api.watermark_names import name_watermarks


@dataclass(frozen=True)
class Pipeline:
    """All that the outputs of a job rest on.

    Attributes
    ----------
    streams
        Every stream, sources first.
    operators
        The operators among them, by name; who reads of another comes after it.
    """

    outputs: tuple[Output, ...]
    streams: Sequence[Stream]
    sources: JobSources
    operators: dict[str, Operated]

    @classmethod
    def of(cls, outputs: tuple[Output, ...]) -> Pipeline:
        """Find it; the watermarks of its operators are named."""
        streams = reachable([output.stream for output in outputs])
        sources, operators = sources_of(streams), operators_of(streams)
        lookups_of(streams)
        name_watermarks(operators)
        return cls(outputs, streams, sources, operators)

    @property
    def ends(self) -> list[Stream]:
        """List the streams that are written."""
        return [output.stream for output in self.outputs]

    @property
    def sinks(self) -> list[Sink]:
        """List where they are written to."""
        return [output.sink for output in self.outputs]

    @property
    def specs(self) -> list[OperatorSpec]:
        """List what its operators are."""
        return [stream.spec for stream in self.operators.values()]

    @property
    def watermarks(self) -> list[str]:
        """List the watermarks that are declared."""
        return sorted({watermark.name for spec in self.specs for watermark in spec.time.watermarks})


def reachable(outputs: Sequence[Stream]) -> list[Stream]:
    """List every stream that the outputs rest on, sources first."""
    found: dict[int, Stream] = {}

    def visit(stream: Stream) -> None:
        if id(stream) not in found:
            for parent in parents(stream):
                visit(parent)
            found[id(stream)] = stream

    for output in outputs:
        visit(output)
    return list(found.values())


def parents(stream: Stream) -> list[Stream]:
    """List the streams that one is made of: its rows, and the rows of broadcast states that it reads."""
    if isinstance(stream, Joint):
        return list(stream.parts)
    above = [parent] if isinstance(parent := getattr(stream, "parent", None), Stream) else []
    return above + ([state.stream for state in stream.broadcasts.values()] if isinstance(stream, Operated) else [])


def sources_of(streams: Sequence[Stream]) -> JobSources:
    """Give the sources among the streams of a job."""
    return JobSources.of([stream for stream in streams if isinstance(stream, Source)])


def operators_of(streams: Sequence[Stream]) -> dict[str, Operated]:
    """Give the operators among the streams of a job, by name; who reads of another comes after it."""
    operators: dict[str, Operated] = {}
    for stream in streams:
        if isinstance(stream, Operated):
            if stream.spec.name in operators:
                raise InvalidConfiguration(
                    f"two operators are called {stream.spec.name!r}. Give one of them another name (name=...)."
                )
            operators[stream.spec.name] = stream
    if not operators:
        raise InvalidConfiguration(
            "the job has no operator with state. Add .key_by(...).process(...) or .aggregate(...)."
        )
    return operators


def lookups_of(streams: Sequence[Stream]) -> list[LookedUp]:
    """Give the tables that the streams of a job look up."""
    found: dict[str, LookedUp] = {}
    for stream in streams:
        if isinstance(stream, Looked) and found.setdefault(stream.table.name, stream.table) is not stream.table:
            raise InvalidConfiguration(
                f"two lookups are called {stream.table.name!r}. Give one of them another name (name=...)."
            )
    return list(found.values())


def shared(streams: Sequence[Stream], outputs: Sequence[Stream]) -> set[int]:
    """Find the streams that several others read: they are computed once per epoch and kept for it."""
    readers = Counter(id(parent) for stream in streams for parent in parents(stream))
    readers.update(id(output) for output in outputs)
    return {stream for stream, count in readers.items() if count > 1}


def united(streams: Sequence[Stream]) -> frozenset[str]:
    """Name the operators whose rows go, with no shuffle in between for certain, into a stream made of several."""
    found: set[str] = set()
    above = [part for stream in streams if isinstance(stream, Joint) for part in stream.parts]
    while above:
        stream = above.pop()
        if isinstance(stream, Operated):
            found.add(stream.spec.name)
        above += [parent for parent in parents(stream) if not isinstance(stream, Joint)]
    return frozenset(found)
