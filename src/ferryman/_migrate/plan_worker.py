"""Carry out one plan: prepare the layout to come, have state copied there, and tidy up in the end."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Generic

import numpy as np

from ferryman._migrate.copier import Copier, Copies
from ferryman._migrate.journal import Journal
from ferryman._migrate.lanes import Choice, fitted, lanes_of, useless
from ferryman._migrate.layout import L, ReadyLayouts
from ferryman._migrate.load_report import LoadReport
from ferryman._migrate.plan_events import Failed, GivenUp, Prepared
from ferryman._migrate.standbys import Standbys
from ferryman._migrate.state_hosts import StateHosts
from ferryman._model.errors import PeerFailed
from ferryman._os.faults import reach

log = logging.getLogger("ferryman")


class PlanWorker(Generic[L]):
    """Do what a plan takes besides its epochs, in a thread of its own.

    Parameters
    ----------
    layouts
        The layout of the newest epoch; the one to come is added.
    state_hosts, standbys
        The state hosts, and who of them stands by for whom.
    copier
        Has state copied.
    report
        Tells how large key groups are, and which sites there are.
    """

    def __init__(
        self, layouts: ReadyLayouts[L], state_hosts: StateHosts, standbys: Standbys, copier: Copier, report: LoadReport
    ) -> None:
        self._layouts = layouts
        self._state_hosts = state_hosts
        self._standbys = standbys
        self._copier = copier
        self._report = report

    def work(self, journal: Journal, choose: Choice, earlier: threading.Thread | None) -> None:
        """Carry out a plan, until nothing is left to do."""
        if earlier is not None:
            # What it forgets on some host may be what is to come there now.
            earlier.join()
        self._standbys.pause()
        copies = Copies(journal)
        try:
            copies = self.prepare(journal, choose)
            self._copier.copy(copies)
        except Exception as error:
            log.warning("a plan was given up: %s", error)
            with journal.changed:
                # An epoch under way may still hand over, and what it then waits for nobody copies any more.
                give_up(journal, str(error))
                while not journal.over:
                    journal.changed.wait()
                    give_up(journal, str(error))
        journal.shown.wait()
        reach("plan-release")
        self.tidy(copies)

    def prepare(self, journal: Journal, choose: Choice) -> Copies:
        """Make the layout to come: now and not when it is needed, as on a cluster it takes Spark jobs."""
        plan = journal.machine.plan
        if not plan.lost:
            # Between two epochs, where it is in nobody's way. For what was lost, rows wait already.
            self._copier.await_epoch(journal)
        ready = self._layouts.current.rerouted(plan.after, plan.open)
        try:
            # Where it is then, it stays: state is copied there.
            ready.settle()
            before, after = self._state_hosts.locate(self._layouts.current, ready)
            # Weighed before any row waits for it. A group that is not known to have any state still is one.
            sizes = np.maximum(self._report.bytes(), 1.0).tolist() if before else ()
            reach("plan-prepare")
            fits = fitted(plan, choose, before, after, self._report.site_map.sites)
            if fits is not plan:
                ready = ready.rerouted(fits.after)
        except BaseException:
            ready.release(but_for=self._layouts.current)
            raise
        with journal.changed:
            if journal.over:
                ready.release(but_for=self._layouts.current)
                return Copies(journal)
            self._layouts.add(ready)
            journal.tell(Prepared(fits))
        return Copies(journal, lanes_of(fits, before, after), sizes)

    def tidy(self, copies: Copies) -> None:
        """Have state hosts forget what is of no use any more."""
        forgotten = useless(copies.journal.machine, copies.lanes)
        if not forgotten:
            return
        failed = False
        needed = self._standbys.needed(self._layouts.current)
        for location, listed in forgotten:
            groups = tuple(group for group in listed if group not in needed.get(location, ()))
            try:
                if groups:
                    self._state_hosts.drop(location, groups)
            except PeerFailed:
                # One that is gone has forgotten already.
                failed = True
        if failed and not self._state_hosts.closed:
            # One that stalls may hold locks that tasks wait for; who is sent to look for it ends it.
            with contextlib.suppress(Exception):
                self._state_hosts.locate(self._layouts.current)


def give_up(journal: Journal, reason: str) -> None:
    """End a plan; what has switched already and is not there is rebuilt from the checkpoint."""
    if missing := journal.machine.to_copy():
        journal.tell(Failed(frozenset(move.group for move in missing), reason))
    if not journal.over:
        journal.tell(GivenUp(reason))
