"""Call a state host. Every call has a limit in time, and every failure is a `PeerFailed`."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from ferryman._model.errors import PeerFailed
from ferryman._serve.wire import AUTHORIZATION, EPOCH, Bring, Drop, Take, digest, failed

# A peer that has not answered for so long is taken for gone.
TIMEOUT_S = 60.0


def _options(token: str, timeout_s: float) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=timeout_s, headers=[(AUTHORIZATION.encode(), f"Bearer {token}".encode())])


def take(
    location: str, token: str, what: Take, schema: pa.Schema, timeout_s: float = TIMEOUT_S
) -> tuple[pa.Table, int]:
    """Fetch the main copy of a key group, and the epoch it is at; altered or alien bytes are refused."""
    try:
        with flight.connect(location) as peer:
            reader = peer.do_get(flight.Ticket(what.bytes()), _options(token, timeout_s))
            if not reader.schema.equals(schema):
                raise PeerFailed(f"the state host at {location} sent other columns than {what.table!r} has")
            epoch = int((reader.schema.metadata or {})[EPOCH])
            batches = []
            for chunk in reader:
                if chunk.app_metadata is None or chunk.app_metadata.to_pybytes() != digest(chunk.data):
                    raise PeerFailed(f"the state host at {location} sent bytes that were altered on the way")
                batches.append(chunk.data)
        return pa.Table.from_batches(batches, schema), epoch
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        raise failed(location, error) from error


def bring(location: str, token: str, what: Bring, timeout_s: float = TIMEOUT_S) -> dict[str, int]:
    """Have a host bring key groups to an epoch; tell what came from its peer."""
    found: dict[str, int] = _call(location, token, "bring", what.bytes(), timeout_s)
    return found


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
