"""What speaks against a change that a policy wants: each guard gives its reason, or nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ferryman._scale.bottleneck import SCALES, Finding
from ferryman._scale.metrics_window import MetricsWindow
from ferryman._scale.scalability import Gain

_HOUR_S = 3600.0
# A change that brought less than this part of what was expected did not help.
_HELPED = 0.2
# For how long nobody tries again then; twice as long each time, up to an hour.
_REST_S = 60.0
# How often it waits twice as long before there are fewer, as there had to be more again soon after.
_MOST_DOUBLED = 5
# More than so many seconds' worth of rows is a backlog.
_BACKLOG_S = 2.0
# For how long nothing is tried after a change that was refused; twice as long each time, up to a bound.
_REFUSED_S = 10.0
_MOST_REFUSED = 6


@dataclass(frozen=True, kw_only=True)
class Guards:
    """What is remembered of earlier changes, as it speaks against others.

    Attributes
    ----------
    changed_s
        When the last change was done.
    refused_until_s, refusals
        Until when nothing is tried, as the last one was refused; and how many were, one after the other.
    moved
        When changes moved how many bytes between hosts, in the last hour.
    rest_until_s, rests
        Until when there are no more instances, as the last change for more did not help; and how often that was so.
    fewer_s, doubled
        When there were fewer for the last time; and how often that was taken back soon.
    """

    changed_s: float = float("-inf")
    refused_until_s: float = float("-inf")
    refusals: int = 0
    moved: tuple[tuple[float, int], ...] = ()
    rest_until_s: float = float("-inf")
    rests: int = 0
    fewer_s: float = float("-inf")
    doubled: int = 0

    def patience_s(self, scale_in_s: float) -> float:
        """Give for how long fewer have to be wanted: longer where there had to be more again soon after."""
        return float(scale_in_s * 2**self.doubled)

    def left(self, most_moved: int | None, now_s: float) -> int | None:
        """Give how many bytes may still move in this hour; None for any number."""
        if most_moved is None:
            return None
        return max(0, most_moved - sum(bytes for at, bytes in self.moved if now_s - _HOUR_S < at <= now_s))

    # -- what happened -------------------------------------------------------------------------------

    def changed(self, at_s: float, bytes: int) -> Guards:
        """Learn that a change is done."""
        recent = [(at, moved) for at, moved in self.moved if at_s - _HOUR_S < at <= at_s]
        moved = (*recent, (at_s, bytes)) if bytes else tuple(recent)
        return replace(self, changed_s=at_s, moved=moved, refusals=0)

    def refused(self, at_s: float) -> Guards:
        """Learn that a change cannot be."""
        until_s = at_s + _REFUSED_S * 2**self.refusals
        return replace(self, refused_until_s=until_s, refusals=min(self.refusals + 1, _MOST_REFUSED))

    def begun(self, at_s: float, before: int, after: int, scale_in_s: float) -> Guards:
        """Learn that a change begins: one for more soon after one for fewer means that this had come too soon."""
        if after < before:
            return replace(self, fewer_s=at_s)
        soon = at_s - self.fewer_s < 3 * self.patience_s(scale_in_s)
        doubled = min(self.doubled + 1, _MOST_DOUBLED) if soon else max(0, self.doubled - 1)
        return replace(self, doubled=doubled, fewer_s=float("-inf"))

    def gained(self, at_s: float, gain: Gain, expected: float) -> Guards:
        """Learn what a change for more has brought, and what was expected."""
        if gain.obtained >= _HELPED * expected:
            return replace(self, rests=0)
        rest_s = min(_HOUR_S, _REST_S * 2**self.rests)
        return replace(self, rest_until_s=at_s + rest_s, rests=min(self.rests + 1, 6))

    def went_back(self, to_s: float) -> Guards:
        """Learn that the clock went back: what was later than now is now."""
        return replace(
            self,
            changed_s=min(self.changed_s, to_s),
            refused_until_s=min(self.refused_until_s, to_s + _REFUSED_S),
            fewer_s=min(self.fewer_s, to_s),
            rest_until_s=min(self.rest_until_s, to_s + _REST_S),
            moved=tuple((min(at, to_s), bytes) for at, bytes in self.moved),
        )

    # -- what speaks against a change ----------------------------------------------------------------

    def objection(
        self,
        now_s: float,
        more: bool,
        window: MetricsWindow,
        finding: Finding,
        left: int | None,
        cool_down_s: float,
    ) -> str:
        """Say what speaks against a change; nothing if nothing does."""
        if now_s - self.changed_s < cool_down_s:
            return f"the last change is less than {cool_down_s:.0f} s ago"
        if now_s < self.refused_until_s:
            return f"the last change was refused; another is tried in {self.refused_until_s - now_s:.0f} s"
        if left == 0:
            return "as much state has moved in this hour as may"
        if more and now_s < self.rest_until_s:
            rest_s = self.rest_until_s - now_s
            return f"the last time more instances did not help; they are tried again in {rest_s:.0f} s"
        if more and finding.bottleneck not in SCALES:
            return f"more instances would not help ({finding})"
        if not more and window.waiting > _BACKLOG_S * max(1.0, window.rate):
            return f"{window.waiting:,.0f} rows wait in the source"
        return ""
