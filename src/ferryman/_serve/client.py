"""Call a state host. Every call has a limit in time, and every failure is a `PeerFailed`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ferryman._serve.wire import AUTHORIZATION, PIECES, Bring, Drop, Take, failed, unwrap

# A peer that has not answered for so long is taken for gone.
TIMEOUT_S = 60.0


def _options(token: str, timeout_s: float) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=timeout_s, headers=[(AUTHORIZATION.encode(), f"Bearer {token}".encode())])


Main = tuple[pa.Table, int]


def take(
    location: str, token: str, what: Take, schemas: Mapping[str, pa.Schema], timeout_s: float = TIMEOUT_S
) -> Iterator[tuple[int, dict[str, Main]]]:
    """Fetch main copies, group after group: for each table its rows and the epoch they are at.

    A table that the peer has no main of is left out. Nothing of a group is given before all of it is there and whole.
    """
    try:
        with flight.connect(location) as peer:
            reader = peer.do_get(flight.Ticket(what.bytes()), _options(token, timeout_s))
            if not reader.schema.equals(PIECES):
                raise ValueError("it sent something else than main copies")
            wanted = iter(what.groups)
            found: dict[str, Main] = {}
            ended: set[str] = set()
            held: list[pa.RecordBatch] = []
            group = next(wanted, None)
            for chunk in reader:
                table, of, epoch, last, rows = unwrap(chunk.data, schemas)
                if of != group or table in ended:
                    raise ValueError("it sent another key group than was asked for")
                held += [] if rows is None else [rows]
                if last:
                    ended.add(table)
                    if epoch >= 0:
                        found[table] = pa.Table.from_batches(held, schemas[table]), epoch
                    held = []
                if ended == set(what.tables):
                    yield of, found
                    found, ended, group = {}, set(), next(wanted, None)
            if group is not None:
                raise ValueError("it ended before everything was there")
    except (pa.ArrowException, ValueError, OSError) as error:
        raise failed(location, error) from error


def bring(location: str, token: str, what: Bring, timeout_s: float = TIMEOUT_S) -> Iterator[dict[str, int]]:
    """Have a host bring key groups to an epoch; tell of each as it arrives."""
    try:
        with flight.connect(location) as peer:
            for one in peer.do_action(flight.Action("bring", what.bytes()), _options(token, timeout_s)):
                found: dict[str, int] = json.loads(one.body.to_pybytes())
                yield found
    except (pa.ArrowException, ValueError, OSError) as error:
        raise failed(location, error) from error


def drop(location: str, token: str, what: Drop, timeout_s: float = TIMEOUT_S) -> None:
    """Have a host forget key groups."""
    _call(location, token, "drop", what.bytes(), timeout_s)


def ping(location: str, token: str, timeout_s: float = 2.0) -> int:
    """Give the process id of a host that is there and lets us in."""
    return int(_call(location, token, "ping", b"", timeout_s)["pid"])


def _call(location: str, token: str, action: str, body: bytes, timeout_s: float) -> Any:
    try:
        with flight.connect(location) as peer:
            results = list(peer.do_action(flight.Action(action, body), _options(token, timeout_s)))
        return json.loads(results[0].body.to_pybytes())
    except (pa.ArrowException, IndexError, ValueError, OSError) as error:
        raise failed(location, error) from error
