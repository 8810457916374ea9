"""How many rows per second come in, as time goes: synthetic shapes, and what was recorded. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


class Arrivals(Protocol):
    """Say how many rows per second come in at a time, in seconds since the begin."""

    def __call__(self, at_s: float, /) -> float:
        """Say it."""


@dataclass(frozen=True)
class Flat:
    """The same all the time."""

    rate: float

    def __call__(self, at_s: float, /) -> float:
        """Give the rate."""
        return self.rate


@dataclass(frozen=True)
class Step:
    """Another rate from a time on, and back again from a later one."""

    rate: float
    then: float
    at: float
    until: float = math.inf

    def __call__(self, at_s: float, /) -> float:
        """Give the rate."""
        return self.then if self.at <= at_s < self.until else self.rate


@dataclass(frozen=True)
class Diurnal:
    """Up and down again as a wave, once in a period."""

    low: float
    high: float
    period: float = 3600.0

    def __call__(self, at_s: float, /) -> float:
        """Give the rate."""
        return self.low + (self.high - self.low) * (1 - math.cos(2 * math.pi * at_s / self.period)) / 2


@dataclass(frozen=True)
class Spike:
    """Much for a short time, again and again."""

    rate: float
    high: float
    every: float = 900.0
    lasts: float = 10.0

    def __call__(self, at_s: float, /) -> float:
        """Give the rate."""
        return self.high if at_s % self.every >= self.every - self.lasts else self.rate


@dataclass(frozen=True)
class Sawtooth:
    """Steadily more, and then at once as little as in the beginning, again and again."""

    low: float
    high: float
    period: float = 900.0

    def __call__(self, at_s: float, /) -> float:
        """Give the rate."""
        return self.low + (self.high - self.low) * (at_s % self.period) / self.period


@dataclass(frozen=True)
class FlashCrowd:
    """From a time on quickly much more, that goes away slowly."""

    rate: float
    high: float
    at: float = 600.0
    rises: float = 30.0
    fades: float = 600.0

    def __call__(self, at_s: float, /) -> float:
        """Give the rate."""
        since = at_s - self.at
        if since < self.rises:
            return self.rate + (self.high - self.rate) * max(0.0, since) / self.rises
        return self.rate + (self.high - self.rate) * math.exp((self.rises - since) / self.fades)


@dataclass(frozen=True)
class SlowLeak:
    """A little more all the time."""

    rate: float
    per_hour: float

    def __call__(self, at_s: float, /) -> float:
        """Give the rate."""
        return self.rate + self.per_hour * at_s / 3600


@dataclass(frozen=True)
class Ramp:
    """More and more up to a time, then less and less, as much as in the beginning from another time on."""

    low: float
    high: float
    peak: float
    end: float

    def __call__(self, at_s: float, /) -> float:
        """Give the rate."""
        part = at_s / self.peak if at_s < self.peak else (self.end - at_s) / (self.end - self.peak)
        return self.low + (self.high - self.low) * max(0.0, part)


@dataclass(frozen=True)
class Recorded:
    """What was recorded: when, in seconds, and how many rows per second came from then on.

    Examples
    --------
    >>> load = Recorded(((0.0, 100.0), (60.0, 500.0)))
    >>> load(59.0), load(61.0)
    (100.0, 500.0)
    """

    points: Sequence[tuple[float, float]]

    def __call__(self, at_s: float, /) -> float:
        """Give the rate."""
        place = bisect_right(self.points, at_s, key=lambda point: point[0])
        return self.points[max(0, place - 1)][1]


# What `ferryman simulate --load` calls them: each goes from a rate to a higher one, within an hour.
SHAPES: dict[str, Callable[[float, float], Arrivals]] = {
    "flat": lambda low, high: Flat(low),
    "step": lambda low, high: Step(low, high, 600.0, 2400.0),
    "diurnal": Diurnal,
    "spike": Spike,
    "sawtooth": Sawtooth,
    "flash-crowd": FlashCrowd,
    "slow-leak": lambda low, high: SlowLeak(low, high - low),
    "ramp": lambda low, high: Ramp(low, high, 300.0, 600.0),
}
