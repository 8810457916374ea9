"""Name what holds a job back, and say why in a sentence. Pure.

Whether anything does is asked first: the job falls behind, or nearly so. Then it is asked what more instances would not
help: a sink, one key, a driver, or epochs that are small by order. What is left is that there are too few of them.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from ferryman._scale.metrics_window import MetricsWindow

# From this part of the time on a job is near its limits.
_FULL = 0.85
# Epochs that take so many times as long as their rows took to come grow without end.
_GROWS = 1.15
# What takes this part of an epoch is what the epoch waits for.
_MOST = 0.5
# A driver is starved when its part of an epoch takes so many times as long as it did in the best one.
_STARVED = 2.0
# A backlog that takes longer than this to catch up with is one.
_LATE_S = 10.0


class Bottleneck(enum.Enum):
    """What holds a job back."""

    NOTHING = "nothing"
    INSTANCES = "too few instances"
    HOT_KEY = "a hot key"
    SINK = "a slow sink"
    SMALL_EPOCHS = "epochs too small"
    DRIVER = "a starved driver"


# Those that more instances do something about.
SCALES = (Bottleneck.NOTHING, Bottleneck.INSTANCES)


@dataclass(frozen=True)
class Finding:
    """What holds a job back, and why that is thought."""

    bottleneck: Bottleneck
    why: str

    def __str__(self) -> str:
        return f"{self.bottleneck.value}: {self.why}"


def find(window: MetricsWindow | None, longer: MetricsWindow | None = None) -> Finding:
    """Find what holds a job back, by the newest epochs, and by more of them for what is usual."""
    if window is None:
        return Finding(Bottleneck.NOTHING, "too little is known yet")
    # All the time an epoch takes, of the time there is for it; instances are only a part of that.
    full = window.took_s / window.interval_s if window.interval_s > 0 else 0.0
    behind = _behind(window, full)
    if not behind and window.utilisation < _FULL and not (window.held_back and full > _FULL):
        if window.row_s is None:
            return Finding(Bottleneck.NOTHING, "no rows come")
        return Finding(Bottleneck.NOTHING, f"the busiest instances work {window.utilisation:.0%} of the time")
    if window.sinks_s >= _MOST * window.took_s:
        why = f"sinks take {window.sinks_s * 1000:.0f} of the {window.took_s * 1000:.0f} ms of an epoch"
        return Finding(Bottleneck.SINK, why)
    if window.overhead_s >= _MOST * window.took_s:
        return _of_overhead(window, (longer or window).usual_overhead_s)
    # What the instance with the key would still have to do with that key alone.
    alone = window.utilisation * window.key
    if window.key >= _MOST and alone >= _FULL and window.instances > 1:
        why = f"one key makes up {window.key:.0%} of what the busiest instance works on, and that one is full with it"
        return Finding(Bottleneck.HOT_KEY, why)
    return Finding(Bottleneck.INSTANCES, behind or f"the busiest instances need {window.utilisation:.0%} of the time")


def _behind(window: MetricsWindow, full: float) -> str:
    """Say how far a job is behind; nothing if it is not."""
    late_s = window.catch_up_s
    if late_s is not None and late_s > _LATE_S and window.waiting:
        how = "that grows" if late_s == math.inf else f"that takes {late_s:.0f} s to catch up with"
        return f"the source has a backlog of {window.backlog:,} rows {how}"
    if full > _GROWS:
        return f"epochs grow: they take {full:.1f} times as long as their rows took to come"
    return ""


def _of_overhead(window: MetricsWindow, usual_s: float) -> Finding:
    """Tell which it is where an epoch takes longer for all around its instances than for these."""
    around, took = window.overhead_s * 1000, window.took_s * 1000
    if window.overhead_s >= _STARVED * usual_s:
        usual = f"and {usual_s * 1000:.0f} in the best of late"
        return Finding(Bottleneck.DRIVER, f"{around:.0f} of the {took:.0f} ms of an epoch are the driver's, {usual}")
    why = f"{around:.0f} of the {took:.0f} ms of an epoch go by whatever its rows"
    what = ", and the source gives no more of them to one" if window.held_back else ""
    return Finding(Bottleneck.SMALL_EPOCHS, why + what)
