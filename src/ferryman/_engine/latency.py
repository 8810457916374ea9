"""How long rows take, from the time of their event to the commit of their epoch.

Every task takes a sample of its rows' times, of a bounded size; the driver knows when the epoch was committed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

# A task looks at so many of its rows at the most, and tells so many times of them, evenly spread.
_MOST_ROWS = 512
_TOLD = 17


@dataclass(frozen=True)
class Latency:
    """How long the rows of some epochs took; see `Job.latency`.

    Attributes
    ----------
    p50_ms, p99_ms, max_ms
        Half of the rows, and 99 of 100, took no longer; and the longest of those that were looked at.
    rows, epochs
        Of how many rows this tells, in how many epochs.
    """

    p50_ms: float
    p99_ms: float
    max_ms: float
    rows: int
    epochs: int


# The rows of a task, and some of their times.
Sample = tuple[int, tuple[int, ...]]


def sampled(times: pa.ChunkedArray) -> tuple[int, ...]:
    """Take some of the times of a task's rows, in ms, evenly spread over them; none if there are none.

    Examples
    --------
    >>> sampled(pa.chunked_array([pa.array([1_000, 3_000, 2_000], pa.timestamp("us"))]))[::8]
    (1, 2, 3)
    """
    some = times.take(pa.array(np.arange(0, len(times), len(times) // _MOST_ROWS + 1)))
    found = some.drop_null().cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()).to_numpy()
    if not len(found):
        return ()
    return tuple(np.quantile(found // 1000, np.linspace(0, 1, _TOLD), method="nearest").tolist())


def merged(samples: Sequence[Sample]) -> Sample | None:
    """Make one sample of several, no larger than one; None of none.

    Examples
    --------
    >>> rows, times = merged([(90, (1, 2, 3)), (10, (100, 200, 300))])
    >>> rows, times[0], times[8], times[-1]
    (100, 1, 2, 300)
    """
    if not samples:
        return None
    times = np.concatenate([np.array(some) for _, some in samples])
    weights = np.concatenate([np.full(len(some), rows / len(some)) for rows, some in samples])
    order = np.argsort(times)
    passed = np.cumsum(weights[order])
    places = np.searchsorted(passed, np.linspace(0, 1, _TOLD) * passed[-1])
    return sum(rows for rows, _ in samples), tuple(times[order][np.minimum(places, len(times) - 1)].tolist())


def latency(epochs: Iterable[tuple[int, Sample | None]]) -> Latency | None:
    """Tell how long the rows of epochs took, given when each was committed and a sample of its rows.

    Examples
    --------
    >>> latency([(100, (17, tuple(range(17)))), (200, None)])
    Latency(p50_ms=92.0, p99_ms=100.0, max_ms=100.0, rows=17, epochs=1)
    >>> latency([]) is None
    True
    """
    told = [(committed_ms, *sample) for committed_ms, sample in epochs if sample is not None]
    if not told:
        return None
    ages = np.concatenate([committed_ms - np.array(times) for committed_ms, _, times in told])
    weights = np.concatenate([np.full(len(times), rows / len(times)) for _, rows, times in told])
    order = np.argsort(ages)
    passed = np.cumsum(weights[order])
    p50, p99 = (float(ages[order][np.searchsorted(passed, part * passed[-1])]) for part in (0.5, 0.99))
    return Latency(p50, p99, float(ages.max()), sum(rows for _, rows, _ in told), len(told))
