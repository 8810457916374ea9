"""A layout where there is one host, for coordinators without Spark: nothing has to be tied, and nothing travels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ferryman._migrate.layout import InstanceHost, Launch
from ferryman._model.routing import RoutingTable


@dataclass
class OneHost:
    """A routing table, all on one host."""

    routing: RoutingTable
    pinned: bool = False
    spread: object | None = None
    leaving: frozenset[str] = frozenset()
    stores: Mapping[str, str] = field(default_factory=dict)

    def rerouted(self, routing: RoutingTable, open: frozenset[str] | None = None) -> OneHost:
        return OneHost(routing)

    def settle(self, ran: Sequence[str] = ()) -> None:
        pass

    def release(self, but_for: OneHost | None = None) -> None:
        pass

    def hosts(self) -> dict[int, str]:
        return {}

    def cluster_hosts(self) -> set[str]:
        return set()

    def hosts_on(self, open: frozenset[str]) -> dict[int, str]:
        return {}

    def keep_to(self, open: frozenset[str]) -> bool:
        return True

    def find_hosts(self, launch: Launch) -> dict[int, InstanceHost]:
        return {}

    def end_hosts(self, launch: Launch) -> None:
        pass
