"""How fast to copy in the background: faster as long as epochs take what they took before, slower when they do not."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

LEAST = 16e6
MOST = 512e6

# An epoch that takes so much longer than the slower ones of before is taken for disturbed.
_SLACK = 1.1


@dataclass(frozen=True)
class Pace:
    """A speed, and what epochs took before anybody copied.

    Attributes
    ----------
    usual_s
        What an epoch may take; None if that is not known.
    bytes_per_s
        How fast to copy now.
    """

    usual_s: float | None
    bytes_per_s: float = 64e6

    @classmethod
    def of(cls, before_s: Sequence[float]) -> Pace:
        """Begin with what the epochs before took."""
        usual = statistics.quantiles(before_s, n=10)[-1] if len(before_s) > 1 else None
        return cls(usual)

    def after(self, epochs_s: Sequence[float]) -> Pace:
        """Go on, having seen what the epochs took meanwhile.

        Examples
        --------
        >>> pace = Pace.of([0.1, 0.1, 0.1])
        >>> pace.after([0.1]).bytes_per_s > pace.bytes_per_s > pace.after([0.2]).bytes_per_s
        True
        """
        if self.usual_s is None or not epochs_s:
            return self
        factor = 0.5 if max(epochs_s) > _SLACK * self.usual_s else 1.5
        return replace(self, bytes_per_s=min(MOST, max(LEAST, factor * self.bytes_per_s)))
