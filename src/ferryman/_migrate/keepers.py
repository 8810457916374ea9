"""Who has main copies of what a task may not find at home: the host that had an instance last, and those that stand by.

Pure: what a task has to know to ask them. It does so before it rebuilds anything from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ferryman._migrate.berths import ring_after
from ferryman._migrate.layout import Launch


@dataclass(frozen=True, kw_only=True)
class Keepers:
    """Whom to ask for main copies.

    Attributes
    ----------
    token, tls
        What it takes to be let in.
    at
        For an instance, the hosts that keep what is its own, with their state hosts, in the order in which to ask.
    """

    token: str
    tls: str | None = None
    at: Mapping[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        launch: Launch,
        were: Sequence[str],
        are: Mapping[int, str],
        standbys: int,
        locations: Mapping[str, str],
        leaving: Collection[str] = (),
    ) -> Keepers | None:
        """Find them, if anybody might have to ask: an instance is to be elsewhere, or may be while its epoch is run.

        Parameters
        ----------
        launch
            How state hosts were started.
        were, are
            Where the instances were in the newest epoch, and where they are to be.
        standbys
            How many of the next hosts have what a host has.
        locations
            The state hosts, by the names of their hosts.
        leaving
            The hosts that are about to go: no instance is there any more, and they still have what they had.
        """
        there = {*are.values(), *leaving}
        at = {}
        for instance, host in enumerate(were):
            if standbys or are.get(instance, host) != host:
                kept = [name for name in (host, *ring_after(host, were, standbys)) if name in there]
                at[instance] = tuple((name, locations[name]) for name in kept if name in locations)
        return cls(token=launch.token, tls=launch.tls, at=at) if any(at.values()) else None
