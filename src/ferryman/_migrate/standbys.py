"""Standing replicas: hosts that keep the main copies of others too, about as new as these are.

Hosts stand by for each other in a ring: the next one, or the next few, have what a host has. One thread in the driver
has them brought to every epoch that is committed, with the lowest priority and never while a plan is under way. A plan
that moves key groups to a host that stands by for them finds them there; so does a task whose host was lost.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping

from ferryman._migrate.lanes import InstanceHosts, Lane
from ferryman._migrate.layout import Layout
from ferryman._migrate.state_hosts import PATIENCE_S, StateHosts
from ferryman._model.errors import PeerFailed
from ferryman._model.routing import RoutingTable

log = logging.getLogger("ferryman")

# How fast a main comes that is not there yet: nobody waits for it.
_BYTES_PER_S = 64e6
# One lost host is no news; that there are none for so many tries in a row is.
_TOLD_AT = 3
# So many epochs pass at the most before it is tried again.
_MOST_EPOCHS_BETWEEN = 20


class Standbys:
    """Keep copies of every host's main copies on the next hosts.

    Parameters
    ----------
    state_hosts
        The state hosts.
    await_epoch
        Waits for an epoch after the one given, with no plan under way; gives the layout and the epoch, or None when
        the job has ended.
    disturbed
        Tells whether a plan has begun, or the job has ended.
    since
        The newest epoch when the run began: before one of its own, its instances are nowhere.

    Attributes
    ----------
    count
        How many hosts have what a host has, besides itself.
    epoch
        The newest epoch that all of them have been brought to; None before that.
    """

    def __init__(
        self,
        state_hosts: StateHosts,
        await_epoch: Callable[[int], tuple[Layout, int] | None],
        disturbed: Callable[[], bool],
        since: int = 0,
    ) -> None:
        self.count = 0
        self.epoch: int | None = None
        self._state_hosts = state_hosts
        self._await_epoch = await_epoch
        self._disturbed = disturbed
        self._since = since
        # What was brought to which state host, so that it can be forgotten there.
        self._brought: dict[str, set[int]] = {}
        self._thread: threading.Thread | None = None
        # Held for as long as hosts are asked for something.
        self._round = threading.Lock()

    def keep(self, count: int) -> None:
        """Have so many from the next epoch on; without any, what there is is forgotten."""
        self.count, self.epoch = count, None
        if count and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ferryman-replicas", daemon=True)
            self._thread.start()

    def needed(self, layout: Layout) -> dict[str, set[int]]:
        """Give the groups that each state host owns or stands by for now; nothing where that cannot be told."""
        with contextlib.suppress(Exception):
            (at,) = self._state_hosts.locate(layout)
            needed = owned_by(layout.routing, at)
            for location, groups in _by_target(standby_lanes(layout.routing, at, self.count)).items():
                needed.setdefault(location, set()).update(groups)
            return needed
        return {}

    def pause(self) -> None:
        """Wait until nobody is asked for anything any more; for a plan that has begun, which keeps the next round away.

        What it brings to a host this would have that forget.
        """
        with self._round:
            pass

    def join(self) -> None:
        """Wait for the end of the thread, after the job's."""
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def _work(self) -> None:
        seen, failures = self._since, 0
        while (found := self._await_epoch(seen)) is not None:
            layout, seen = found
            try:
                if self.count or self._brought:
                    with self._round:
                        self._bring(layout, seen)
                failures = 0
            except Exception as error:
                # A host was lost, or executors come and go; the next epoch's layout knows of it.
                self.epoch, failures = None, failures + 1
                if failures == _TOLD_AT:
                    log.warning(
                        "replicas could not be kept %d times in a row, now at epoch %d: %s", failures, seen, error
                    )
                # Looking for hosts takes slots that epochs want.
                seen += min(failures - 1, _MOST_EPOCHS_BETWEEN)

    def _bring(self, layout: Layout, epoch: int) -> None:
        count = self.count
        if self._disturbed():
            return
        (at,) = self._state_hosts.locate(layout)
        lanes = standby_lanes(layout.routing, at, count)
        if self._disturbed():
            return
        self._forget(layout.routing, at, _by_target(lanes))
        for lane in lanes:
            if self._disturbed():
                return
            self._brought.setdefault(lane.target, set()).update(lane.groups)
            for _ in self._state_hosts.bring(lane.target, lane.groups, epoch, lane.source, _BYTES_PER_S):
                if self._disturbed():
                    return
        if count == self.count and (lanes or not count):
            self.epoch = epoch

    def _forget(self, table: RoutingTable, at: InstanceHosts, wanted: Mapping[str, frozenset[int]]) -> None:
        """Have hosts forget what they were brought and neither own nor stand by for any more."""
        owned = owned_by(table, at)
        for location, groups in list(self._brought.items()):
            still = groups & wanted.get(location, frozenset())
            useless = groups - still - owned.get(location, set())
            if useless:
                # One that is gone has forgotten already.
                with contextlib.suppress(PeerFailed):
                    self._state_hosts.drop(location, tuple(sorted(useless)))
            self._brought[location] = still
        self._brought = {location: groups for location, groups in self._brought.items() if groups}


def owned_by(table: RoutingTable, at: InstanceHosts) -> dict[str, set[int]]:
    """Give the groups that are worked on at each state host, by a table.

    Examples
    --------
    >>> from ferryman._migrate.layout import InstanceHost
    >>> owned_by(RoutingTable.even(1, 4, 2), {0: InstanceHost("a", "grpc://a"), 1: InstanceHost("b", "grpc://b")})
    {'grpc://a': {0, 1}, 'grpc://b': {2, 3}}
    """
    owned: dict[str, set[int]] = {}
    for group, hosts in enumerate(_hosts_of(table, at)):
        for location in hosts.values():
            owned.setdefault(location, set()).add(group)
    return owned


def standby_lanes(table: RoutingTable, at: InstanceHosts, count: int) -> tuple[Lane, ...]:
    """Say which groups go from which host to which, so that each host's are on as many of the next hosts too.

    Examples
    --------
    >>> from ferryman._migrate.layout import InstanceHost
    >>> at = {0: InstanceHost("a", "grpc://a"), 1: InstanceHost("b", "grpc://b"), 2: InstanceHost("c", "grpc://c")}
    >>> for lane in standby_lanes(RoutingTable.even(1, 6, 3), at, 1):
    ...     print(lane.source, lane.target, lane.groups)
    grpc://a grpc://b (0, 1)
    grpc://b grpc://c (2, 3)
    grpc://c grpc://a (4, 5)
    """
    location = {found.host: found.location or "" for found in at.values()}
    ring = sorted(location)
    lanes: dict[tuple[str, str], list[int]] = {}
    for group, hosts in enumerate(_hosts_of(table, at)):
        source = at[table.owner[group]].host
        place = ring.index(source)
        for step in range(1, min(count, len(ring) - 1) + 1):
            target = ring[(place + step) % len(ring)]
            # Who owns a pinned key of the group has all of it.
            if target not in hosts:
                lanes.setdefault((location[source], location[target]), []).append(group)
    return tuple(Lane(source, target, tuple(groups)) for (source, target), groups in lanes.items())


def _hosts_of(table: RoutingTable, at: InstanceHosts) -> list[dict[str, str]]:
    """Give the hosts that own keys of each group, with their state hosts; nothing where there is only one host."""
    workers = table.workers()
    if not at:
        return []
    return [
        {at[worker].host: at[worker].location or "" for worker in workers.get(group, {owner})}
        for group, owner in enumerate(table.owner)
    ]


def _by_target(lanes: tuple[Lane, ...]) -> dict[str, frozenset[int]]:
    return {
        target: frozenset(group for lane in lanes if lane.target == target for group in lane.groups)
        for target in {lane.target for lane in lanes}
    }
