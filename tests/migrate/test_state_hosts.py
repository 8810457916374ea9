"""Where state hosts are is looked for again when the instances have been spread anew, whoever looks meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

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
