"""What a migration needs of whatever runs epochs: a routing table laid out over hosts, and another one made of it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ferryman._migrate.options import ChangeOptions
from ferryman._model.card import JobCard
from ferryman._model.routing import RoutingTable

if TYPE_CHECKING:
    from ferryman._serve.auth import Access

L = TypeVar("L", bound="Layout")


@dataclass(frozen=True)
class InstanceHost:
    """The host that an instance runs on.

    Attributes
    ----------
    host
        Its name.
    location
        Its state host; None while that is coming up.
    """

    host: str
    location: str | None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What it takes to start a state host, and to be let in; what it sends can be made slow, to try that out.

    Attributes
    ----------
    checkpoint, run_id, home
        The run of the job, and where its hosts keep their homes.
    token
        What callers have to know.
    card
        The job as this run declares it: the checkpoint's own card may be an earlier one until the first epoch.
    tls
        The directory of certificates on every host; None for lines that are not encrypted.
    bytes_per_s, delay_s
        How fast its line is, and how long everything is on its way; None if it does not matter.
    """

    checkpoint: str
    run_id: str
    home: str | None
    token: str
    card: JobCard
    tls: str | None = None
    bytes_per_s: float | None = None
    delay_s: float = 0.0

    @classmethod
    def of(cls, checkpoint: str, run_id: str, card: JobCard, options: ChangeOptions) -> Launch:
        """Begin with a new token."""
        return cls(
            checkpoint=checkpoint,
            run_id=run_id,
            home=options.home,
            token=secrets.token_hex(16),
            card=card,
            tls=options.tls,
        )

    @property
    def access(self) -> Access:
        """Give how to get into the state hosts."""
        # Only here: a job that nobody changes needs no Arrow Flight.
        from ferryman._serve.auth import Access

        return Access(self.token, self.tls)


class Layout(Protocol):
    """A routing table as it is laid out: its instances tied to hosts, ready for epochs."""

    @property
    def routing(self) -> RoutingTable:
        """Give the table."""

    @property
    def pinned(self) -> bool:
        """Tell whether there are several hosts that instances are tied to."""

    @property
    def spread(self) -> object | None:
        """Give what ties the instances to hosts: another object if they have been spread anew; None on one host."""

    @property
    def stores(self) -> Mapping[str, str]:
        """Give the store of every table that is kept by key group; the same in all layouts of a job."""

    def rerouted(self: L, routing: RoutingTable, open: frozenset[str] | None = None) -> L:
        """Give a layout of another table; as many instances stay where they are, unless other hosts are to be open."""

    def settle(self, ran: Sequence[str] = ()) -> None:
        """Give the instances berths on the hosts there are now, knowing where each `ran` in the newest epoch."""

    def release(self: L, but_for: L | None = None) -> None:
        """Let go of what ties the instances, unless another layout has the same."""

    def hosts(self) -> Mapping[int, str]:
        """Tell which host each instance is tied to, by the name that the cluster has for it."""

    def cluster_hosts(self) -> set[str]:
        """Name the hosts there are, as the cluster does."""

    def hosts_on(self, open: frozenset[str]) -> Mapping[int, str]:
        """Tell which host each instance would be tied to if these hosts alone were open to instances."""

    def keep_to(self, open: frozenset[str]) -> bool:
        """Have only these hosts open from now on, if no instance has to move for it; tell whether it is so."""

    @property
    def leaving(self) -> frozenset[str]:
        """Name the hosts that are about to go: they run no task any more, and still have what they had."""

    def find_hosts(self, launch: Launch) -> dict[int, InstanceHost]:
        """Look where the instances are, and start the state hosts there; nothing where there is only one host."""

    def end_hosts(self, launch: Launch) -> None:
        """End the state hosts of this run wherever there is one."""


class ReadyLayouts(Generic[L]):
    """The layout that the next epoch has, unless it switches, and those that are ready for epochs to come.

    Parameters
    ----------
    current
        The layout to start with.
    """

    def __init__(self, current: L) -> None:
        self.current = current
        # By their number of instances: those of as many are on the same hosts.
        self._ready: dict[int, L] = {}

    def add(self, layout: L) -> None:
        """Keep one that is ready."""
        self._ready[layout.routing.instances] = layout

    def of(self, table: RoutingTable) -> L:
        """Give the layout of a table."""
        if table == self.current.routing:
            return self.current
        ready = self._ready.get(table.instances)
        if ready is None or ready.routing != table:
            ready = (ready or self.current).rerouted(table)
            self.add(ready)
        return ready

    def switch(self, layout: L) -> None:
        """Go on with another one."""
        self.current.release(but_for=layout)
        self.current = layout

    def release(self) -> None:
        """Let go of all that no epoch will have."""
        for layout in self._ready.values():
            layout.release(but_for=self.current)
        self._ready = {}
