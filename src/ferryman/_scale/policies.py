"""Say how many instances a job should have: pure functions of its metrics history. Whoever wants another writes one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol

from ferryman._scale.metrics_history import MetricsHistory
from ferryman._scale.metrics_window import MetricsWindow

# A trend is looked for over so many windows.
_TREND_WINDOWS = 4
# More instances than this are not thought of.
_MOST = 1000


@dataclass(frozen=True)
class Wish:
    """How many instances a policy wants, and why."""

    instances: int
    why: str


class Policy(Protocol):
    """Say how many instances there should be, going by the history alone; None for "as many as there are".

    Examples
    --------
    >>> def one_per_thousand(history: MetricsHistory) -> Wish | None:
    ...     window = history.window(5.0)
    ...     return None if window is None else Wish(round(window.rate / 1000), f"{window.rate:,.0f} rows/s come in")
    """

    def __call__(self, history: MetricsHistory, /) -> Wish | None:
        """Say it."""


@dataclass(frozen=True, kw_only=True)
class TrueRates:
    """As many as the rows that come in need, by what instances really do while they work; as DS2 does it.

    What comes in (and what has piled up, spread over the time to catch up with it) is divided by what an instance does
    in a second of work. What further instances bring is learned from earlier changes.

    Parameters
    ----------
    target
        What part of the time the busiest instances should work.
    band
        How far from the target it may be before anything is done.
    window_s
        Over how long that is measured.
    catch_up_s
        In which time a backlog should be caught up with.
    ahead_s
        How far ahead to look where the load grows steadily.
    """

    target: float = 0.7
    band: float = 0.15
    window_s: float = 5.0
    catch_up_s: float = 60.0
    ahead_s: float = 10.0

    def __call__(self, history: MetricsHistory, /) -> Wish | None:
        """Say how many."""
        window = history.window(self.window_s)
        if window is None:
            return None
        grows = max(0.0, history.trend(self.window_s * _TREND_WINDOWS)) * self.ahead_s
        behind = window.waiting / self.catch_up_s
        load = window.load(window.rate + grows + behind)
        if window.held_back:
            # How many more there are is not known; that there are more is.
            load = max(load, 1.0)
        said = f"the busiest of {window.instances} instances need {load:.0%} of the time"
        extra = [f"{grows:,.0f} rows/s more are on their way"] * (grows > 0)
        extra += [f"{window.waiting:,.0f} rows wait"] * (behind > 0)
        extra += ["the source has more rows than it gives to an epoch"] * window.held_back
        said += f" ({' and '.join(extra)})" if extra else ""
        if abs(load - self.target) <= self.band:
            return Wish(window.instances, f"{said}, which is near enough to {self.target:.0%}")
        needed = history.scalability.needed(window.instances, load / self.target)
        return Wish(needed, f"{said}, and {self.target:.0%} is wanted")


@dataclass(frozen=True, kw_only=True)
class Seep:
    """One more when instances work more than a part of the time in two reports in a row, as SEEP does it.

    And one less when the others could have its work and still were well below that, which SEEP did not have.

    Parameters
    ----------
    above
        That part of the time.
    report_s
        How long a report looks back.
    """

    above: float = 0.7
    report_s: float = 5.0

    def __call__(self, history: MetricsHistory, /) -> Wish | None:
        """Say how many."""
        newest, both = history.window(self.report_s), history.window(2 * self.report_s)
        if newest is None or both is None:
            return None
        # That both reports are above it: the newest, and what is left of both without it.
        earlier = 2 * both.utilisation - newest.utilisation
        said = f"instances worked {newest.utilisation:.0%} of the time, and {earlier:.0%} before that"
        instances = newest.instances
        if min(newest.utilisation, earlier) > self.above:
            return Wish(instances + 1, f"{said}: more than {self.above:.0%}")
        fewer = max(newest.utilisation, earlier) * instances / max(1, instances - 1)
        if instances > 1 and fewer < self.above * 0.8:
            return Wish(instances - 1, f"{said}: one less would be at {fewer:.0%}")
        return Wish(instances, said)


@dataclass(frozen=True, kw_only=True)
class TargetLatency:
    """As few as keep the slowest rows within a time.

    A row waits for its epoch to begin, and then for that epoch. What an epoch takes with another number of instances
    is what it takes around them, and their work divided anew.

    Parameters
    ----------
    seconds
        How long the slowest rows may take.
    window_s
        Over how long that is measured.
    margin
        What part of that time is aimed at.
    """

    seconds: float
    window_s: float = 5.0
    margin: float = 0.8

    def __call__(self, history: MetricsHistory, /) -> Wish | None:
        """Say how many."""
        window = history.window(self.window_s)
        if window is None or window.row_s is None:
            return None
        instances = window.instances
        now_s, limit_s = self._latency_s(window, 1.0), self.seconds * self.margin
        scalability = history.scalability
        for count in range(1, _MOST + 1):
            took_s = self._latency_s(window, scalability.speedup(instances, count))
            # What is there already may be a little above what is aimed at, so that noise changes nothing.
            if took_s <= (self.seconds if count == instances else limit_s):
                said = f"the slowest rows take {_shown(now_s)} and may take {_shown(self.seconds)}"
                return Wish(count, f"{said}; with {count} instances they take {_shown(took_s)}")
        return Wish(instances, f"no number of instances brings the slowest rows to {_shown(self.seconds)}")

    def _latency_s(self, window: MetricsWindow, speedup: float) -> float:
        """Give how long the slowest rows take with so many times the speed."""
        around_s = window.overhead_s + window.sinks_s + window.fixed_s
        load = window.utilisation / speedup
        if window.interval_s > window.took_s * 1.1:
            # The job rests between epochs: the next one begins when it would anyway, if this one is over by then.
            took_s = around_s + load * window.interval_s
            if took_s <= window.interval_s:
                return window.interval_s + took_s
        # Epochs follow each other: each takes as long as it needs for what came in the one before.
        return 2 * around_s / (1 - load) if load < 1 else math.inf


@dataclass(frozen=True)
class Schedule:
    """So many at the least from a time of the day on, in UTC; and more if another policy wants more.

    Parameters
    ----------
    times
        How many from when on: {"08:00": 8, "20:30": 2}.
    otherwise
        The other policy.
    """

    times: Mapping[str, int]
    otherwise: Policy = field(default_factory=TrueRates)

    def __post_init__(self) -> None:
        if not self.times:
            raise ValueError('times: give one at the least, for example {"08:00": 8}')
        for time in self.times:
            datetime.strptime(time, "%H:%M")

    def __call__(self, history: MetricsHistory, /) -> Wish | None:
        """Say how many."""
        clock = datetime.fromtimestamp(history.time_ms / 1000, timezone.utc).strftime("%H:%M")
        written = {datetime.strptime(time, "%H:%M").strftime("%H:%M"): count for time, count in self.times.items()}
        # Before the first of a day the last of the day before holds.
        since = max([time for time in written if time <= clock], default=max(written))
        wish = self.otherwise(history)
        if wish is not None and wish.instances >= written[since]:
            return wish
        return Wish(written[since], f"from {since} UTC on there are {written[since]} at the least")


def _shown(seconds: float) -> str:
    """Write a time down as people read it."""
    if seconds == math.inf:
        return "for ever"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
