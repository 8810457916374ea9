"""Which group is copied first. Each order takes what is known of the groups and gives them in order; ties by id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cargo:
    """What is known of a group that is to be copied.

    Attributes
    ----------
    group
        Its number.
    bytes
        The size of its state.
    backlog
        How many of its rows wait to be processed.
    arrived
        When the first of them came, in seconds; infinity if none has.
    demanded
        When the new owner first asked for it, in seconds; infinity if it has not.
    copy_s, work_s
        How long it takes to copy it, and to process its backlog.
    """

    group: int
    bytes: int = 0
    backlog: int = 0
    arrived: float = float("inf")
    demanded: float = float("inf")
    copy_s: float = 0.0
    work_s: float = 0.0


Order = Callable[[Iterable[Cargo]], list[Cargo]]


def by_id(cargo: Iterable[Cargo]) -> list[Cargo]:
    """Go by number: what a controller does that knows nothing."""
    return sorted(cargo, key=lambda group_cargo: group_cargo.group)


def by_arrival(cargo: Iterable[Cargo]) -> list[Cargo]:
    """Go by whose row has waited longest: the first row waits least."""
    return sorted(cargo, key=lambda group_cargo: (group_cargo.arrived, group_cargo.group))


def by_size(cargo: Iterable[Cargo]) -> list[Cargo]:
    """Send the smallest first."""
    return sorted(cargo, key=lambda group_cargo: (group_cargo.bytes, group_cargo.group))


def by_backlog(cargo: Iterable[Cargo]) -> list[Cargo]:
    """Send what frees most rows per byte first: the mean row waits least (Smith's rule)."""
    return sorted(cargo, key=lambda group_cargo: (-group_cargo.backlog / max(group_cargo.bytes, 1), group_cargo.group))


def johnson(cargo: Iterable[Cargo]) -> list[Cargo]:
    """Keep the new owner busy while more is on its way: the last row is done soonest (Johnson's rule).

    Copying and processing are a flow shop of two machines: first what is copied faster than processed, by the time of
    the copy, where that is the same the most work first; then the rest, by the time of its processing, longest first.

    Examples
    --------
    >>> some = [Cargo(group=n, copy_s=copy, work_s=work) for n, copy, work in ((0, 5, 1), (1, 1, 3), (2, 4, 2))]
    >>> [group_cargo.group for group_cargo in johnson(some)]
    [1, 2, 0]
    """

    def place(group_cargo: Cargo) -> tuple[float, ...]:
        if group_cargo.copy_s < group_cargo.work_s:
            return 0, group_cargo.copy_s, -group_cargo.work_s, group_cargo.group
        return 1, -group_cargo.work_s, group_cargo.group

    return sorted(cargo, key=place)


def demand(cargo: Iterable[Cargo]) -> list[Cargo]:
    """Send what the new owner asked for, in the order it asked; then the rest."""
    return sorted(cargo, key=lambda group_cargo: (group_cargo.demanded, group_cargo.group))


ORDERS: dict[str, Order] = {
    "by_id": by_id,
    "arrival": by_arrival,
    "size": by_size,
    "backlog": by_backlog,
    "johnson": johnson,
    "demand": demand,
}
