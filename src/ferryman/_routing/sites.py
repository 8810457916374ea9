"""Where instances are: hosts, and the sites that a user has declared. Pure; calls only `_model`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from ferryman._model.errors import InvalidPlan
from ferryman._model.routing import RoutingTable

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
    strange = [site for site in given if not isinstance(site, Site)]
    faults = [f"sites: {site!r} is no site; write Site('cloud', ['10.0.*'])" for site in strange]
    known = [site for site in given if isinstance(site, Site)]
    for site in known:
        if not isinstance(site.name, str) or not site.name.strip() or site.name.isdigit():
            faults.append(f"sites: name={site.name!r}: give a text that is no number, as numbers are instances")
        listed = isinstance(site.hosts, (str, Sequence)) and not isinstance(site.hosts, bytes)
        if (
            not listed
            or not site.patterns
            or not all(isinstance(pattern, str) and pattern.strip() for pattern in site.patterns)
        ):
            faults.append(
                f"site {site.name!r}: hosts={site.hosts!r}: give one host or pattern such as '10.1.*' or more"
            )
        number = isinstance(site.distance, (int, float)) and not isinstance(site.distance, bool)
        if not number or not 0 <= site.distance < math.inf:
            faults.append(f"site {site.name!r}: distance={site.distance!r}: give a number, 0 or more")
    names = Counter(site.name for site in known if isinstance(site.name, str))
    return faults + [f"sites: {name!r} is declared {n} times; names must differ" for name, n in names.items() if n > 1]


@dataclass(frozen=True)
class SiteMap:
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
        return next((site for site in self.sites if host is not None and site.has(host)), NOWHERE)

    def apart(self, instances: int) -> Floats:
        """Tell how far instances are apart: `INSIDE` within a site, else the distances of both sites.

        Examples
        --------
        >>> SiteMap(("a", "b", "b"), (Site("near", "a", 1), Site("far", "b", 5))).apart(3).tolist()
        [[-1.0, 6.0, 6.0], [6.0, -1.0, -1.0], [6.0, -1.0, -1.0]]
        """
        if not self.sites:
            return np.full((instances, instances), INSIDE)
        at = [self.site(instance) for instance in range(instances)]
        number = np.array([self.sites.index(site) if site in self.sites else -1 for site in at])
        distance = np.array([site.distance for site in at], np.float64)
        return np.where(number[:, None] == number[None, :], INSIDE, distance[:, None] + distance[None, :])

    def with_instances(self, instances: int) -> SiteMap:
        """Guess where another number of instances would be: spread over the same hosts, each where it is if it can.

        Instances that would go are still listed, after the others.

        Examples
        --------
        >>> SiteMap(("a", "b")).with_instances(4).hosts
        ('a', 'b', 'a', 'b')
        >>> SiteMap(("a", "a", "b", "b")).with_instances(2).hosts
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
        return SiteMap((*(host or next(free) for host in found), *self.hosts[instances:]), self.sites, instances)

    def at(self, target: str) -> list[int]:
        """Give the instances of a site or a host; refused with what there is if there are none."""
        named = [site for site in self.sites if site.name == target]
        if named:
            found = [instance for instance in range(len(self.hosts)) if self.site(instance) == named[0]]
        else:
            found = [instance for instance, host in enumerate(self.hosts) if host == target]
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

        at = [self.site(instance) for instance in range(len(self.hosts))]
        on = {
            host: [instance for instance, at in enumerate(self.hosts) if at == host] for host in sorted(set(self.hosts))
        }
        said = ["the hosts " + ", ".join(f"{host} ({some(on[host])})" for host in on)]
        if self.sites:
            inside = {declared.name: [n for n, site in enumerate(at) if site == declared] for declared in self.sites}
            said.append("the sites " + ", ".join(f"{name} ({some(inside[name])})" for name in inside))
        return " and ".join(said)


def targets(table: RoutingTable, to: Target, at: SiteMap) -> list[int]:
    """Find the instances that somebody means by an instance's number, a host or a site."""
    if isinstance(to, bool) or not isinstance(to, (int, str)):
        raise InvalidPlan(f"to={to!r}: give the number of an instance, or the name of a host or a site.")
    if isinstance(to, int):
        return [to]
    if to.isdigit():
        return [int(to)]
    # While a change is being committed, what is known may be of the next table already.
    return SiteMap(at.hosts[: table.instances], at.sites).at(to)
