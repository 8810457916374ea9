"""What an epoch tells whoever decides how many instances there should be: one frozen record. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class OperatorMetrics:
    """What the instances of one operator did in an epoch.

    Attributes
    ----------
    rows, busy_s
        How many rows each instance worked on, and for how long.
    heaviest
        The rows of the key that had most, where that is a considerable part of all.
    """

    rows: tuple[int, ...] = ()
    busy_s: tuple[float, ...] = ()
    heaviest: int = 0

    def longest_s(self, slots: int | None = None) -> float:
        """Give for how long an epoch waits for its instances: where they have to take turns, for all of these.

        Examples
        --------
        >>> two = OperatorMetrics(rows=(10, 30), busy_s=(0.5, 1.5))
        >>> two.longest_s(), two.longest_s(slots=1)
        (1.5, 2.0)
        """
        return max(max(self.busy_s, default=0.0), sum(self.busy_s) / slots if slots else 0.0)

    @cached_property
    def busiest(self) -> int:
        """Give the number of the busiest instance."""
        return max(range(len(self.busy_s)), key=self.busy_s.__getitem__, default=0)


@dataclass(frozen=True, kw_only=True)
class EpochMetrics:
    """What one epoch tells.

    Attributes
    ----------
    epoch
        Its number.
    began_s, ended_s
        When, by a clock of the driver that only goes forward.
    time_ms
        When it was committed, in milliseconds since 1970.
    instances
        How many there were.
    rows
        How many came from the source.
    operators
        What each operator's instances did.
    sinks_s
        For how long the sinks held it up, besides its tasks.
    delta_bytes
        What it wrote of state.
    late_ms
        How long the slowest of a hundred of its rows took from event to commit; None if not known.
    slots
        How many tasks could run at the same time; None if not known.
    room
        For how many instances there could be executors; None where nobody asks for any, and slots count.
    express
        Whether its rows went by express: on one host, instances then take turns.
    disturbed
        Whether it tells nothing of what an epoch costs: it is the first of a run, state was restored in it, or a change
        was under way.
    """

    epoch: int
    began_s: float
    ended_s: float
    time_ms: int = 0
    instances: int = 1
    rows: int = 0
    operators: Mapping[str, OperatorMetrics] = field(default_factory=dict)
    sinks_s: float = 0.0
    delta_bytes: int = 0
    late_ms: float | None = None
    slots: int | None = None
    room: int | None = None
    express: bool = False
    disturbed: bool = False

    @property
    def took_s(self) -> float:
        """Give how long it took."""
        return self.ended_s - self.began_s

    @cached_property
    def busy_s(self) -> float:
        """Give for how long its busiest instances worked: operators one after the other, their instances at once."""
        return sum([operator.longest_s(self.slots) for operator in self.operators.values()])

    @cached_property
    def work_s(self) -> float:
        """Give for how long it waited for its instances: for all of these where they took turns."""
        if not self.express:
            return self.busy_s
        return sum([sum(operator.busy_s) for operator in self.operators.values()])

    @cached_property
    def even_s(self) -> float:
        """Give what that would have been, had every instance as much to do as any other."""
        return sum([sum(operator.busy_s) / max(1, len(operator.busy_s)) for operator in self.operators.values()])

    @property
    def faulty(self) -> bool:
        """Tell whether it cannot be true: a clock that is wrong, or a number that is none."""
        numbers = (self.began_s, self.ended_s, self.busy_s, self.sinks_s)
        # Not a number is not equal to itself, and infinity is more than any time.
        return not all(number < 1e12 for number in numbers) or self.took_s < 0 or self.instances < 1 or self.rows < 0
