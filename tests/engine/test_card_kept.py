"""The card of a new declaration is written with its first epoch, and not before: a start that fails changes nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from driven_run import Counts, Run
from one_host import OneHost

from ferryman import Value
from ferryman._migrate.layout import InstanceHost, Launch
from ferryman._migrate.machine import Phase
from ferryman._migrate.planning import rescaled
from ferryman._model.routing import RoutingTable


class CountsMore(Counts):
    more = Value(int, 0)


@dataclass
class Tied(OneHost):
    """Several hosts, as far as it is seen whether any is looked for."""

    pinned: bool = True
    looked: threading.Event = field(default_factory=threading.Event)

    def rerouted(self, routing: RoutingTable, open: frozenset[str] | None = None) -> Tied:
        return Tied(routing, looked=self.looked)

    def find_hosts(self, launch: Launch) -> dict[int, InstanceHost]:
        self.looked.set()
        return {}


def declared_anew(root: Path, replicas: int = 0) -> Run:
    """Start a job that has had an epoch with another declaration."""
    with Run(root) as first:
        first.batch("a")
    return Run(
        root,
        build=lambda stream: stream.key_by("key").process(CountsMore, name="Counts"),
        layout=Tied,
        replicas=replicas,
    )


def test_replicas_come_after_the_first_epoch_and_do_not_need_it(tmp_path: Path) -> None:
    with declared_anew(tmp_path, replicas=1) as run:
        card = run.checkpoint.card()

        assert not run.coordinator.layout.looked.wait(0.3)
        assert run.checkpoint.card() == card != run._declared

        run.batch("a")
        assert run.coordinator.layout.looked.wait(10)
        assert run.checkpoint.card() == run._declared


@pytest.mark.parametrize("how", ["live", "stop_restart"])
def test_a_plan_does_not_need_it(tmp_path: Path, how: str) -> None:
    with declared_anew(tmp_path) as run:
        card = run.checkpoint.card()
        change = run.coordinator.request("rescale", lambda table, at: rescaled(table, 4), how)
        (journal,) = run.coordinator.journals()
        journal.wait_for(lambda: journal.machine.phase is Phase.SWITCH)

        assert run.coordinator.layout.looked.is_set()
        assert run.checkpoint.card() == card != run._declared

        run.batch("a")
        assert change.wait(10)
        assert run.checkpoint.card() == run._declared
