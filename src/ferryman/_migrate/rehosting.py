"""Have instances go to other hosts and own what they own: what a plan for that is made of. Pure.

Key groups keep their instances, so nothing in the routing table changes but its version. What travels is known when the
layout to come is laid out, as it is with any plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ferryman._migrate.plan import Plan
from ferryman._migrate.planning import Move
from ferryman._migrate.strategies import Strategy, steps_of
from ferryman._model.routing import RoutingTable


def rehosted(
    table: RoutingTable, are: Mapping[int, str], will: Mapping[int, str], open: frozenset[str], how: Strategy
) -> Plan:
    """Plan to have instances on other hosts.

    Parameters
    ----------
    table
        Who owns what.
    are, will
        The host of each instance, and the one that it is to be on.
    open
        The hosts that instances may be on in the end.
    how
        How it is carried out.

    Examples
    --------
    >>> from ferryman._migrate.strategies import strategy
    >>> table = RoutingTable.even(1, 4, 2)
    >>> plan = rehosted(table, {0: "a", 1: "b"}, {0: "a", 1: "a"}, frozenset("a"), strategy("live"))
    >>> [(move.group, move.source, move.target) for move in plan.moves], plan.after.owner == table.owner
    ([(2, 1, 1), (3, 1, 1)], True)
    """
    goes = {instance for instance, host in will.items() if are.get(instance, host) != host}
    workers = table.workers()
    moves = [
        Move(group, owner, owner)
        for group, owner in enumerate(table.owner)
        if goes & workers.get(group, frozenset({owner}))
    ]
    return Plan(
        before=table,
        after=replace(table, version=table.version + 1),
        strategy=how,
        steps=steps_of(moves, how),
        open=open,
    )
