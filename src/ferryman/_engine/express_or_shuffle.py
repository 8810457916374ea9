"""Choose how the rows of an epoch reach their instances: by a shuffle, or by express.

A shuffle costs more than all the rest of a small epoch. By express a single task reads the source. On one host it also
runs all instances, one after the other; on several hosts its rows go by the driver to a task per instance. That pays
while the rows are few, and while taking turns costs the instances less than the shuffle would. Both give the same
bytes, so the choice may go by anything. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ferryman._model.receipt import Receipt, TooMuch

# An express task that gets more rows than this, or more bytes, gives up before it has begun.
MOST_ROWS = 10_000
MOST_BYTES = 16 << 20
# What instances may lose by taking turns: about what a shuffle costs.
MOST_LOST_MS = 30.0
# How long one task may take to read rows, of the source or of a step after an operator: several could.
MOST_READING_MS = 250.0
# For how many epochs express is not tried after it was a bad choice; twice as many each time it is one again.
_LEAST_REST = 8
_MOST_REST = 1024


@dataclass(frozen=True)
class Route:
    """How the rows of an epoch went, and why; `gave_up` if it was to go by express, and there was too much for it."""

    express: bool
    why: str
    gave_up: bool = False

    @property
    def name(self) -> str:
        """Name it."""
        return "express" if self.express else "shuffle"


@dataclass(frozen=True, kw_only=True)
class EpochCost:
    """What an epoch was like, and what is remembered of those before it.

    Attributes
    ----------
    rows
        Those of the operator that had most.
    lost_ms
        What its instances lose if they take turns: the time of all but the longest, of every operator.
    rest, rested
        For how many epochs more express is not tried, and for how many it was not the last time.
    why
        Why not.
    slow
        Whether one task took long to read its rows.
    """

    epoch: int
    rows: int
    lost_ms: float
    rest: int = 0
    rested: int = 0
    why: str = ""
    slow: bool = False

    @classmethod
    def of(
        cls,
        before: EpochCost | None,
        epoch: int,
        rows: int,
        receipts: Sequence[Receipt],
        route: Route,
        reading_ms: float,
    ) -> EpochCost:
        """Tell by the epoch before, the tasks' receipts, how the rows went, and how long one task took to read them."""
        if not rows and before is not None:
            # It tells nothing of those with rows, and one of these may be next.
            return before
        busy: dict[str, list[float]] = {}
        for receipt in receipts:
            busy.setdefault(receipt.operator, []).append(receipt.busy_ms)
        lost_ms = sum(sum(times) - max(times) for times in busy.values())
        # Not by the first epoch of a run, as everything is slow in that; nor by one alone, as any may have bad luck.
        slow = route.express and before is not None and reading_ms > MOST_READING_MS
        why = ""
        if route.gave_up:
            why = f"epoch {epoch} was too much for it"
        elif slow and before is not None and before.slow:
            why = f"reading rows took one task {reading_ms:.0f} ms in epoch {epoch}, and long before that too"
        if why:
            rest = min(max(_LEAST_REST, 2 * (before.rested if before else 0)), _MOST_REST)
            return cls(epoch=epoch, rows=rows, lost_ms=lost_ms, rest=rest, rested=rest, why=why)
        if before is not None and before.rest > 1:
            rest, rested, why = before.rest - 1, before.rested, before.why
            return cls(epoch=epoch, rows=rows, lost_ms=lost_ms, rest=rest, rested=rested, why=why)
        # While it is not known whether it was a bad choice again, nothing is forgotten.
        rested = 0 if before is None or (route.express and not slow) else before.rested
        return cls(epoch=epoch, rows=rows, lost_ms=lost_ms, rested=rested, slow=slow)


def choose(before: EpochCost | None, unfit: str | None, *, in_turns: bool = True) -> Route:
    """Choose the route of an epoch.

    Parameters
    ----------
    before
        The epoch before, of this run; None if there was none.
    unfit
        Why this job, or this epoch, cannot go by express; None if it can.
    in_turns
        Whether instances would take turns by express; side by side they lose nothing.

    Examples
    --------
    >>> choose(EpochCost(epoch=7, rows=100, lost_ms=4.0), None)
    Route(express=True, why='epoch 7 had 100 rows', gave_up=False)
    >>> choose(None, "turned off").name
    'shuffle'
    >>> choose(EpochCost(epoch=7, rows=50_000, lost_ms=4.0), None).why
    'epoch 7 had 50,000 rows, and express takes 10,000 at the most'
    >>> [choose(EpochCost(epoch=7, rows=100, lost_ms=40.0), None, in_turns=turns).name for turns in (True, False)]
    ['shuffle', 'express']
    """
    if unfit is not None:
        return Route(False, unfit)
    if before is None:
        return Route(True, "nothing is known yet, and if there is too much, the task gives up")
    if before.rest:
        return Route(False, f"{before.why}; express is tried again in {before.rest} epochs")
    if before.rows > MOST_ROWS:
        return Route(
            False, f"epoch {before.epoch} had {before.rows:,} rows, and express takes {MOST_ROWS:,} at the most"
        )
    if in_turns and before.lost_ms > MOST_LOST_MS:
        lost = f"{before.lost_ms:.0f} ms"
        return Route(False, f"taking turns would have cost the instances {lost} in epoch {before.epoch}")
    return Route(True, f"epoch {before.epoch} had {before.rows:,} rows")


def too_much_for_express(told: TooMuch) -> Route:
    """Give the route of an epoch that turned out to be too much for express."""
    why = f"there were more rows than express takes ({told.rows:,} or more, {told.size:,} bytes)"
    return Route(False, why, gave_up=True)
