"""How fast to copy in the background: between epochs where there is time, else at a speed that epochs do not notice."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

LEAST = 16e6
MOST = 512e6

# An epoch that takes so much longer than the slower ones of before is taken for disturbed.
_SLACK = 1.1
# Time between two epochs that is worth waiting for, and how much of it may be used: Spark has its own to do in it.
_WORTH_S = 0.1
_USED = 0.5
# How long copying without a pause may go on before it is looked what that did to the epochs.
_CALL_S = 0.5
# An epoch is not waited for any longer than this.
_LONGEST_WAIT_S = 1.0
# How many epochs are remembered to tell what is usual.
_USUAL = 50


@dataclass(frozen=True)
class Pace:
    """A speed, and what epochs were like before anybody copied.

    Attributes
    ----------
    usual_s
        What an epoch may take; None if that is not known.
    between_s
        The time between two epochs; 0 where one follows the other.
    bytes_per_s
        How fast to copy now.
    """

    usual_s: float | None
    between_s: float = 0.0
    bytes_per_s: float = 64e6

    @classmethod
    def of(cls, epochs_s: Sequence[float], between_s: Sequence[float]) -> Pace:
        """Begin with what the epochs before took, and the time between them."""
        usual = statistics.quantiles(epochs_s, n=10)[-1] if len(epochs_s) > 1 else None
        gap = statistics.median(between_s) if between_s else 0.0
        if gap < _WORTH_S:
            return cls(usual)
        # How much fits between two epochs is not known before it was tried.
        return cls(usual, gap, LEAST)

    @property
    def chunk(self) -> int:
        """Give how many bytes to copy at once."""
        return int(self.bytes_per_s * (self.between_s * _USED or _CALL_S))

    def after(self, size: int, took_s: float, epochs_s: Sequence[float]) -> Pace:
        """Go on, having copied so much in such a time, while epochs took what they took.

        Examples
        --------
        >>> pace = Pace.of([0.1, 0.1, 0.1], [0.01])
        >>> pace.after(64, 1.0, [0.1]).bytes_per_s > pace.bytes_per_s > pace.after(64, 1.0, [0.2]).bytes_per_s
        True
        >>> Pace.of([0.1, 0.1], [0.4]).after(20_000_000, 1.0, []).bytes_per_s
        20000000.0
        """
        if self.between_s:
            # Between epochs it goes as fast as it can, and what that is decides how much fits.
            return replace(self, bytes_per_s=min(MOST, max(LEAST, size / max(took_s, 0.001))))
        if self.usual_s is None or not epochs_s:
            return self
        factor = 0.5 if max(epochs_s) > _SLACK * self.usual_s else 1.5
        return replace(self, bytes_per_s=min(MOST, max(LEAST, factor * self.bytes_per_s)))


class Rhythm:
    """What epochs are like of late: how long each takes, and the time between two.

    Attributes
    ----------
    epochs
        How many there have been.
    """

    def __init__(self) -> None:
        self.epochs = 0
        self._began: float | None = None
        self._ended: float | None = None
        self._durations: deque[float] = deque(maxlen=_USUAL)
        self._pauses: deque[float] = deque(maxlen=_USUAL)
        self._busy_s = 0.0
        self._overheads: deque[float] = deque(maxlen=_USUAL)

    def begin(self, now: float) -> None:
        """Learn that an epoch begins."""
        self._began, self._busy_s = now, 0.0
        if self._ended is not None:
            self._pauses.append(now - self._ended)

    def worked(self, busy_s: float) -> None:
        """Learn for how long of the epoch under way instances were at work."""
        self._busy_s = busy_s

    def end(self, now: float) -> None:
        """Learn that it has ended."""
        self._ended = now
        self.epochs += 1
        if self._began is not None:
            self._durations.append(now - self._began)
            self._overheads.append(max(0.0, now - self._began - self._busy_s))

    @property
    def running(self) -> bool:
        """Tell whether an epoch is under way."""
        return self._began is not None and (self._ended is None or self._began > self._ended)

    def pace(self) -> Pace:
        """Give the pace to begin with."""
        return Pace.of(list(self._durations), list(self._pauses))

    @property
    def overhead_s(self) -> float:
        """Give what an epoch costs whatever it has to do: the least of late, besides the work of the instances.

        Examples
        --------
        >>> rhythm = Rhythm()
        >>> for busy_s in (0.25, 0.5):
        ...     rhythm.begin(0.0)
        ...     rhythm.worked(busy_s)
        ...     rhythm.end(0.75)
        >>> rhythm.overhead_s
        0.25
        """
        return min(list(self._overheads), default=0.0)

    def overdue_s(self, now: float) -> float:
        """Give in how many seconds the next epoch is later than usual: after twice the usual time, a second at most.

        Examples
        --------
        >>> rhythm = Rhythm()
        >>> for second in range(5):
        ...     rhythm.begin(second * 0.25)
        ...     rhythm.end(second * 0.25 + 0.125)
        >>> rhythm.overdue_s(1.125)
        0.25
        >>> rhythm.overdue_s(9.0)
        0.0
        """
        if self._ended is None or not self._pauses:
            return 0.0
        return max(0.0, self._ended + min(_LONGEST_WAIT_S, 2 * statistics.median(self._pauses)) - now)

    def since(self, epochs: int) -> list[float]:
        """Give how long those took that came after so many."""
        return list(self._durations)[-(self.epochs - epochs) :] if self.epochs > epochs else []
