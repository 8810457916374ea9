"""What a plan takes between hosts: from who needs which key group now and then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ferryman._migrate.instance_numbers import numbers, relabelled
from ferryman._migrate.layout import InstanceHost
from ferryman._migrate.machine import Migration, Phase
from ferryman._migrate.plan import Plan
from ferryman._migrate.planning import Move, moves
from ferryman._migrate.strategies import steps_of
from ferryman._model.routing import RoutingTable
from ferryman._routing.sites import Site, SiteMap

# Gives the table to get to, from the one there is and where the instances are, or are going to be.
Choice = Callable[[RoutingTable, SiteMap], RoutingTable]

# Where the instances of a layout are, by their numbers.
InstanceHosts = Mapping[int, InstanceHost]


@dataclass(frozen=True)
class Lane:
    """The key groups that go from one state host to another; from the checkpoint, if its source is empty."""

    source: str
    target: str
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Lanes:
    """What a plan takes between hosts: where key groups come to, and what they leave behind in the end.

    Attributes
    ----------
    used
        What is to be copied.
    left
        The groups that are of no use any more at a state host, once all is done.
    """

    used: tuple[Lane, ...] = ()
    left: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def lanes_of(plan: Plan, before: InstanceHosts, after: InstanceHosts) -> Lanes:
    """Find what has to go from host to host, from who needs a group now and then."""
    used: dict[tuple[str, str], list[int]] = {}
    left: dict[str, list[int]] = {}
    were, will = plan.before.workers(), plan.after.workers()
    # Not only what changes its instance: an instance of a new layout may be on another host than before.
    for group, (old, new) in enumerate(zip(plan.before.owner, plan.after.owner, strict=True)) if before else ():
        has = {before[worker].host: before[worker].location or "" for worker in were.get(group, {old})}
        needs = {after[worker].host: after[worker].location or "" for worker in will.get(group, {new})}
        if group in plan.lost:
            for location in needs.values():
                used.setdefault((plan.kept.get(group, ""), location), []).append(group)
            continue
        for host in needs.keys() - has.keys():
            used.setdefault((before[old].location or "", needs[host]), []).append(group)
        for host in has.keys() - needs.keys():
            left.setdefault(has[host], []).append(group)
    return Lanes(
        tuple(Lane(source, target, tuple(groups)) for (source, target), groups in used.items()),
        {location: tuple(groups) for location, groups in left.items()},
    )


def along_of(plan: Plan, before: InstanceHosts, after: InstanceHosts) -> tuple[Move, ...]:
    """List what keeps its instance and travels all the same, as that instance comes to another host."""
    travelling = {group for lane in lanes_of(plan, before, after).used for group in lane.groups}
    was, will = plan.before.owner, plan.after.owner
    return tuple(Move(group, was[group], will[group]) for group in sorted(travelling) if was[group] == will[group])


def fitted(
    plan: Plan, choose: Choice, before: InstanceHosts, after: InstanceHosts, sites: tuple[Site, ...] = ()
) -> Plan:
    """Make a plan fit the hosts that its instances are on, now that these are known.

    Parameters
    ----------
    plan
        The plan.
    choose
        What its table was chosen by: where there are sites, it is chosen again.
    before, after
        Where the instances are, and where those of the layout to come are.
    sites
        The sites that are declared.
    """
    if not before:
        return plan
    if plan.after.instances == plan.before.instances:
        if plan.open is None:
            return plan
        # Where an instance goes is certain only now.
        travels = along_of(plan, before, after)
        return replace(plan, steps=steps_of(travels, plan.strategy)) if travels else plan
    were, are = ([at[instance].host for instance in sorted(at)] for at in (before, after))
    table = plan.after
    if sites:
        hosts = tuple(are[number] for number in numbers(were, are))
        table = choose(plan.before, SiteMap((*hosts, *were[len(hosts) :]), sites, len(hosts)))
    fits = replace(plan, after=relabelled(table, were, are))
    moving = (*moves(fits.before, fits.after), *along_of(fits, before, after))
    return replace(fits, steps=steps_of(moving, fits.strategy))


def useless(machine: Migration, lanes: Lanes) -> list[tuple[str, list[int]]]:
    """List what state hosts need not keep after a plan: the old mains of what has moved, the new ones of what has not.

    Give the location of each state host, and the groups there.
    """
    done = machine.phase is Phase.DONE
    released = {move.group for move in machine.to_release()}
    # Pins change with the last step, so what has pinned keys is still needed where it was.
    released -= set(machine.plan.before.workers())
    found = [
        (location, [group for group in groups if done or group in released]) for location, groups in lanes.left.items()
    ]
    if not done:
        found += [(lane.target, [group for group in lane.groups if group not in released]) for lane in lanes.used]
    return [(location, groups) for location, groups in found if groups]
