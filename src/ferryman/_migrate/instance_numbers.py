"""Which number each instance of a layout to come gets: that of before, where it is still on the same host. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ferryman._model.routing import RoutingTable


def relabelled(after: RoutingTable, were: Sequence[str], are: Sequence[str]) -> RoutingTable:
    """Give instances the numbers with which as many as can be stay on the host they were on.

    Parameters
    ----------
    after
        The table to come.
    were
        The host of each instance of the table there is.
    are
        The host of each instance of the table to come.

    Examples
    --------
    >>> relabelled(RoutingTable(2, 3, (0, 1, 2)), ["a", "b"], ["b", "b", "a"]).owner
    (2, 0, 1)
    """
    number = numbers(were, are)
    pins = tuple(replace(pin, instance=number[pin.instance]) for pin in after.pins)
    return replace(after, owner=tuple(number[owner] for owner in after.owner), pins=pins)


def numbers(were: Sequence[str], are: Sequence[str]) -> list[int]:
    """Give each instance the number with which it stays on the host it was on, if it can; from the hosts of both."""
    free = list(range(len(are)))
    number: dict[int, int] = {}
    for old in range(min(len(were), len(are))):
        same = next((new for new in free if are[new] == were[old]), None)
        if same is not None:
            number[old] = same
            free.remove(same)
    return [number[old] if old in number else free.pop(0) for old in range(len(are))]
