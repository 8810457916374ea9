"""The state hosts of a job as its driver sees them: where they are, and what they are asked for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from ferryman._migrate.layout import InstanceHost, Launch, Layout
from ferryman._model.errors import PeerFailed

# Arrow Flight is imported where it is used: a job that nobody changes needs none.

# How long to wait for a state host to come up.
PATIENCE_S = 60.0


class StateHosts:
    """Find, start, ask and end the state hosts of a job.

    Parameters
    ----------
    launch
        How they are started.
    stores
        The tables they serve, with the store of each.

    Attributes
    ----------
    closed
        Why none are started any more; empty while they are.
    """

    def __init__(self, launch: Launch, stores: Mapping[str, str]) -> None:
        self.launch = launch
        self._stores = stores
        # Guards what is known of them; epochs, plans and replicas look for them at once.
        self._lock = threading.Lock()
        self._seen: set[str] = set()
        # Hosts where one was started that has not yet been seen.
        self._coming: set[str] = set()
        # Where each was heard of last.
        self._locations: dict[str, str] = {}
        self._known: tuple[object | None, dict[int, InstanceHost]] = (None, {})
        self.closed = ""
        self._starter: threading.Thread | None = None

    @property
    def locations(self) -> Mapping[str, str]:
        """Give where each state host was heard of last, by the name of its host."""
        with self._lock:
            return dict(self._locations)

    def start(self, layout: Callable[[], Layout]) -> None:
        """Start them ahead of the first change, in the background."""

        def work() -> None:
            # Whatever is wrong is said when a change needs them.
            with contextlib.suppress(Exception):
                self.locate(layout())

        if not self.closed:
            self._starter = threading.Thread(target=work, name="ferryman-hosts", daemon=True)
            self._starter.start()

    def locate(self, *layouts: Layout) -> list[dict[int, InstanceHost]]:
        """Find where the instances of layouts are; wait until there is a state host on each of these hosts."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if self.closed:
                raise PeerFailed(f"{self.closed}; no state hosts are started any more")
            found = [self._located(layout) for layout in layouts]
            instances = [at for located in found for at in located.values()]
            with self._lock:
                self._seen.update(at.location for at in instances if at.location)
            if all(at.location for at in instances):
                return found
            if time.monotonic() > deadline:
                where = sorted({at.host for at in instances if not at.location})
                raise PeerFailed(
                    f"the state host of {', '.join(where)} does not come up; see state-host.log in the home there"
                )
            # It takes a second or two, and asking takes slots that epochs want.
            time.sleep(0.5)

    def bring(
        self,
        target: str,
        groups: tuple[int, ...],
        to: int,
        peer: str | None = None,
        bytes_per_s: float | None = None,
        lane: str = "",
    ) -> Iterator[dict[str, int]]:
        """Have one bring key groups to an epoch; tell of each as it arrives."""
        from ferryman._serve import client
        from ferryman._serve.wire import Bring

        return client.bring(target, self.launch.access, Bring(self._stores, groups, to, peer, bytes_per_s, lane))

    def reorder(self, source: str, lane: str, groups: tuple[int, ...]) -> None:
        """Have one send what it has not yet sent on a lane in another order."""
        from ferryman._serve import client
        from ferryman._serve.wire import Reorder

        client.reorder(source, self.launch.access, Reorder(lane, groups))

    def drop(self, location: str, groups: tuple[int, ...]) -> None:
        """Have one forget key groups."""
        from ferryman._serve import client
        from ferryman._serve.wire import Drop

        client.drop(location, self.launch.access, Drop(self._stores, groups))

    def close(self, why: str) -> None:
        """Start none any more."""
        self.closed = self.closed or why

    def end(self, layout: Layout) -> None:
        """End them all, with the homes they serve."""
        if self._starter is not None:
            # It may have started some that are still coming up.
            self._starter.join(PATIENCE_S)
        with self._lock:
            seen, coming = set(self._seen), bool(self._coming)
        if seen:
            from ferryman._serve import client

            for location in seen:
                # One that is gone has nothing left to end.
                with contextlib.suppress(PeerFailed):
                    client.end(location, self.launch.access)
        if coming:
            # Of these it is not known where they are, only that they were started. They end with their executors
            # where Spark has ended already.
            with contextlib.suppress(Exception):
                layout.end_hosts(self.launch)

    def _located(self, layout: Layout) -> dict[int, InstanceHost]:
        """Find where instances are: where they were, while the executors are the same and the state hosts answer."""
        # Taken first: instances that are spread anew while they are looked for are a change that the next look sees.
        now = layout.spread
        with self._lock:
            spread, located = self._known
            # Where they are spread anew over hosts whose state hosts are known, nobody has to be sent there.
            elsewhere = {
                instance: InstanceHost(host, self._locations.get(host)) for instance, host in layout.hosts().items()
            }
        same = [located] if spread is not None and spread is now else []
        for known in [*same, *([elsewhere] if elsewhere else [])]:
            if all(at.location for at in known.values()) and self._answer(known):
                with self._lock:
                    self._known = now, known
                return known
        found = layout.find_hosts(self.launch)
        with self._lock:
            for landed in found.values():
                if landed.location is None:
                    self._locations.pop(landed.host, None)
                    self._coming.add(landed.host)
                else:
                    self._locations[landed.host] = landed.location
                    self._coming.discard(landed.host)
            locations = dict(self._locations)
        located = _tied(layout, found, locations)
        with self._lock:
            self._known = now, located
        return located

    def _answer(self, located: Mapping[int, InstanceHost]) -> bool:
        """Tell whether all these state hosts answer."""
        from ferryman._serve import client

        with contextlib.suppress(PeerFailed):
            for location in {at.location for at in located.values()}:
                client.ping(location or "", self.launch.access)
            return True
        return False


def _tied(layout: Layout, found: dict[int, InstanceHost], locations: Mapping[str, str]) -> dict[int, InstanceHost]:
    """Go by what instances are tied to: who looks may land elsewhere, as any task may.

    Only where the cluster's names for the hosts are those that they have for themselves.
    """
    hosts = layout.hosts()
    if len(hosts) < len(found) or not {at.host for at in found.values()} <= layout.cluster_hosts():
        return found
    return {instance: InstanceHost(host, locations.get(host)) for instance, host in hosts.items()}
