"""What epochs are like of late: how long each takes, and the time between two."""

from __future__ import annotations

import statistics
from collections import deque

from ferryman._migrate.copy_pace import CopyPace

# How many epochs are remembered to tell what is usual.
_USUAL = 50


class EpochTimes:
    """What epochs are like of late: how long each takes, and the time between two.

    Attributes
    ----------
    epochs
        How many there have been.
    ended
        When the last one has ended; None before the first.
    """

    def __init__(self) -> None:
        self.epochs = 0
        self._began: float | None = None
        self.ended: float | None = None
        self._durations: deque[float] = deque(maxlen=_USUAL)
        self._pauses: deque[float] = deque(maxlen=_USUAL)
        self._overheads: deque[float] = deque(maxlen=_USUAL)

    def begin(self, now: float) -> None:
        """Learn that an epoch begins."""
        self._began = now
        if self.ended is not None:
            self._pauses.append(now - self.ended)

    def end(self, now: float, busy_s: float = 0.0) -> None:
        """Learn that it has ended, and for how long of it instances were at work."""
        self.ended = now
        self.epochs += 1
        if self._began is not None:
            self._durations.append(now - self._began)
            self._overheads.append(max(0.0, now - self._began - busy_s))

    @property
    def running(self) -> bool:
        """Tell whether an epoch is under way."""
        return self._began is not None and (self.ended is None or self._began > self.ended)

    @property
    def between_s(self) -> float | None:
        """Give the usual time between two; None if that is not known."""
        return statistics.median(self._pauses) if self._pauses else None

    def pace(self) -> CopyPace:
        """Give the pace to begin to copy with."""
        return CopyPace.of(list(self._durations), list(self._pauses))

    @property
    def overhead_s(self) -> float:
        """Give what an epoch costs whatever it has to do: the least of late, besides the work of the instances.

        Examples
        --------
        >>> times = EpochTimes()
        >>> for busy_s in (0.25, 0.5):
        ...     times.begin(0.0)
        ...     times.end(0.75, busy_s)
        >>> times.overhead_s
        0.25
        """
        return min(list(self._overheads), default=0.0)

    def since(self, epochs: int) -> list[float]:
        """Give how long those took that came after so many."""
        return list(self._durations)[-(self.epochs - epochs) :] if self.epochs > epochs else []
