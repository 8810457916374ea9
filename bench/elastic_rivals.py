"""What others go by when they choose a number of instances: rules as a controller beside the job would follow them.

Their times are the defaults of KEDA with Kubernetes' autoscaler and of Flink's operator, shortened as the load is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ferryman._scale.metrics_history import MetricsHistory

# Over less than this nobody looks.
_LEAST_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a controller sees of a job.

    Attributes
    ----------
    at_s
        When, from the begin of the trace.
    instances
        How many there are.
    lag
        How many rows were due and are not committed.
    history
        Gives what the epochs of this run told.
    started_s
        When the query was last started; None if it has been running since before the trace.
    """

    at_s: float
    instances: int
    lag: int
    history: Callable[[], MetricsHistory]
    started_s: float | None


class Rule(Protocol):
    """Say how many instances there should be; None for as many as there are."""

    def __call__(self, seen: Seen, /) -> int | None:
        """Say it."""


@dataclass
class Lag:
    """Rows that wait, divided by how many one instance may have waiting: KEDA's rule, on a HorizontalPodAutoscaler.

    Attributes
    ----------
    per_instance
        `lagThreshold`: how many rows may wait for an instance.
    pace
        How many times as fast everything goes as by default.
    most
        How many instances there are at the most.
    """

    per_instance: float
    pace: float
    most: int
    # Defaults: synchronised every 15 s, no fewer than were wanted in 300 s, and a tenth is no difference.
    sync_s: float = 15.0
    stable_s: float = 300.0
    tolerance: float = 0.1
    looked_s: float = float("-inf")
    wanted: list[tuple[float, int]] = field(default_factory=list)

    def __call__(self, seen: Seen, /) -> int | None:
        """Say how many."""
        if seen.at_s - self.looked_s < self.sync_s / self.pace:
            return None
        self.looked_s = seen.at_s
        ratio = seen.lag / self.per_instance / seen.instances
        desired = seen.instances if abs(ratio - 1) <= self.tolerance else math.ceil(seen.lag / self.per_instance)
        # Four pods or twice as many at the most, whichever is more, in 15 s.
        desired = min(max(1, desired), self.most, seen.instances + max(4, seen.instances))
        since = seen.at_s - self.stable_s / self.pace
        self.wanted = [(at, count) for at, count in self.wanted if at > since] + [(seen.at_s, desired)]
        chosen = max(count for _, count in self.wanted) if desired < seen.instances else desired
        return min(chosen, max(seen.instances, desired))


@dataclass
class TrueRateWindows:
    """True rates over long windows: the rule of Flink's operator, with its defaults.

    Attributes
    ----------
    pace
        How many times as fast everything goes as by default.
    most
        How many instances there are at the most.
    """

    pace: float
    most: int
    # metrics.window, stabilization.interval, scale-down.interval, catch-up.duration, restart.time.
    window_s: float = 900.0
    stable_s: float = 300.0
    fewer_s: float = 3600.0
    catch_up_s: float = 1800.0
    target: float = 0.7
    boundary: float = 0.3
    fewer_since_s: float | None = None
    highest: int = 1

    def __call__(self, seen: Seen, /) -> int | None:
        """Say how many."""
        window_s = self.window_s / self.pace
        if seen.started_s is None:
            # The query has long been stable. What the window had before it is taken to be as what is known of it.
            window_s = min(window_s, max(_LEAST_S, seen.at_s - _LEAST_S))
        elif seen.at_s - seen.started_s < self.stable_s / self.pace + window_s:
            # It begins again when the query has become stable, and goes by whole windows only.
            return None
        window = seen.history().window(window_s)
        if window is None:
            return None
        load = window.load(window.rate + seen.lag / (self.catch_up_s / self.pace))
        if abs(load - self.target) <= self.boundary:
            self.fewer_since_s = None
            return None
        needed = min(self.most, max(1, math.ceil(seen.instances * load / self.target - 1e-9)))
        if needed >= seen.instances:
            self.fewer_since_s = None
            return needed
        # Fewer only after a while, and then as many as were wanted at the most; not less than two fifths of them.
        needed = max(needed, math.ceil(0.4 * seen.instances))
        if self.fewer_since_s is None:
            self.fewer_since_s, self.highest = seen.at_s, needed
        self.highest = max(self.highest, needed)
        if seen.at_s - self.fewer_since_s < self.fewer_s / self.pace:
            return None
        self.fewer_since_s = None
        return self.highest
