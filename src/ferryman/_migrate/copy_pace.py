"""How fast to copy in the background: between epochs where there is time, else at a speed that epochs do not notice."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

LEAST = 8e6
MOST = 512e6
# Before anybody has tried.
_FIRST = 16e6

# An epoch that takes so much longer than the slower ones of before is taken for disturbed.
_SLACK = 1.1
# Time between two epochs that is worth waiting for, and how much of it may be used: Spark has its own to do in it.
_WORTH_S = 0.1
_USED = 0.5
# How long copying without a pause may go on before it is looked what that did to the epochs.
_CALL_S = 0.5


@dataclass(frozen=True)
class CopyPace:
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
    bytes_per_s: float = _FIRST

    @classmethod
    def of(cls, epochs_s: Sequence[float], between_s: Sequence[float]) -> CopyPace:
        """Begin with what the epochs before took, and the time between them."""
        usual = statistics.quantiles(epochs_s, n=10)[-1] if len(epochs_s) > 1 else None
        gap = statistics.median(between_s) if between_s else 0.0
        # What epochs do not notice, and how much fits between two of them, is not known before it was tried.
        return cls(usual, gap if gap >= _WORTH_S else 0.0)

    @property
    def chunk(self) -> int:
        """Give how many bytes to copy at once."""
        return int(self.bytes_per_s * (self.between_s * _USED or _CALL_S))

    def after(self, size: int, took_s: float, epochs_s: Sequence[float]) -> CopyPace:
        """Go on, having copied so much in such a time, while epochs took what they took.

        Examples
        --------
        >>> pace = CopyPace.of([0.1, 0.1, 0.1], [0.01])
        >>> pace.after(64, 1.0, [0.1]).bytes_per_s > pace.bytes_per_s > pace.after(64, 1.0, [0.2]).bytes_per_s
        True
        >>> CopyPace.of([0.1, 0.1], [0.4]).after(20_000_000, 1.0, []).bytes_per_s
        20000000.0
        """
        if self.between_s:
            # Between epochs it goes as fast as it can, and what that is decides how much fits.
            return replace(self, bytes_per_s=min(MOST, max(LEAST, size / max(took_s, 0.001))))
        if self.usual_s is None or not epochs_s:
            return self
        factor = 0.5 if max(epochs_s) > _SLACK * self.usual_s else 1.5
        return replace(self, bytes_per_s=min(MOST, max(LEAST, factor * self.bytes_per_s)))
