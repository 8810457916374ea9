"""The state host: one process beside an executor that serves its main copies, and brings others in.

Run as `python -m ferryman._serve.state_host`, with its configuration as JSON on stdin. It works on the same home as the
executor's tasks, which is made for several processes, and it ends with the process that it was told to watch.
It takes no paths from anybody: tables are those of the job's card, groups those the job has.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from ferryman._log.files.cards import evolution_of, schemas_of
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.fold.advance import advance
from ferryman._log.fold.mains import main_of
from ferryman._model.card import JobCard
from ferryman._model.errors import FerrymanError, PeerFailed, StaleTask
from ferryman._serve import client
from ferryman._serve.auth import Access
from ferryman._serve.gate import Gate, inside
from ferryman._serve.throttle import Throttle, aside
from ferryman._serve.wire import PIECES, Bring, Drop, Head, Reorder, Take, Token, cut, failed, parse, piece
from ferryman._state import store as stores
from ferryman._state.store.contract import part_schema
from ferryman._state.store.store_identity import backend_of

# Where a host says, in its home, at which location it is.
LOCATION = "state-host.json"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What a state host is told when it starts.

    Attributes
    ----------
    address
        The address to listen on.
    home
        The home of this host.
    checkpoint
        The job's checkpoint.
    token
        What callers must know.
    watched
        The process to end with.
    tls
        The directory of certificates, if lines are to be encrypted.
    bytes_per_s
        How fast it sends at the most, to all peers together; None for as fast as it can.
    delay_s
        How much later all that it sends arrives: to try out what a longer line does.
    card
        The job as its run declares it; None for as the checkpoint has it.
    """

    address: str
    home: str
    checkpoint: str
    token: str
    watched: int
    tls: str | None = None
    bytes_per_s: float | None = None
    delay_s: float = 0.0
    card: JobCard | None = None

    @classmethod
    def parse(cls, text: str) -> Configuration:
        """Read it back from JSON."""
        raw = json.loads(text)
        return cls(**{**raw, "card": raw["card"] and JobCard.parse(raw["card"])})

    @property
    def access(self) -> Access:
        """Give how to get into it."""
        return Access(self.token, self.tls)


class StateHost(flight.FlightServerBase):  # type: ignore[misc]
    """Serve main copies of one home."""

    def __init__(self, configuration: Configuration) -> None:
        self._access = configuration.access
        self._home = Path(configuration.home)
        # Flight reads a request before it asks who sent it, so strangers do not get as far as that.
        path = inside(self._home, "state-host.sock")
        super().__init__(flight.Location.for_grpc_unix(path), middleware={"token": Token(configuration.token)})
        self._gate = Gate(configuration.address, path, configuration.token, configuration.tls)
        self.location: str = self._access.location(configuration.address, self._gate.port).uri.decode()
        self._checkpoint = Checkpoint(directory(configuration.checkpoint))
        found = self._checkpoint.job_card()
        # The checkpoint has what is declared from the first epoch on; and a late driver may put its own there.
        self._card = configuration.card or found
        self._line = Throttle(configuration.bytes_per_s, configuration.delay_s)
        self._stores: dict[str, stores.Store] = {}
        self._lock = threading.Lock()
        # How often each group was forgotten here, so that one who was sent for it before does not bring it back.
        self._drops: Counter[int] = Counter()
        self._dropping = [threading.Lock() for _ in range(self._card.groups)]
        # What is still to be sent on a lane, if somebody has told another order than was asked for.
        self._orders: dict[str, tuple[int, ...]] = {}

    # -- the calls -----------------------------------------------------------------------------------

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Send the main copies of key groups as they are, one group after the other."""
        take: Take = parse(Take, ticket.ticket)
        opened = {table: self._store(table, backend, take.groups) for table, backend in take.tables.items()}
        pieces = aside(self._pieces(take, opened), low=take.bytes_per_s is not None)
        return flight.GeneratorStream(PIECES, self._line.sent(pieces))

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """Bring key groups in, or forget them."""
        body = action.body.to_pybytes()
        if action.type == "bring":
            bring: Bring = parse(Bring, body)
            yield from (flight.Result(json.dumps(answer).encode()) for answer in self._bring(bring))
        elif action.type == "reorder":
            reorder: Reorder = parse(Reorder, body)
            # On a lane that has ended there is nothing left to send.
            if reorder.lane in self._orders:
                self._orders[reorder.lane] = reorder.groups
            yield flight.Result(b"{}")
        elif action.type == "drop":
            drop: Drop = parse(Drop, body)
            # Nobody waits for it.
            yield from (flight.Result(json.dumps(answer).encode()) for answer in aside(self._drop(drop), low=True))
        elif action.type == "end":
            yield flight.Result(b"{}")
            shutil.rmtree(self._home, ignore_errors=True)
            os._exit(0)
        elif action.type == "ping":
            yield flight.Result(json.dumps({"pid": os.getpid()}).encode())
        else:
            raise flight.FlightServerError(f"a state host knows no {action.type!r}")

    # -- inside --------------------------------------------------------------------------------------

    def _store(self, table: str, backend: str, groups: tuple[int, ...]) -> stores.Store:
        """Open a table of the job; anything else is refused."""
        if table not in self._card.tables:
            raise flight.FlightServerError(f"the job has no table {table!r}")
        if not all(0 <= group < self._card.groups for group in groups):
            raise flight.FlightServerError(f"the job has the key groups 0 to {self._card.groups - 1}")
        if backend not in stores.BACKENDS:
            raise flight.FlightServerError(f"there is no store {backend!r}")
        with self._lock:
            if table not in self._stores:
                there = backend_of(self._home / table)
                if there not in (None, backend):
                    # Opened as something else it would begin anew, and what is there would be gone.
                    raise flight.FlightServerError(f"the table {table!r} is in a {there} store, not in {backend}")
                key, state = schemas_of(self._card.tables[table])
                self._stores[table] = stores.open(backend, self._home / table, key, state, self._card.groups)
            return self._stores[table]

    def _pieces(self, take: Take, opened: Mapping[str, stores.Store]) -> Iterator[pa.RecordBatch]:
        pace = Throttle(take.bytes_per_s)
        for group in self._in_order(take):
            for table, store in opened.items():
                part, epoch = main_of(store, group)
                number = 0
                for batch in () if part is None else cut(part):
                    yield piece(Head(table, group, number, epoch, last=False), batch)
                    pace.wait(batch.nbytes)
                    number += 1
                yield piece(Head(table, group, number, epoch, last=True), None)

    def _in_order(self, take: Take) -> Iterator[int]:
        """Give the groups that are asked for, one when the one before is sent, in the newest order there is."""
        if take.lane:
            self._orders[take.lane] = ()
        try:
            left = dict.fromkeys(take.groups)
            while left:
                if newer := self._orders.get(take.lane, ()):
                    self._orders[take.lane] = ()
                    left = dict.fromkeys([*(group for group in newer if group in left), *left])
                group = next(iter(left))
                del left[group]
                yield group
        finally:
            self._orders.pop(take.lane, None)

    def _bring(self, bring: Bring) -> Iterator[dict[str, int]]:
        """Have groups at an epoch: from the peer what it has, the rest and what came since from the checkpoint."""
        opened = {table: self._store(table, backend, bring.groups) for table, backend in bring.tables.items()}
        missing = tuple(group for group in bring.groups if any(store.epochs()[group] < 0 for store in opened.values()))
        left, dropped = list(bring.groups), {group: self._drops[group] for group in bring.groups}
        if bring.peer is not None and missing:
            schemas = {table: part_schema(*schemas_of(self._card.tables[table])) for table in opened}
            try:
                take = Take(bring.tables, missing, bring.bytes_per_s, bring.lane)
                # Only what comes gives way to other work. Who puts a group in has a lock that tasks wait for, and must
                # not wait for a core while it has it.
                coming = client.take(bring.peer, self._access, take, schemas)
                for group, mains in aside(coming, low=bring.bytes_per_s is not None):
                    # Where rows wait, the epoch that takes them up should find nothing left to do.
                    latest = self._checkpoint.latest() if bring.bytes_per_s is None else None
                    size, to = 0, max(bring.to, latest.epoch if latest else 0)
                    # The stream has gone on since we were asked, but what a peer has is committed.
                    if (newest := max((epoch for _, epoch in mains.values()), default=0)) > to:
                        to = self._committed(newest, bring.peer)
                    with self._dropping[group]:
                        if self._drops[group] != dropped[group]:
                            # Whoever asked for it has left, and it was forgotten since.
                            return
                        for table, (part, epoch) in mains.items():
                            # A task that had to come here may have made it anew while this one was on its way.
                            with contextlib.suppress(StaleTask):
                                opened[table].ingest(part, np.array([group]), epoch)
                            size += part.nbytes
                        self._advance(opened, [group], to)
                    left.remove(group)
                    yield {"group": group, "bytes": size, "from_peer": len(mains), "missed": 0}
            except PeerFailed as error:
                # Whatever a peer cannot give, or gives wrong, is in the checkpoint.
                print(error, file=sys.stderr, flush=True)
        if any(self._drops[group] != dropped[group] for group in left):
            return
        at = max((int(store.epochs()[left].max()) for store in opened.values() if left), default=0)
        self._advance(opened, left, max(at, bring.to))
        missed = set(missing) if bring.peer is not None else set()
        yield from ({"group": group, "bytes": 0, "from_peer": 0, "missed": int(group in missed)} for group in left)

    def _committed(self, epoch: int, peer: str) -> int:
        """Give an epoch that a peer says to be at, unless no such epoch was ever committed."""
        latest = self._checkpoint.latest()
        if latest is None or epoch > latest.epoch:
            raise failed(peer, ValueError(f"it sent a main at epoch {epoch}, which was not committed"))
        return epoch

    def _drop(self, drop: Drop) -> Iterator[dict[str, int]]:
        opened = [self._store(table, backend, drop.groups) for table, backend in drop.tables.items()]
        with contextlib.ExitStack() as held:
            for group in sorted(set(drop.groups)):
                held.enter_context(self._dropping[group])
            self._drops.update(drop.groups)
            for store in opened:
                store.drop(np.array(drop.groups, np.int64))
        yield {"groups": len(drop.groups)}

    def _advance(self, opened: Mapping[str, stores.Store], groups: list[int], to: int) -> None:
        mine = np.array(groups, np.int64)
        for table, store in opened.items():
            key, state = schemas_of(self._card.tables[table])
            at = store.epochs()[mine]
            # Those that are furthest behind first come up with the next, so that no delta is read twice.
            for step in [*np.unique(at[(at >= 0) & (at < to)])[1:].tolist(), to]:
                at = store.epochs()[mine]
                try:
                    advance(
                        store,
                        self._checkpoint,
                        table,
                        mine[(at < step) & ((at >= 0) | (step == to))],
                        step,
                        key=key,
                        state=state,
                        total=self._card.groups,
                        evolution=evolution_of(self._card.tables[table]),
                    )
                except FerrymanError as error:
                    raise flight.FlightServerError(str(error)) from error


def _end_with(pid: int) -> None:
    """End this process as soon as another one is gone."""
    try:
        fd = os.pidfd_open(pid)
        select.select([fd], [], [])
    except ProcessLookupError:
        pass
    except (OSError, AttributeError):
        # Not this system: look again and again.
        while _lives(pid):
            time.sleep(0.5)
    os._exit(0)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> None:
    """Serve until the process that is watched has ended."""
    configuration = Configuration.parse(sys.stdin.readline())
    host = StateHost(configuration)
    threading.Thread(target=_end_with, args=(configuration.watched,), daemon=True).start()
    home = Path(configuration.home)
    said = {"location": host.location, "pid": os.getpid()}
    (home / f".{LOCATION}").write_text(json.dumps(said))
    os.replace(home / f".{LOCATION}", home / LOCATION)
    host.serve()


if __name__ == "__main__":
    main()
