"""Where instances are: hosts, and the sites that a user has declared. Pure; calls only `_model`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from ferryman._model.errors import InvalidPlan
from ferryman._model.records import RoutingTable

Floats = npt.NDArray[np.float64]

# How far instances of one site are apart: nearer than any two sites.
INSIDE = -1.0

Target = int | str


@dataclass(frozen=True)
class Site:
    """A place with a name and a distance.

    Parameters
    ----------
    name
        What it is called: "cloud", "edge-1".
    hosts
        Its hosts as Spark knows them, or patterns such as "10.1.*"; a host belongs to the first site that has it.
    distance
        How far it is from the middle, in whatever unit. The way between two sites leads over the middle: it is as long
        as both distances together.

    Examples
    --------
    >>> Site("edge-1", ["10.1.*"], distance=20).has("10.1.0.7")
    True
    """

    name: str
    hosts: str | Sequence[str]
    distance: float = 0.0

    @property
    def patterns(self) -> tuple[str, ...]:
        """List what its hosts are called."""
        return (self.hosts,) if isinstance(self.hosts, str) else tuple(self.hosts)

    def has(self, host: str) -> bool:
        """Tell whether a host is there."""
        return any(fnmatchcase(host, pattern) for pattern in self.patterns)


# Where hosts are that no site has.
NOWHERE = Site("", ())


def site_faults(sites: object) -> list[str]:
    """List what is wrong with the sites somebody declares."""
    if isinstance(sites, str) or not isinstance(sites, Iterable):
        return [f"sites={sites!r}: give a list of ferryman.Site"]
    given = list(sites)
    strange = [one for one in given if not isinstance(one, Site)]
    faults = [f"sites: {one!r} is no site; write Site('cloud', ['10.0.*'])" for one in strange]
    known = [one for one in given if isinstance(one, Site)]
    for site in known:
        if not isinstance(site.name, str) or not site.name.strip() or site.name.isdigit():
            faults.append(f"sites: name={site.name!r}: give a text that is no number, as numbers are instances")
        listed = isinstance(site.hosts, (str, Sequence)) and not isinstance(site.hosts, bytes)
        if not listed or not site.patterns or not all(isinstance(one, str) and one.strip() for one in site.patterns):
            faults.append(
                f"site {site.name!r}: hosts={site.hosts!r}: give one host or pattern such as '10.1.*' or more"
            )
        number = isinstance(site.distance, (int, float)) and not isinstance(site.distance, bool)
        if not number or not 0 <= site.distance < math.inf:
            faults.append(f"site {site.name!r}: distance={site.distance!r}: give a number, 0 or more")
    names = Counter(one.name for one in known if isinstance(one.name, str))
    return faults + [f"sites: {name!r} is declared {n} times; names must differ" for name, n in names.items() if n > 1]


@dataclass(frozen=True)
class Places:
    """Where the instances of a job are.

    Attributes
    ----------
    hosts
        The host of each instance; empty while that is not known.
    sites
        The sites that are declared.
    instances
        How many there are going to be, if this tells where these are: those that go come after them.
    """

    hosts: tuple[str, ...] = ()
    sites: tuple[Site, ...] = ()
    instances: int | None = None

    def site(self, instance: int) -> Site:
        """Give the site of an instance; one without a name if no site has its host, or that is not known."""
        host = self.hosts[instance] if instance < len(self.hosts) else None
        return next((one for one in self.sites if host is not None and one.has(host)), NOWHERE)

    def apart(self, instances: int) -> Floats:
        """Tell how far instances are apart: `INSIDE` within a site, else the distances of both sites.

        Examples
        --------
        >>> Places(("a", "b", "b"), (Site("near", "a", 1), Site("far", "b", 5))).apart(3).tolist()
        [[-1.0, 6.0, 6.0], [6.0, -1.0, -1.0], [6.0, -1.0, -1.0]]
        """
        if not self.sites:
            return np.full((instances, instances), INSIDE)
        at = [self.site(one) for one in range(instances)]
        number = np.array([self.sites.index(one) if one in self.sites else -1 for one in at])
        distance = np.array([one.distance for one in at], np.float64)
        return np.where(number[:, None] == number[None, :], INSIDE, distance[:, None] + distance[None, :])

    def with_instances(self, instances: int) -> Places:
        """Guess where another number of instances would be: spread over the same hosts, each where it is if it can.

        Instances that would go are still listed, after the others.

        Examples
        --------
        >>> Places(("a", "b")).with_instances(4).hosts
        ('a', 'b', 'a', 'b')
        >>> Places(("a", "a", "b", "b")).with_instances(2).hosts
        ('a', 'b', 'b', 'b')
        """
        if not self.hosts or instances == (self.instances or len(self.hosts)):
            return self
        most_first = [host for host, _ in Counter(self.hosts).most_common()]
        each, more = divmod(instances, len(most_first))
        room = {host: each + (place < more) for place, host in enumerate(most_first)}
        found: list[str | None] = []
        for host in (*self.hosts[:instances], *[None] * (instances - len(self.hosts))):
            found.append(host if host is not None and room[host] else None)
            room.update({host: room[host] - 1} if host is not None and room[host] else {})
        free = iter([host for host in most_first for _ in range(room[host])])
        return Places((*(host or next(free) for host in found), *self.hosts[instances:]), self.sites, instances)

    def at(self, target: str) -> list[int]:
        """Give the instances of a site or a host; refused with what there is if there are none."""
        named = [one for one in self.sites if one.name == target]
        if named:
            found = [one for one in range(len(self.hosts)) if self.site(one) == named[0]]
        else:
            found = [one for one, host in enumerate(self.hosts) if host == target]
        if found:
            return found
        if not self.hosts:
            raise InvalidPlan(f"to={target!r}: where the instances are is known after the first epoch. Ask again then.")
        what = f"site {target!r} has no instance now" if named else f"there is no host or site {target!r}"
        raise InvalidPlan(f"to={target!r}: {what}. There are {self._listed()}. `job.sites` tells what is where.")

    def _listed(self) -> str:
        def some(instances: Sequence[int]) -> str:
            numbers = ", ".join(map(str, instances))
            return f"instance{'s' if len(instances) > 1 else ''} {numbers}" if instances else "no instance"

        at = [self.site(one) for one in range(len(self.hosts))]
        on = {host: [one for one, at in enumerate(self.hosts) if at == host] for host in sorted(set(self.hosts))}
        said = ["the hosts " + ", ".join(f"{host} ({some(on[host])})" for host in on)]
        if self.sites:
            inside = {one.name: [n for n, site in enumerate(at) if site == one] for one in self.sites}
            said.append("the sites " + ", ".join(f"{name} ({some(inside[name])})" for name in inside))
        return " and ".join(said)


@dataclass(frozen=True)
class Placed:
    """An instance, where it is, and what it bears.

    Attributes
    ----------
    instance
        Its number.
    host
        The host it is on, as Spark knows it.
    site
        The site that has this host; empty if none does.
    groups
        How many key groups it owns.
    rows, busy_ms
        How many rows it gets in an epoch of late, and how long it works on them.
    bytes
        About how much state its key groups have.
    """

    instance: int
    host: str
    site: str
    groups: int
    rows: float
    busy_ms: float
    bytes: int


def handed_out(
    costs: Mapping[int, float], owner: Mapping[int, int], instances: Sequence[int], bears: Sequence[float]
) -> dict[int, int]:
    """Spread things over instances, the most costly first, each to who bears least; what is on one of them stays.

    Parameters
    ----------
    costs
        What each thing costs.
    owner
        Who has it now.
    instances
        Who may get it.
    bears
        What every instance of the job bears now.

    Examples
    --------
    >>> handed_out({7: 2.0, 8: 1.0, 9: 9.0}, {7: 0, 8: 0, 9: 1}, [1, 2], [3.0, 9.0, 8.0])
    {9: 1, 7: 2, 8: 1}
    """
    full, found = {one: bears[one] for one in instances}, {}
    for one in sorted(costs, key=lambda one: (-costs[one], one)):
        to = owner[one]
        if to not in full:
            to = min(full, key=lambda instance: (full[instance], instance))
            full[to] += costs[one]
        found[one] = to
    return found


def targets(table: RoutingTable, to: Target, places: Places) -> list[int]:
    """Find the instances that somebody means by an instance's number, a host or a site."""
    if isinstance(to, bool) or not isinstance(to, (int, str)):
        raise InvalidPlan(f"to={to!r}: give the number of an instance, or the name of a host or a site.")
    if isinstance(to, int):
        return [to]
    if to.isdigit():
        return [int(to)]
    # While a change is being committed, what is known may be of the next table already.
    return Places(places.hosts[: table.instances], places.sites).at(to)
