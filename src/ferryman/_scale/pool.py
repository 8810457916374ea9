"""The pool of a job's executors as a pure state machine: told what there is, it says what to ask for and what goes.

It follows the number of instances, whoever changes that. What it asks for and does not get it asks for again, later
each time. An executor is given back when no instance is there any more, so its host has to be left first: by a plan,
while the stream flows. Executors of one host go together, unless they share the host's home.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ferryman._scale.pool_options import Pool

# After how long what was not given is asked for again; twice as long each time, up to a bound.
_AGAIN_S = 30.0
_MOST_AGAIN_S = 600.0
# How often it is tried to have instances leave the same hosts, where a plan for it was given up.
_RETRY_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What there is at a look.

    Attributes
    ----------
    at_s
        When, by a clock that only goes forward.
    instances
        How many instances the job has.
    executors
        How many executors there are on each host and warm, without those that are about to go.
    cold
        How many there are besides that are not warm yet.
    occupied
        How many instances are on each host.
    open
        The hosts that instances may be on; None for all.
    changing
        Whether a plan is under way.
    cores
        How many an executor has; None if not known.
    shared
        Whether the executors of a host share its home, so that one of several can go and nothing with it.
    """

    at_s: float
    instances: int
    executors: Mapping[str, int] = field(default_factory=dict)
    cold: int = 0
    occupied: Mapping[str, int] = field(default_factory=dict)
    open: frozenset[str] | None = None
    changing: bool = False
    cores: int | None = None
    shared: bool = False

    @property
    def count(self) -> int:
        """Give how many executors there are."""
        return sum(self.executors.values()) + self.cold

    @property
    def warm(self) -> frozenset[str]:
        """Name the hosts that are warm."""
        return frozenset(self.executors)

    def room(self, hosts: Iterable[str]) -> int:
        """Give how many executors there are on some hosts."""
        return sum(self.executors.get(host, 0) for host in hosts)


@dataclass(frozen=True)
class Room:
    """For how many instances there is room; and why for no more, where more were wanted."""

    instances: int
    why: str = ""


@dataclass(frozen=True)
class Ask:
    """Ask the cluster for so many executors in all."""

    executors: int


@dataclass(frozen=True)
class KeepTo:
    """Have instances on these hosts alone."""

    hosts: frozenset[str]


@dataclass(frozen=True)
class GiveBack:
    """Give back so many executors of each of these hosts, all only if no instance is there; so many stay in all."""

    hosts: Mapping[str, int]
    left: int


Instruction = Ask | KeepTo | GiveBack


@dataclass(frozen=True, kw_only=True)
class ExecutorPool:
    """Where a pool stands.

    Attributes
    ----------
    options
        What the user has chosen.
    awaited
        How many instances there are going to be, once there is room.
    asked, asked_s
        How many executors were asked for and have not all come, and since when.
    again_s, refusals, short_of
        Until when nothing more is asked for, as it was not given; how often that was so, one after the other; and how
        many executors were asked for the last time it was.
    surplus_s
        Since when there are more than are needed; None if there are not.
    there_s
        Since when as many are there as are needed, and no plan keeps their hosts from being opened; None if not.
    tried, tried_s
        The hosts that instances were to be on, when that was tried last.
    seen
        The newest look.
    """

    options: Pool
    awaited: int | None = None
    asked: int | None = None
    asked_s: float = 0.0
    again_s: float = float("-inf")
    refusals: int = 0
    short_of: int = 0
    surplus_s: float | None = None
    there_s: float | None = None
    tried: frozenset[str] | None = None
    tried_s: float = float("-inf")
    seen: Seen | None = None

    # -- what is known now ---------------------------------------------------------------------------

    @property
    def needed(self) -> int:
        """Give how many executors there should be."""
        if self.seen is None:
            return self.options.min
        return self.options.executors_for(max(self.seen.instances, self.awaited or 0), self.seen.cores)

    @property
    def refused(self) -> bool:
        """Tell whether the cluster has not given what was asked for, and is left in peace for now."""
        return self.seen is not None and self.seen.at_s < self.again_s and self.seen.count < self.needed

    @property
    def most_instances(self) -> int | None:
        """Give for how many instances there can be room; None while nothing is known.

        As many as there may be executors for; after a refusal as there are.
        """
        if self.seen is None:
            return None
        short = self.refusals and self.seen.at_s < self.again_s
        executors = min(self.options.max, self.seen.count) if short else self.options.max
        return max(1, executors) * self.options.each(self.seen.cores)

    def room_for(self, instances: int) -> Room | None:
        """Tell for how many of so many instances there is room now; None if that is to be waited for.

        There is where their executors are there, warm, and open to them.
        """
        seen = self.seen
        if seen is None or seen.changing:
            return None
        there = seen.room(self._open(seen))
        if instances <= seen.instances or there >= self.options.executors_for(instances, seen.cores):
            return Room(instances)
        # Some may have come just before, and are not warm or not open yet.
        coming = there < seen.count and seen.at_s - self.asked_s < 2 * self.options.patience_s
        in_vain = not coming if self.refused else self._never_open
        if self.awaited == instances and in_vain:
            return Room(there * self.options.each(seen.cores), str(self))
        return None

    @property
    def _never_open(self) -> bool:
        """Tell whether executors that are there have not become warm and open for so long that they never may."""
        if self.seen is None or self.there_s is None:
            return False
        return self.seen.at_s - self.there_s >= 2 * self.options.patience_s

    def __str__(self) -> str:
        if self.seen is None:
            return "the pool has not looked yet"
        there = f"{self.seen.count} of {self.needed} executors are there"
        if self.refused:
            return f"{there}: the cluster gives no more, and is asked again in {self.again_s - self.seen.at_s:.0f} s"
        if self._never_open and (now := self.seen.room(self._open(self.seen))) < self.needed:
            return f"{there}, and only {now} of them {'is' if now == 1 else 'are'} open to instances"
        return f"{there}, and the others were asked for" if self.asked is not None else there

    # -- what happened -------------------------------------------------------------------------------

    def await_room(self, instances: int | None) -> ExecutorPool:
        """Learn how many instances there are going to be; None if there are not going to be others."""
        return self if instances == self.awaited else replace(self, awaited=instances, there_s=None)

    def look(self, seen: Seen) -> tuple[ExecutorPool, tuple[Instruction, ...]]:
        """Learn what there is; give the pool after it, and what is to be done because of it."""
        pool = replace(self, seen=seen)
        if self.seen is not None and seen.at_s < self.seen.at_s:
            # The clock went back: nothing may wait for a time that is long to come.
            pool = replace(
                pool,
                asked_s=seen.at_s,
                again_s=seen.at_s,
                surplus_s=None,
                there_s=None,
                tried=None,
                tried_s=float("-inf"),
            )
        waits = seen.changing or seen.count < pool.needed
        pool = replace(pool, there_s=None if waits else seen.at_s if pool.there_s is None else pool.there_s)
        pool, asking = pool._asking(seen)
        pool, moving = pool._moving(seen)
        return pool, (*asking, *moving)

    def _asking(self, seen: Seen) -> tuple[ExecutorPool, tuple[Instruction, ...]]:
        """Ask for what is missing, and stop waiting for what does not come."""
        needed = self.needed
        if seen.count >= max(needed, self.short_of):
            return replace(self, asked=None, refusals=0, short_of=0, again_s=float("-inf")), ()
        if seen.count >= needed:
            # Nobody wants more now; that there are no more to be had is still so.
            return replace(self, asked=None), ()
        if self.asked is not None and self.asked >= needed:
            if seen.at_s - self.asked_s < self.options.patience_s:
                return self, ()
            again_s = seen.at_s + min(_MOST_AGAIN_S, _AGAIN_S * 2**self.refusals)
            # What is not wanted any more must not come later.
            waits = replace(self, asked=None, again_s=again_s, refusals=min(self.refusals + 1, 10), short_of=self.asked)
            return waits, (Ask(max(seen.count, self.options.min)),)
        if seen.at_s < self.again_s:
            return self, ()
        return replace(self, asked=needed, asked_s=seen.at_s), (Ask(needed),)

    def _moving(self, seen: Seen) -> tuple[ExecutorPool, tuple[Instruction, ...]]:
        """Open hosts that have come, have instances leave those that are not needed, and give these back."""
        surplus_s = None if seen.count <= self.needed else seen.at_s if self.surplus_s is None else self.surplus_s
        pool = replace(self, surplus_s=surplus_s)
        if seen.changing or not seen.warm:
            return pool, ()
        lasted = surplus_s is not None and seen.at_s - surplus_s >= self.options.give_back_s
        stay = pool._stay(seen, lasted=lasted)
        if stay != self._open(seen) or seen.open is None:
            if pool.tried == stay and seen.at_s - pool.tried_s < _RETRY_S:
                return pool, ()
            return replace(pool, tried=stay, tried_s=seen.at_s), (KeepTo(stay),)
        leaving = {host: seen.executors[host] for host in sorted(seen.warm - stay)}
        if not lasted or any(seen.occupied.get(host) for host in leaving):
            return pool, ()
        if seen.shared:
            left = seen.room(stay) - self.needed
            for host in sorted(stay):
                if (spare := min(left, seen.executors[host] - 1)) > 0:
                    leaving[host] = spare
                    left -= spare
        return pool, (GiveBack(leaving, seen.count - sum(leaving.values())),) if leaving else ()

    def _stay(self, seen: Seen, *, lasted: bool) -> frozenset[str]:
        """Choose the hosts that instances are to be on: those that have most of them, as many as are needed."""
        now, needed = self._open(seen), self.needed
        by_use = sorted(now, key=lambda host: (-seen.occupied.get(host, 0), host))
        others = sorted(seen.warm - now)
        if seen.room(now) <= needed or not lasted:
            chosen, rest = by_use, others
        else:
            chosen, rest = [], by_use
        for host in rest:
            if seen.room(chosen) >= needed:
                break
            chosen = [*chosen, host]
        return frozenset(chosen)

    @staticmethod
    def _open(seen: Seen) -> frozenset[str]:
        """Give the hosts that are warm and open to instances."""
        return seen.warm if seen.open is None else seen.warm & seen.open
