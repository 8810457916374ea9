"""Have a Parquet sink forget what came after an epoch, while no job runs on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ferryman._engine.sink import SinkStart
from ferryman._model.errors import SinkMissing
from ferryman._spark.sinks.parquet import ATTEMPTS, ParquetSink


def newest_term(label: str, path: str, *, job_id: str) -> int:
    """Give the greatest term that a sink knows of; 0 if it is not there any more."""
    sink = ParquetSink(path)
    return sink.newest_term() if sink.is_claimed(job_id, label) else 0


def take_back(
    label: str,
    path: str,
    *,
    job_id: str,
    to: int,
    term: int,
    written_in: Callable[[int], Mapping[str, Any] | None],
) -> None:
    """Take the rows of later epochs out of a sink, as its next start would, and remove them.

    Raises
    ------
    SinkMissing
        If the sink is not there any more: it was moved or deleted. Where it is now, the next start takes them back.
    """
    sink = ParquetSink(path)
    if not sink.is_claimed(job_id, label):
        raise SinkMissing(f"{sink.where} is not that sink of this job any more.")
    sink.begin(SinkStart(epoch=to, term=term, fsync=True, written_in=written_in))
    for attempt in sink.attempts_after(to):
        sink.place.remove(f"{ATTEMPTS}/{attempt}")
