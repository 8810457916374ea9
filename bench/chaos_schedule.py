"""Which fault comes when: a pure function of the seed, so that a campaign can be run again. Touches nothing.

What a fault hits is chosen when it comes, by `Fault.chance` among the victims that are there then.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count, takewhile


@dataclass(frozen=True)
class Kind:
    """What can go wrong.

    Attributes
    ----------
    what
        For people.
    lasts_s
        How long it goes on, at the least and at the most; (0, 0) for what is over at once.
    often
        How often it comes in a deck of all kinds.
    rest
        How many times the usual pause comes after it.
    needs_lines
        Whether it takes hold of other processes' sockets.
    ends_driver
        Whether a driver does not outlive it. Every other deck has none of these, so that memory can be watched.
    """

    what: str
    lasts_s: tuple[float, float] = (0.0, 0.0)
    often: int = 2
    rest: float = 1.0
    needs_lines: bool = False
    ends_driver: bool = False


KINDS = {
    "worker killed": Kind("SIGKILL to a Python worker of a host"),
    "executor killed": Kind("SIGKILL to the executor's JVM of a host", rest=1.5),
    "state host killed": Kind("SIGKILL to the state host of a host"),
    "host killed": Kind("SIGKILL to all of a host's processes at once", rest=1.5),
    "driver killed": Kind("SIGKILL to the driver; its supervisor starts it again", often=1, rest=2.5, ends_driver=True),
    "driver's JVM killed": Kind("SIGKILL to the driver's JVM", often=1, rest=2.5, ends_driver=True),
    "worker stopped": Kind("SIGSTOP to the Python workers of a host, later SIGCONT", (1, 6)),
    "executor stopped": Kind("SIGSTOP to the executor's JVM of a host, later SIGCONT", (1, 15)),
    "state host stopped": Kind("SIGSTOP to the state host of a host, later SIGCONT", (1, 10)),
    "driver stopped": Kind("SIGSTOP to the driver and its JVM, later SIGCONT", (1, 8)),
    "host slowed": Kind("a host's processes stopped for two thirds of the time", (3, 10)),
    "checkpoint disk full": Kind(
        "no room in the checkpoint and the Parquet sinks", (0.5, 4), often=1, rest=2.0, ends_driver=True
    ),
    "host disk full": Kind(
        "no file of a host's Python processes may grow", (1, 5), often=1, rest=2.0, ends_driver=True
    ),
    "host cut off": Kind("a host hears nothing from others, and goes on", (1, 14), needs_lines=True),
    "line with losses": Kind("a host loses a third of all packets that come", (3, 10), needs_lines=True),
    "lines torn": Kind("all connections of a host are reset, at once", needs_lines=True),
    "state lines torn": Kind("a state host's connections are reset, 20 times a second", (1, 4), needs_lines=True),
    "clock ahead": Kind("the job's clock jumps ahead, by seconds to days", often=1),
    "clock back": Kind("the job's clock jumps back, by seconds to days", often=1),
    "delta flipped": Kind("a bit flips in a delta that a snapshot covers", often=1),
    "snapshot flipped": Kind("a bit flips in a file of the newest snapshot", often=1),
    "manifest flipped": Kind("a bit flips in a manifest that a snapshot covers", often=1),
    "rescale": Kind("the number of instances is changed", often=4),
    "hot key moved": Kind("the hottest key is pinned to another instance"),
    "groups moved": Kind("a third of an instance's key groups go to another one"),
    "autoscaling": Kind("the job chooses its number of instances by itself, for a while", (5, 15), often=1),
}

# How far a clock jumps, in seconds: within what time stands still for, and beyond.
_JUMPS_S = (5, 45, 600, 86_400, 3 * 86_400)
_FIRST_S = 5.0


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes
    ----------
    number
        Which it is, from 1.
    at_s
        When it comes, in seconds since the job's first epoch.
    kind
        Its name in `KINDS`.
    lasts_s
        How long it goes on.
    chance
        From 0 to 1: which of the victims there are then.
    much
        How many instances there are to be, or how many seconds the clock jumps by.
    """

    number: int
    at_s: float
    kind: str
    lasts_s: float
    chance: float
    much: int

    def of(self, number: int) -> int:
        """Choose one of so many."""
        return min(int(self.chance * number), number - 1)


def schedule(
    seed: int, minutes: float, every_s: float, kinds: Collection[str] = tuple(KINDS), most_instances: int = 6
) -> tuple[Fault, ...]:
    """List the faults of a campaign. One that is longer begins with those of a shorter one.

    Parameters
    ----------
    seed
        What all of it follows from.
    minutes
        How long faults come.
    every_s
        How long it is from one fault to the next, about.
    kinds
        Which there are.
    most_instances
        How many instances a rescale asks for at the most.

    Examples
    --------
    >>> [(fault.at_s, fault.kind) for fault in schedule(7, 0.5, 10, ["rescale", "clock back"])]
    [(5.0, 'clock back'), (13.5, 'rescale'), (20.5, 'rescale'), (29.8, 'rescale')]
    """
    return tuple(takewhile(lambda fault: fault.at_s < 60 * minutes, _all(seed, every_s, sorted(kinds), most_instances)))


def _all(seed: int, every_s: float, kinds: list[str], most_instances: int) -> Iterator[Fault]:
    chance = random.Random(f"{seed} {every_s} {kinds} {most_instances}")
    at_s = _FIRST_S
    harmless = [name for name in kinds if not KINDS[name].ends_driver]
    deck: list[str] = []
    decks = 0
    for number in count(1):
        if not deck:
            # All of them, and then all again: chance alone would leave some out for long.
            chosen = harmless if decks % 2 and harmless else kinds
            deck = [name for name in chosen for _ in range(KINDS[name].often)]
            chance.shuffle(deck)
            decks += 1
        kind = deck.pop()
        lasts_s = round(chance.uniform(*KINDS[kind].lasts_s), 2)
        much = chance.choice(_JUMPS_S) if kind.startswith("clock") else chance.randint(1, most_instances)
        yield Fault(number, round(at_s, 1), kind, lasts_s, round(chance.random(), 6), much)
        at_s += every_s * KINDS[kind].rest * chance.uniform(0.4, 1.2)
