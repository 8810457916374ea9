"""Name the watermarks of a job, so that each declaration counts for itself in the manifests."""

from __future__ import annotations

from collections.abc import Mapping

from ferryman._spark.api.stream import Operated, Source, Stream


def name_watermarks(operators: Mapping[str, Operated]) -> None:
    """Name the watermarks that each operator reports, by their declarations.

    The only declaration on a column has the column's name. Those of several sources on one column are told apart by the
    sources; several on the rows of one source, in branches of the job, by the first operator after each: its name is as
    lasting as the checkpoint, and the order of code is not. Only if that is the same are they told apart by the order
    in which they come to it.
    """
    reporting: dict[str, dict[int, list[str]]] = {}
    sources: dict[int, str] = {}
    for label, stream in operators.items():
        for declared in stream.declared:
            assert declared.event_time is not None, "it is where event time was declared"
            reporting.setdefault(declared.event_time.name, {}).setdefault(id(declared), []).append(label)
            sources[id(declared)] = _source_of(declared)
    names: dict[int, str] = {}
    for name, declarations in reporting.items():
        several = len({sources[place] for place in declarations}) > 1
        for place, labels in declarations.items():
            own = f"{name}@{sources[place]}" if several else name
            alike = [other for other in declarations if sources[other] == sources[place]]
            first = own if len(alike) == 1 else f"{own}@{min(labels)}"
            # Several of one source may come to one operator, as parts of its stream.
            same = sum(taken == first or taken.startswith(f"{first}#") for taken in names.values())
            names[place] = f"{first}#{same + 1}" if same else first
    for stream in operators.values():
        if stream.declared:
            stream.report_as(names)


def _source_of(stream: Stream) -> str:
    while not isinstance(stream, Source) and isinstance(parent := getattr(stream, "parent", None), Stream):
        stream = parent
    known_as: str = getattr(stream, "known_as", "")
    return known_as
