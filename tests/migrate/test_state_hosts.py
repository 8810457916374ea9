"""Where state hosts are is looked for again when the instances have been spread anew, whoever looks meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from one_host import OneHost

from ferryman._migrate.layout import InstanceHost, Launch
from ferryman._migrate.options import ChangeOptions
from ferryman._migrate.state_hosts import StateHosts
from ferryman._model.card import JobCard
from ferryman._model.routing import RoutingTable


@dataclass
class Spread(OneHost):
    """Instances that an epoch spreads anew while somebody looks for them for the first time."""

    looks: int = 0

    def find_hosts(self, launch: Launch) -> dict[int, InstanceHost]:
        self.looks += 1
        if self.looks == 1:
            self.spread = "anew"
        return {}


def test_what_was_found_before_instances_were_spread_anew_is_not_taken_for_where_they_are() -> None:
    hosts = StateHosts(Launch.of("checkpoint", "run", JobCard("1", "job", 8, {}), ChangeOptions()), {})
    layout = Spread(RoutingTable.even(1, 8, 2), spread="before")

    hosts.locate(layout)
    hosts.locate(layout)
    assert layout.looks == 2
    hosts.locate(layout)
    assert layout.looks == 2, "they are where they were"


@dataclass
class Berthed(OneHost):
    """Instances whose berths are known."""

    berths: Mapping[int, str] = field(default_factory=dict)
    looks: int = 0

    def hosts(self) -> dict[int, str]:
        return dict(self.berths)

    def cluster_hosts(self) -> set[str]:
        return {"a", "b"}

    def find_hosts(self, launch: Launch) -> dict[int, InstanceHost]:
        self.looks += 1
        return {instance: InstanceHost(host, f"at {host}") for instance, host in self.berths.items()}


class Answering(StateHosts):
    """State hosts that answer unless they are gone."""

    gone: frozenset[str] = frozenset()

    def _answer(self, located: Mapping[int, InstanceHost]) -> bool:
        return not self.gone & {at.host for at in located.values()}


def test_nobody_is_sent_to_look_where_instances_come_to_hosts_whose_state_hosts_are_known() -> None:
    hosts = Answering(Launch.of("checkpoint", "run", JobCard("1", "job", 8, {}), ChangeOptions()), {})
    layout = Berthed(RoutingTable.even(1, 8, 2), spread="first", berths={0: "a", 1: "b"})
    hosts.locate(layout)
    layout.spread, layout.berths = "anew", {0: "a", 1: "a"}

    (found,) = hosts.locate(layout)

    assert layout.looks == 1
    assert found == {0: InstanceHost("a", "at a"), 1: InstanceHost("a", "at a")}
    hosts.gone = frozenset("a")
    hosts.locate(layout)
    assert layout.looks == 2, "one that does not answer is looked for"
