"""What a plan takes between hosts: from who needs which key group now and then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ferryman._migrate.machine import Plan
from ferryman._routing.planning import Move
from ferryman._spark.hosts import Place


@dataclass(frozen=True)
class Lane:
    """The key groups that go from one state host to another."""

    source: str
    target: str
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Travel:
    """What a plan takes between hosts: where key groups come to, and what they leave behind in the end.

    Attributes
    ----------
    lanes
        What is to be copied.
    left
        The groups that are of no use any more at a state host, once all is done.
    """

    lanes: tuple[Lane, ...] = ()
    left: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def travel_of(plan: Plan, before: Mapping[int, Place], after: Mapping[int, Place]) -> Travel:
    """Find what has to go from host to host, from who needs a group now and then."""
    lanes: dict[tuple[str, str], list[int]] = {}
    left: dict[str, list[int]] = {}
    were, will = plan.before.workers(), plan.after.workers()
    # Not only what changes its instance: an instance of a new layout may be on another host than before.
    for group, (old, new) in enumerate(zip(plan.before.owner, plan.after.owner, strict=True)) if before else ():
        has = {before[one].host: before[one].location or "" for one in were.get(group, {old})}
        needs = {after[one].host: after[one].location or "" for one in will.get(group, {new})}
        for host in needs.keys() - has.keys():
            lanes.setdefault((before[old].location or "", needs[host]), []).append(group)
        for host in has.keys() - needs.keys():
            left.setdefault(has[host], []).append(group)
    return Travel(
        tuple(Lane(source, target, tuple(groups)) for (source, target), groups in lanes.items()),
        {location: tuple(groups) for location, groups in left.items()},
    )


def along_of(plan: Plan, before: Mapping[int, Place], after: Mapping[int, Place]) -> tuple[Move, ...]:
    """List what keeps its instance and travels all the same, as that instance comes to another host."""
    lanes = travel_of(plan, before, after).lanes
    travelling = {group for lane in lanes for group in lane.groups}
    was, will = plan.before.owner, plan.after.owner
    return tuple(Move(group, was[group], will[group]) for group in sorted(travelling) if was[group] == will[group])
