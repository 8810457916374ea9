"""Call a state host. Every call has a limit in time, and every failure is a `PeerFailed`.

A long call goes on for as long as the peer lives: one that is silent for a while is asked whether it does, so that a
peer that stalls is noticed in seconds and a slow one is left in peace.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from ferryman._serve.auth import Access
from ferryman._serve.wire import PIECES, Bring, Drop, Reorder, Take, failed, unwrap

# How long a call may take that carries state, however much and however slowly, and one that does not.
CARRY_S = 86_400.0
TIMEOUT_S = 20.0
# A peer that sends nothing for so long is asked whether it lives, and has so long to answer.
SILENCE_S = 5.0
PING_S = 5.0
# One that lives and still sends nothing for so long is stuck. A large key group on a slow line takes its time.
STUCK_S = 1800.0

T = TypeVar("T")


Main = tuple[pa.Table, int]


def take(
    location: str, access: Access, what: Take, schemas: Mapping[str, pa.Schema], timeout_s: float = CARRY_S
) -> Iterator[tuple[int, dict[str, Main]]]:
    """Fetch main copies, group after group: for each table its rows and the epoch they are at.

    They come in the order of the peer, who may have been told another one than that of the request. A table that the
    peer has no main of is left out. Nothing of a group is given before all of it is there and whole.
    """

    def pieces() -> Iterator[pa.RecordBatch]:
        with access.connect(location) as peer:
            reader = peer.do_get(flight.Ticket(what.bytes()), access.options(timeout_s))
            if not reader.schema.equals(PIECES):
                raise ValueError("it sent something else than main copies")
            for chunk in reader:
                yield chunk.data

    try:
        wanted = set(what.groups)
        found: dict[str, Main] = {}
        ended: set[str] = set()
        held: list[pa.RecordBatch] = []
        group: int | None = None
        for piece in _while_it_lives(pieces, location, access):
            head, rows = unwrap(piece, schemas)
            group = head.group if group is None and head.group in wanted else group
            if head.group != group or head.table in ended:
                raise ValueError("it sent another key group than was asked for")
            if head.number != len(held):
                raise ValueError("it left something out")
            held += [] if rows is None else [rows]
            if head.last:
                ended.add(head.table)
                if head.epoch >= 0:
                    found[head.table] = pa.Table.from_batches(held, schemas[head.table]), head.epoch
                held = []
            if ended == set(what.tables):
                yield group, found
                wanted.remove(group)
                found, ended, group = {}, set(), None
        if wanted:
            raise ValueError("it ended before everything was there")
    except (pa.ArrowException, ValueError, OSError) as error:
        raise failed(location, error) from error


def bring(location: str, access: Access, what: Bring, timeout_s: float = CARRY_S) -> Iterator[dict[str, int]]:
    """Have a host bring key groups to an epoch; tell of each as it arrives."""

    def arrivals() -> Iterator[dict[str, int]]:
        with access.connect(location) as peer:
            for result in peer.do_action(flight.Action("bring", what.bytes()), access.options(timeout_s)):
                yield _arrival(json.loads(result.body.to_pybytes()))

    try:
        left = set(what.groups)
        for arrival in _while_it_lives(arrivals, location, access):
            if arrival["group"] not in left:
                raise ValueError("it told of a key group that it was not asked for, or told twice of one")
            left.remove(arrival["group"])
            yield arrival
        if left:
            raise ValueError("it ended before everything was there")
    except (pa.ArrowException, ValueError, OSError) as error:
        raise failed(location, error) from error


def _arrival(raw: Any) -> dict[str, int]:
    if not isinstance(raw, dict) or not all(isinstance(raw.get(name), int) for name in ("group", "bytes")):
        raise ValueError("it told of something else than a key group")
    return raw


def drop(location: str, access: Access, what: Drop, timeout_s: float = TIMEOUT_S) -> None:
    """Have a host forget key groups."""
    _call(location, access, "drop", what.bytes(), timeout_s)


def reorder(location: str, access: Access, what: Reorder) -> None:
    """Tell a host in which order to send what it has not yet sent."""
    _call(location, access, "reorder", what.bytes(), PING_S)


def end(location: str, access: Access) -> None:
    """Have a host remove its home and end."""
    _call(location, access, "end", b"", PING_S)


def ping(location: str, access: Access) -> int:
    """Give the process id of a host that is there and lets us in."""
    return int(_call(location, access, "ping", b"", PING_S)["pid"])


def _while_it_lives(call: Callable[[], Iterator[T]], location: str, access: Access) -> Iterator[T]:
    """Give what a call gives, which a thread makes: it cannot be left otherwise before the peer says something."""
    # Few, so that a peer does not send faster than we can take.
    given: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(2)
    left = threading.Event()

    def hand(item: T | None, error: BaseException | None) -> None:
        while not left.is_set():
            with contextlib.suppress(queue.Full):
                given.put((item, error), timeout=1)
                return

    def read() -> None:
        try:
            for item in call():
                hand(item, None)
                if left.is_set():
                    return
        except BaseException as error:
            hand(None, error)
        else:
            hand(None, StopIteration())

    threading.Thread(target=read, name="ferryman-call", daemon=True).start()
    heard = time.monotonic()
    try:
        while True:
            try:
                item, error = given.get(timeout=SILENCE_S)
            except queue.Empty:
                if time.monotonic() > heard + STUCK_S:
                    raise TimeoutError(f"it lives, and has sent nothing for {STUCK_S / 60:.0f} minutes") from None
                ping(location, access)
                continue
            heard = time.monotonic()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        left.set()


def _call(location: str, access: Access, action: str, body: bytes, timeout_s: float) -> Any:
    try:
        with access.connect(location) as peer:
            results = list(peer.do_action(flight.Action(action, body), access.options(timeout_s)))
        return json.loads(results[0].body.to_pybytes())
    except (pa.ArrowException, IndexError, ValueError, OSError) as error:
        raise failed(location, error) from error
