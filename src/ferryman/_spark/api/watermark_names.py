"""Name the watermarks of a job, so that each declaration counts for itself in the manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferryman._spark.api.stream import Operated, Source, Stream, Watermarked


def name_watermarks(operators: Mapping[str, Operated]) -> None:
    """Name the watermark that each operator reports, by its declaration.

    The only declaration on a column has the column's name. Several on one column, in branches of the job, are told
    apart by the first operator after each: its name is as lasting as the checkpoint, and the order of code is not.
    """
    reporting: dict[str, dict[int, list[str]]] = {}
    for label, stream in operators.items():
        if stream.spec.time.watermarks:
            declared = _declared_at(stream)
            assert declared.event_time is not None, "it is where event time was declared"
            reporting.setdefault(declared.event_time.name, {}).setdefault(id(declared), []).append(label)
    for name, declarations in reporting.items():
        for labels in declarations.values():
            own = name if len(declarations) == 1 else f"{name}@{min(labels)}"
            for label in labels:
                operators[label].report_as(own)


def _declared_at(stream: Any) -> Stream:
    while not isinstance(stream, (Watermarked, Source)):
        stream = stream.parent
    return stream
