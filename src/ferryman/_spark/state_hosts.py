"""The state hosts of a job as its driver sees them: where they are, and what they are asked for."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ferryman._model.errors import PeerFailed
from ferryman._spark.hosts import EndHost, FindHost, Place
from ferryman._spark.plan import Planner

# Arrow Flight is imported where it is used: a job that nobody changes needs none.

# How long to wait for a state host to come up.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Errand:
    """What a state host is to bring or to forget: key groups of these tables, with the store of each."""

    tables: Mapping[str, str]
    groups: tuple[int, ...]


class StateHosts:
    """Find, start, ask and end the state hosts of a job.

    Parameters
    ----------
    checkpoint, run_id, home
        The run of the job, and where its hosts keep their homes.
    tls
        The directory of certificates on every host; None for lines that are not encrypted.
    """

    def __init__(self, checkpoint: str, run_id: str, home: str | None, tls: str | None) -> None:
        self.find = FindHost(checkpoint, run_id, home, secrets.token_hex(16), tls)
        # Called before hosts are started: they go by the job's card.
        self.keep_card: Callable[[], None] = lambda: None
        self._seen: set[str] = set()
        # Hosts where one was started that has not yet been seen.
        self._coming: set[str] = set()
        # Where each was heard of last.
        self._locations: dict[str, str] = {}
        self._known: tuple[object, dict[int, Place]] = (None, {})
        self._closed = ""
        self._starter: threading.Thread | None = None

    def start(self, planner: Callable[[], Planner]) -> None:
        """Start them ahead of the first change, in the background."""

        def work() -> None:
            # Whatever is wrong is said when a change needs them.
            with contextlib.suppress(Exception):
                self.places(planner())

        if not self._closed:
            self._starter = threading.Thread(target=work, name="ferryman-hosts", daemon=True)
            self._starter.start()

    def places(self, *planners: Planner) -> list[dict[int, Place]]:
        """Find where the instances of layouts are; wait until there is a state host at each of these places."""
        deadline = time.monotonic() + PATIENCE_S
        self.keep_card()
        while True:
            if self._closed:
                raise PeerFailed(f"{self._closed}; no state hosts are started any more")
            found = [self._located(planner) for planner in planners]
            locations = [place.location for places in found for place in places.values()]
            self._seen.update(one for one in locations if one)
            if all(locations):
                return found
            if time.monotonic() > deadline:
                where = sorted({place.host for places in found for place in places.values() if not place.location})
                raise PeerFailed(
                    f"the state host of {', '.join(where)} does not come up; see state-host.log in the home there"
                )
            # It takes a second or two, and asking takes slots that epochs want.
            time.sleep(0.5)

    def bring(
        self, target: str, errand: Errand, to: int, peer: str | None, bytes_per_s: float | None, lane: str = ""
    ) -> Iterator[dict[str, int]]:
        """Have one bring key groups to an epoch; tell of each as it arrives."""
        from ferryman._serve import client
        from ferryman._serve.wire import Bring

        wanted = Bring(errand.tables, errand.groups, to, peer, bytes_per_s, lane)
        return client.bring(target, self.find.access, wanted)

    def reorder(self, source: str, lane: str, groups: tuple[int, ...]) -> None:
        """Have one send what it has not yet sent on a lane in another order."""
        from ferryman._serve import client
        from ferryman._serve.wire import Reorder

        client.reorder(source, self.find.access, Reorder(lane, groups))

    def drop(self, location: str, errand: Errand) -> None:
        """Have one forget key groups."""
        from ferryman._serve import client
        from ferryman._serve.wire import Drop

        client.drop(location, self.find.access, Drop(errand.tables, errand.groups))

    def close(self, why: str) -> None:
        """Start none any more."""
        self._closed = self._closed or why

    def end(self, planner: Planner) -> None:
        """End them all, with the homes they serve."""
        if self._starter is not None:
            # It may have started some that are still coming up.
            self._starter.join(PATIENCE_S)
        if self._seen:
            from ferryman._serve import client

            for location in self._seen:
                # One that is gone has nothing left to end.
                with contextlib.suppress(PeerFailed):
                    client.end(location, self.find.access)
        if self._coming:
            # Of these it is not known where they are, only that they were started. They end with their executors
            # where Spark has ended already.
            with contextlib.suppress(Exception):
                planner.everywhere(EndHost(self.find))

    def _located(self, planner: Planner) -> dict[int, Place]:
        """Find where instances are: where they were, while the executors are the same and the state hosts answer."""
        from ferryman._serve import client

        anchor, places = self._known
        with contextlib.suppress(PeerFailed):
            if anchor is not None and anchor is planner.anchor and all(place.location for place in places.values()):
                for location in {place.location for place in places.values()}:
                    client.ping(location or "", self.find.access)
                return places
        for landed in (found := planner.places(self.find)).values():
            if landed.location is None:
                self._locations.pop(landed.host, None)
                self._coming.add(landed.host)
            else:
                self._locations[landed.host] = landed.location
                self._coming.discard(landed.host)
        places = self._tied(planner, found)
        self._known = planner.anchor, places
        return places

    def _tied(self, planner: Planner, found: dict[int, Place]) -> dict[int, Place]:
        """Go by what instances are tied to: who looks may land elsewhere, as any task may.

        Only where Spark's names for the hosts are those that they have for themselves.
        """
        hosts = planner.hosts()
        if len(hosts) < len(found) or not {place.host for place in found.values()} <= planner.executor_hosts():
            return found
        return {instance: Place(host, self._locations.get(host)) for instance, host in hosts.items()}
