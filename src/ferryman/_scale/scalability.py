"""What more instances bring: learned from what earlier changes brought. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# However little a change brought, more instances are taken to bring at least so much: else one bad measurement would
# have the next change ask for all there are.
_LEAST = 0.3


@dataclass(frozen=True)
class Gain:
    """What a change of the number of instances brought: rows per second of work, before and after it."""

    before: int
    after: int
    rate_before: float
    rate_after: float

    @property
    def obtained(self) -> float:
        """Give how much more, as a part of what there was."""
        return self.rate_after / self.rate_before - 1

    @property
    def coefficient(self) -> float:
        """Give what part of an instance each further one brought.

        Examples
        --------
        >>> Gain(1, 2, 1000, 1700).coefficient, Gain(4, 2, 1000, 1100).coefficient, Gain(1, 2, 1000, 2500).coefficient
        (0.7, 0.0, 1.0)
        """
        ratio = self.rate_after / self.rate_before
        if (ratio - 1) * (self.after - self.before) <= 0:
            return 0.0
        divisor = (self.after - 1) - ratio * (self.before - 1)
        # Better than it can be, which is chance.
        return min(1.0, round((ratio - 1) / divisor, 9)) if divisor * (ratio - 1) > 0 else 1.0


@dataclass(frozen=True)
class Scalability:
    """What more instances bring: each further one this part of what the first does.

    Examples
    --------
    >>> Scalability(1.0).needed(2, 3.0), Scalability(0.5).needed(1, 3.0)
    (6, 5)
    >>> Scalability(0.5).speedup(1, 5)
    3.0
    """

    coefficient: float = 1.0

    @classmethod
    def learned(cls, gains: Sequence[Gain]) -> Scalability:
        """Learn it from what changes brought; the more of them, the less it is taken that all scales perfectly."""
        bounded = [max(_LEAST, gain.coefficient) for gain in gains]
        # One change is not believed more than what everybody hopes for.
        return cls(sum([1.0, *bounded]) / (len(bounded) + 1))

    def speedup(self, before: int, after: int) -> float:
        """Give how many times as many rows another number of instances does."""
        return self._worth(after) / self._worth(before)

    def needed(self, instances: int, factor: float) -> int:
        """Give how many instances do so many times as many rows as so many do."""
        worth = self._worth(instances) * factor
        # What is missing by rounding alone is not missing.
        return max(1, math.ceil(1 + (worth - 1) / self.coefficient - 1e-9))

    def _worth(self, instances: int) -> float:
        return 1 + self.coefficient * (instances - 1)
