"""Decide which host each instance is tied to, its berth: as executors come and go, only what was lost moves. Pure.

An instance stays where its main copies are. If its host is lost it goes to a host that stands by for it, else to the
one with the least to do. A host that comes takes instances from the fullest, first those that it had before. Where
only some hosts are open, no instance comes to another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Berths:
    """The berth of each instance.

    Attributes
    ----------
    hosts
        The host of each instance; empty for one that may run anywhere, as there was no host.
    known
        The hosts there were when instances were last given to new ones.
    former
        Where an instance was whose host was lost since.

    Examples
    --------
    >>> first = Berths().settled(4, {"a": 1, "b": 1, "c": 1})
    >>> first.hosts
    ('a', 'b', 'c', 'a')
    >>> first.settled(4, {"a": 1, "c": 1}).hosts
    ('a', 'c', 'c', 'a')
    >>> first.settled(4, {"a": 1, "c": 1}, standbys=1).settled(4, {"a": 1, "b": 1, "c": 1}, standbys=1).hosts
    ('a', 'b', 'c', 'a')
    """

    hosts: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    former: Mapping[int, str] = field(default_factory=dict)

    def settled(
        self,
        instances: int,
        there: Mapping[str, int],
        standbys: int = 0,
        cold: Collection[str] = (),
        open: Collection[str] | None = None,
    ) -> Berths:
        """Give every instance a berth on the hosts there are now.

        Parameters
        ----------
        instances
            How many instances there are.
        there
            The hosts, with the number of executors on each.
        standbys
            How many of the next hosts have what a host has.
        cold
            The hosts that have just come and are given nothing yet.
        open
            The hosts that instances may come to; all of them if left out, or if none of them is there.
        """
        before = self if len(self.hosts) == instances else Berths(("",) * instances)
        warm = {host: room for host, room in there.items() if host not in cold}
        # An executor may have come in place of a lost one on its host. Then who stands by is sooner there; where nobody
        # does, what the lost one had may still be on its disk.
        return before.without_lost(warm if standbys else there, standbys, open)._with_new(_within(warm, open))

    def on(self, open: Collection[str], there: Mapping[str, int], standbys: int = 0) -> Berths:
        """Have the instances on the open hosts alone, each with its share.

        Examples
        --------
        >>> there = {"a": 1, "b": 1, "c": 1}
        >>> Berths(("a", "b", "c")).on({"a", "b"}, there).hosts
        ('a', 'b', 'a')
        >>> Berths(("a", "a", "a")).on({"a", "b"}, there).hosts
        ('a', 'a', 'b')
        """
        may = _within(there, open)
        return self.without_lost(may, standbys)._with_new(may)

    def without_lost(self, there: Mapping[str, int], standbys: int = 0, open: Collection[str] | None = None) -> Berths:
        """Move the instances whose hosts are not there any more, and no other; to hosts that are open."""
        if not there:
            return self
        may = _within(there, open)
        hosts, former = list(self.hosts), dict(self.former)
        lost = [instance for instance, host in enumerate(hosts) if host not in there]
        for instance in lost:
            heir = next((host for host in ring_after(hosts[instance], self.hosts, standbys) if host in may), None)
            if hosts[instance]:
                former.setdefault(instance, hosts[instance])
            hosts[instance] = heir or _emptiest(hosts, may)
        return replace(self, hosts=tuple(hosts), former=former) if lost else self

    def where_they_ran(self, moved: Collection[int], ran: Sequence[str], there: Collection[str]) -> Berths:
        """Leave instances that moved inside an epoch where Spark has run them in it: they were restored there.

        Examples
        --------
        >>> Berths(("a", "b", "c")).where_they_ran({1}, ("a", "c", "c"), {"a", "b", "c"}).hosts
        ('a', 'c', 'c')
        """
        hosts = [
            ran[instance] if instance in moved and instance < len(ran) and ran[instance] in there else host
            for instance, host in enumerate(self.hosts)
        ]
        return replace(self, hosts=tuple(hosts))

    def _with_new(self, there: Mapping[str, int]) -> Berths:
        """Give hosts that have come their share, from the fullest."""
        hosts, former = list(self.hosts), dict(self.former)
        new = {host: room for host, room in there.items() if host not in self.known}
        while new:
            to = _emptiest(hosts, new)
            full = max(there, key=lambda host: (hosts.count(host) / there[host], host))
            if (hosts.count(to) + 1) / there[to] >= hosts.count(full) / there[full]:
                break
            mine = [instance for instance, host in enumerate(hosts) if host == full]
            hosts[next((instance for instance in mine if former.get(instance) == to), mine[-1])] = to
        kept = {instance: host for instance, host in former.items() if hosts[instance] != host and host not in there}
        return Berths(tuple(hosts), frozenset(there), kept)


def ring_after(host: str, hosts: Collection[str], count: int) -> Sequence[str]:
    """Give the next hosts of the ring in which hosts stand by for each other, in the order of their names.

    Examples
    --------
    >>> ring_after("c", {"a", "b", "c"}, 1)
    ['a']
    """
    ring = sorted({*hosts, host} - {""})
    if not host:
        return []
    place = ring.index(host)
    return [ring[(place + step) % len(ring)] for step in range(1, min(count, len(ring) - 1) + 1)]


def _within(there: Mapping[str, int], open: Collection[str] | None) -> Mapping[str, int]:
    """Give the hosts that are open; all where none of these is there, as instances have to be somewhere."""
    return there if open is None else {host: room for host, room in there.items() if host in open} or there


def _emptiest(hosts: Sequence[str], there: Mapping[str, int]) -> str:
    return min(there, key=lambda host: (hosts.count(host) / there[host], host))
