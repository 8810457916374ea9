"""The state host: one process beside an executor that serves its main copies, and brings others in.

Run as `python -m ferryman._serve.host`, with its configuration as JSON on stdin. It works on the same home as the
executor's tasks, which is made for several processes, and it ends with the process that it was told to watch.
It takes no paths from anybody: tables are those of the job's card, groups those the job has.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from ferryman._log.advance import advance
from ferryman._log.checkpoint import Checkpoint, evolution_of, schemas_of
from ferryman._log.directory import directory
from ferryman._model.errors import FerrymanError, PeerFailed, StaleTask
from ferryman._serve import client
from ferryman._serve.wire import BATCH_ROWS, EPOCH, Bring, Drop, Take, Token, digest, parse
from ferryman._state import store as stores
from ferryman._state.store.contract import part_schema

# Where a host says, in its home, at which location it is.
LOCATION = "state-host.json"
# A main copy that moves on while it is read is read again, so often.
_TRIES = 20


@dataclass(frozen=True)
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
    bytes_per_s
        How fast it sends at the most; None for as fast as it can.
    """

    address: str
    home: str
    checkpoint: str
    token: str
    watched: int
    bytes_per_s: float | None = None


class StateHost(flight.FlightServerBase):  # type: ignore[misc]
    """Serve main copies of one home."""

    def __init__(self, configuration: Configuration) -> None:
        location = flight.Location.for_grpc_tcp(configuration.address, 0)
        super().__init__(location, middleware={"token": Token(configuration.token)})
        self._home = Path(configuration.home)
        self._checkpoint = Checkpoint(directory(configuration.checkpoint))
        self._card = self._checkpoint.job_card()
        self._token = configuration.token
        self._bytes_per_s = configuration.bytes_per_s
        self._stores: dict[str, stores.Store] = {}
        self._lock = threading.Lock()

    # -- the calls -----------------------------------------------------------------------------------

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Send the main copy of a key group, as it is."""
        take: Take = parse(Take, ticket.ticket)
        store = self._store(take.table, take.backend, (take.group,))
        for _ in range(_TRIES):
            epoch = int(store.epochs()[take.group])
            if epoch < 0:
                break
            with contextlib.suppress(StaleTask):
                part = store.scan(take.group, epoch)
                schema = part.schema.with_metadata({EPOCH: str(epoch).encode()})
                return flight.GeneratorStream(schema, self._batches(part.cast(schema)))
        raise flight.FlightServerError(f"key group {take.group} of {take.table!r} has no main copy here")

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """Bring key groups in, or forget them."""
        body = action.body.to_pybytes()
        if action.type == "bring":
            answer = self._bring(parse(Bring, body))
        elif action.type == "drop":
            drop: Drop = parse(Drop, body)
            for table, backend in drop.tables.items():
                self._store(table, backend, drop.groups).drop(np.array(drop.groups, np.int64))
            answer = {}
        elif action.type == "ping":
            answer = {"pid": os.getpid()}
        else:
            raise flight.FlightServerError(f"a state host knows no {action.type!r}")
        yield flight.Result(json.dumps(answer).encode())

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
                key, state = schemas_of(self._card.tables[table])
                self._stores[table] = stores.open(backend, self._home / table, key, state, self._card.groups)
            return self._stores[table]

    def _batches(self, part: pa.Table) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        sent, began = 0, time.monotonic()
        for batch in part.to_batches(max_chunksize=BATCH_ROWS):
            yield batch, digest(batch)
            sent += batch.nbytes
            if self._bytes_per_s:
                time.sleep(max(0.0, began + sent / self._bytes_per_s - time.monotonic()))

    def _bring(self, bring: Bring) -> dict[str, int]:
        """Have groups at an epoch: from the peer what it has, the rest and what came since from the checkpoint."""
        moved = from_peer = 0
        for table, backend in bring.tables.items():
            store = self._store(table, backend, bring.groups)
            groups = np.array(bring.groups, np.int64)
            key, state = schemas_of(self._card.tables[table])
            if bring.peer is not None:
                for group in groups[store.epochs()[groups] < 0].tolist():
                    # Whatever a peer cannot give, or gives wrong, is in the checkpoint.
                    with contextlib.suppress(PeerFailed):
                        take = Take(table, backend, group)
                        part, epoch = client.take(bring.peer, self._token, take, part_schema(key, state))
                        if epoch <= bring.to:
                            store.ingest(part, np.array([group]), epoch)
                            moved += part.nbytes
                            from_peer += 1
            try:
                advance(
                    store,
                    self._checkpoint,
                    table,
                    groups,
                    bring.to,
                    key=key,
                    state=state,
                    total=self._card.groups,
                    evolution=evolution_of(self._card.tables[table]),
                )
            except FerrymanError as error:
                raise flight.FlightServerError(str(error)) from error
        return {"bytes": moved, "from_peer": from_peer}


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
    configuration = Configuration(**json.loads(sys.stdin.readline()))
    host = StateHost(configuration)
    threading.Thread(target=_end_with, args=(configuration.watched,), daemon=True).start()
    home = Path(configuration.home)
    (home / f".{LOCATION}").write_text(json.dumps({"location": f"grpc+tcp://{configuration.address}:{host.port}"}))
    os.replace(home / f".{LOCATION}", home / LOCATION)
    host.serve()


if __name__ == "__main__":
    main()
