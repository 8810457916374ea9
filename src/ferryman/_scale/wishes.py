"""What a policy wished for of late, and what follows from it: more if it keeps wanting that, fewer if it long has.

Pure. A policy is somebody's code: whatever it gives, or raises, becomes a wish within the limits or a told fault.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ferryman._scale.metrics_history import MetricsHistory
from ferryman._scale.policies import Policy, Wish

# So much of what a policy says is kept.
_LONGEST = 400


@dataclass(frozen=True)
class Fault:
    """A policy said nothing sensible."""

    why: str


def ask(policy: Policy, history: MetricsHistory, least: int, most: int) -> Wish | Fault | None:
    """Ask a policy, and have what it wishes within the limits; None if it wants what there is.

    Examples
    --------
    >>> ask(lambda history: Wish(10**6, "more!"), MetricsHistory(), 1, 16)
    Wish(instances=16, why='more! (1,000,000 wanted, 16 is the most)')
    >>> ask(lambda history: "many", MetricsHistory(), 1, 16)
    Fault(why="the policy gave 'many', and not a Wish")
    """
    try:
        return _within(policy(history), least, most)
    except (Exception, SystemExit) as error:
        # Also what it gave may raise, when it is to be told.
        return Fault(f"the policy raised {type(error).__name__}: {error}"[:_LONGEST])


def _within(said: object, least: int, most: int) -> Wish | Fault | None:
    if said is None:
        return None
    if not isinstance(said, Wish):
        return Fault(f"the policy gave {said!r}"[:_LONGEST] + ", and not a Wish")
    if not isinstance(said.instances, int) or isinstance(said.instances, bool):
        return Fault(f"the policy wished for {said.instances!r}"[:_LONGEST] + " instances, and not for a whole number")
    why, wanted = str(said.why)[:_LONGEST], min(most, max(least, said.instances))
    if wanted != said.instances:
        limit = f"{most} is the most" if said.instances > most else f"{least} is the least"
        why += f" ({said.instances:,} wanted, {limit})"
    return Wish(wanted, why)


@dataclass(frozen=True)
class Wishes:
    """What was wished for since the last change, and when; oldest first."""

    told: tuple[tuple[float, Wish], ...] = ()

    def add(self, at_s: float, wish: Wish, keep_s: float) -> Wishes:
        """Learn a wish; those of long ago, or of later than now, are forgotten."""
        kept = [old for old in self.told if old[0] < at_s]
        # The last one before that time says what held when it began.
        since = max([at for at, _ in kept if at <= at_s - keep_s], default=float("-inf"))
        return replace(self, told=(*[old for old in kept if old[0] >= since], (at_s, wish)))

    def candidate(self, now_s: float, instances: int, out_s: float, in_s: float) -> Wish | None:
        """Give what to change to; None for nothing.

        More if nothing less was wished for some time, and then the newest wish: it knows most. Fewer if nothing more
        was wished for longer, and then as many as were wished at the most.
        """
        newest = self.told[-1][1] if self.told else None
        if newest is None or newest.instances == instances:
            return None
        if newest.instances > instances:
            recent = self._since(now_s - out_s)
            return newest if recent and all(wish.instances > instances for wish in recent) else None
        recent = self._since(now_s - in_s)
        highest = max(recent, key=lambda wish: wish.instances, default=None)
        return highest if highest is not None and highest.instances < instances else None

    def _since(self, since_s: float) -> list[Wish]:
        """List the wishes since then, and the one that held then; none if that is longer ago than any."""
        before = [wish for at, wish in self.told if at <= since_s]
        return [*before[-1:], *[wish for at, wish in self.told if at > since_s]] if before else []
