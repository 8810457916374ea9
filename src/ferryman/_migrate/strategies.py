"""The known ways to move state, as values: they differ in what waits, when the routing changes, and in how many steps.

One engine runs them all, with one transport, so that a comparison compares protocols and nothing else. `live` is the
one to use, and `replicate` its name where replicas stand by; all others are there to be measured against.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ferryman._migrate.orders import ORDERS
from ferryman._migrate.planning import Move
from ferryman._model.errors import InvalidPlan


@dataclass(frozen=True)
class Strategy:
    """Say how a plan is carried out.

    Attributes
    ----------
    name
        What users call it.
    waits
        Whose rows are held back while state is on its way: nobody's, those of the groups that are moving, or all.
    switches_first
        Whether the new owner takes over before the state has come; else after.
    steps
        What moves together: everything, one group, or as many as there are pairs of instances that are free.
    order
        Which group is copied first, a name of `orders`.
    asks
        How a target that rows wait for asks for what comes to it: once for all; for one group after the other; once
        for all, and its source is told another order when more rows wait; or for a part after the other, where there is
        no source but the checkpoint, which is read anew for each.
    """

    name: str
    waits: Literal["nothing", "moving", "everything"]
    switches_first: bool = False
    steps: Literal["all", "one", "matching"] = "all"
    order: str = "by_id"
    asks: Literal["once", "one_by_one", "reordered", "in_parts"] = "once"


STRATEGIES = {
    known.name: known
    for known in (
        Strategy("stop_restart", "everything"),
        Strategy("pause_resume", "moving"),
        Strategy("fluid", "moving", steps="one"),
        Strategy("batched", "moving", steps="matching"),
        Strategy("replicate", "nothing"),
        Strategy("fetch", "moving", switches_first=True, order="demand", asks="one_by_one"),
        Strategy("push", "moving", switches_first=True, order="johnson", asks="reordered"),
        Strategy("live", "nothing", order="johnson"),
    )
}

# How groups come back whose host was lost. Not to be asked for: nothing is there to be moved.
RESTORE = Strategy("restore", "moving", switches_first=True, order="johnson", asks="in_parts")


def strategy(name: str) -> Strategy:
    """Find a strategy by name; after a colon, an order that is not its own.

    Examples
    --------
    >>> strategy("push").order, strategy("push:size").order
    ('johnson', 'size')
    """
    how, given, order = name.partition(":")
    if how not in STRATEGIES:
        raise InvalidPlan(f"strategy={name!r}: give one of {', '.join(STRATEGIES)}.")
    if given and order not in ORDERS:
        raise InvalidPlan(f"strategy={name!r}: after the colon goes an order, one of {', '.join(ORDERS)}.")
    return replace(STRATEGIES[how], order=order) if given else STRATEGIES[how]


def steps_of(moves: Iterable[Move], strategy: Strategy) -> tuple[tuple[Move, ...], ...]:
    """Divide moves into the steps of a strategy, one at the least; where there are several, keys move with the last.

    Examples
    --------
    >>> some = [Move(0, 0, 2), Move(1, 0, 2), Move(2, 1, 3)]
    >>> [[move.group for move in step] for step in steps_of(some, STRATEGIES["batched"])]
    [[0, 2], [1]]
    """
    if strategy.steps == "all":
        # A key that goes where its group is has all its state there.
        return (tuple(move for move in moves if not move.key or move.pins),)
    left = [move for move in moves if not move.key]
    if strategy.steps == "one":
        return tuple((move,) for move in left) or ((),)
    steps = []
    while left:
        step = matching(left)
        steps.append(tuple(step))
        left = [move for move in left if move not in step]
    return tuple(steps) or ((),)


def matching(moves: list[Move]) -> list[Move]:
    """Choose as many moves as can go at once with no instance sending or receiving two.

    A maximum matching between sources and targets, by augmenting paths.
    """
    by_source: dict[int, list[Move]] = {}
    for move in moves:
        by_source.setdefault(move.source, []).append(move)
    chosen: dict[int, Move] = {}

    def place(source: int, tried: set[int]) -> bool:
        for move in by_source[source]:
            if move.target not in tried:
                tried.add(move.target)
                if move.target not in chosen or place(chosen[move.target].source, tried):
                    chosen[move.target] = move
                    return True
        return False

    for source in by_source:
        place(source, set())
    return sorted(chosen.values())
