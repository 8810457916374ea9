"""How long a change takes: from how long earlier ones took. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ferryman._migrate.copy_pace import CopyPace

# What a change takes besides copying, before there was one to learn from: a layout is made, and an epoch comes.
FIRST_S = 1.0


@dataclass(frozen=True)
class Took:
    """What a change took that is done.

    Attributes
    ----------
    seconds
        From the request to the end.
    copying_s
        From when it began to copy.
    bytes
        What it copied between hosts.
    """

    seconds: float
    copying_s: float
    bytes: int


def seconds_for(bytes: int, earlier: Sequence[Took]) -> float:
    """Estimate how long it takes to bring so many bytes from host to host.

    As fast as earlier changes of the run copied, and as long besides as they took; at first a second, and 16 MB/s, with
    which copying begins.

    Examples
    --------
    >>> seconds_for(0, []), seconds_for(128_000_000, [])
    (1.0, 9.0)
    >>> seconds_for(30_000_000, [Took(4.0, 2.0, 20_000_000), Took(0.5, 0.1, 0)])
    4.25
    """
    besides = [change.seconds - change.copying_s if change.bytes else change.seconds for change in earlier]
    copied = sum(change.bytes for change in earlier)
    speed = (
        copied / max(1e-3, sum(change.copying_s for change in earlier if change.bytes))
        if copied
        else CopyPace(None).bytes_per_s
    )
    return (statistics.median(besides) if besides else FIRST_S) + bytes / speed
