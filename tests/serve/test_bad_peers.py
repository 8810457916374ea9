"""Peers that lie, stall or are gone: they are noticed, and the checkpoint has what they would have given."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from serving import ACCESS, SCHEMA, SCHEMAS, TABLES, content, expected, fill, gone, held, start
from until import until

from ferryman._model.errors import PeerFailed
from ferryman._serve import client
from ferryman._serve.wire import PIECES, Bring, Head, Take, piece


def with_column(sent, name, value):
    return sent.set_column(PIECES.names.index(name), PIECES.field(name), pa.array([value], PIECES.field(name).type))


class Liar(flight.FlightServerBase):
    """A peer that sends something else than it should."""

    def __init__(self, how: str) -> None:
        super().__init__("grpc+tcp://127.0.0.1:0")
        self._how = how
        self._left = threading.Event()

    def __exit__(self, *exc):
        self._left.set()
        super().__exit__(*exc)

    @property
    def location(self) -> str:
        return f"grpc+tcp://127.0.0.1:{self.port}"

    def do_action(self, context, action):
        if action.type == "bring":
            groups = {"ended early": [0], "another group": [0, 7], "twice": [0, 0]}[self._how]
            yield from (json.dumps({"group": group, "bytes": 0}).encode() for group in groups)
            return
        assert action.type == "ping"
        yield json.dumps({"pid": os.getpid()}).encode()

    def do_get(self, context, ticket):
        rows = pa.record_batch({"_hash": [1], "sensor": ["no such"], "n": [99], "note": ["a lie"]}, schema=SCHEMA)
        if self._how == "alien":
            return flight.RecordBatchStream(pa.table({"x": [1]}))
        if self._how == "stalls":
            # Until nobody waits for it any more.
            self._left.wait(60)
        sent = piece(Head("Counts", 0, 0, 4, last=False), rows)
        if self._how == "the future":
            head = Head("Counts", 0, 0, 10**12, last=True)
            sent = piece(head, rows)
        if self._how == "altered":
            sent = with_column(sent, "rows", b"other bytes")
        if self._how == "another epoch":
            sent = with_column(sent, "epoch", 3)
        if self._how == "a null":
            sent = with_column(sent, "group", None)
        if self._how == "nothing":
            sent = sent.slice(0, 0)
        if self._how == "something left out":
            sent = piece(Head("Counts", 0, 1, 4, last=False), rows)
        if self._how == "another group":
            sent = piece(Head("Counts", 7, 0, 4, last=False), rows)
        if self._how == "no rows":
            data = b"no Arrow at all"
            sent = with_column(sent, "rows", data)
            sent = with_column(sent, "checksum", Head("Counts", 0, 0, 4, last=False).digest(data))

        def pieces():
            yield sent
            if self._how == "cut off":
                raise flight.FlightServerError("the line was cut")

        return flight.GeneratorStream(PIECES, pieces())


LIES = [
    "alien",
    "altered",
    "another epoch",
    "a null",
    "nothing",
    "something left out",
    "another group",
    "no rows",
    "cut off",
    "ended early",
]


@pytest.mark.parametrize("how", [*LIES, "stalls"])
def test_a_peer_that_lies_is_noticed(how):
    with Liar(how) as peer, pytest.raises(PeerFailed):
        list(client.take(peer.location, ACCESS, Take(TABLES, (0,)), SCHEMAS, timeout_s=1))


@pytest.mark.parametrize("how", [*LIES, "not there"])
def test_what_a_peer_cannot_give_comes_from_the_checkpoint(tmp_path, log, watched, how):
    b = start(tmp_path, "b", watched)
    with Liar(how) as peer:
        location = "grpc+tcp://127.0.0.1:1" if how == "not there" else peer.location
        told = list(client.bring(b, ACCESS, Bring(TABLES, (0, 1), 4, location)))

    assert [line["from_peer"] for line in told] == [0, 0]
    assert content(held(tmp_path, "b"), [0, 1], 4) == expected(log, [0, 1], 4)


@pytest.mark.parametrize("how", ["ended early", "another group", "twice"])
def test_a_target_that_lies_about_what_it_has_is_noticed(how):
    with Liar(how) as peer, pytest.raises(PeerFailed):
        list(client.bring(peer.location, ACCESS, Bring(TABLES, (0, 1), 4)))


def test_an_epoch_that_was_never_committed_is_not_believed(tmp_path, log, watched):
    b = start(tmp_path, "b", watched)
    with Liar("the future") as peer:
        told = list(client.bring(b, ACCESS, Bring(TABLES, (0, 1), 4, peer.location)))

    assert [line["missed"] for line in told] == [1, 1], "both were to come from the peer"
    assert content(held(tmp_path, "b"), [0, 1], 4) == expected(log, [0, 1], 4)
    assert "a main at epoch 1000000000000" in (tmp_path / "b" / "state-host.log").read_text()


@pytest.fixture
def mute():
    """A peer that accepts, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"grpc+tcp://127.0.0.1:{listener.getsockname()[1]}"


def test_a_peer_that_never_answers_is_noticed_long_before_a_call_may_end(quickly, mute):
    began = time.monotonic()
    with pytest.raises(PeerFailed):
        list(client.take(mute, ACCESS, Take(TABLES, (0,)), SCHEMAS))
    with pytest.raises(PeerFailed):
        list(client.bring(mute, ACCESS, Bring(TABLES, (0,), 4)))

    assert time.monotonic() - began < client.CARRY_S / 10


def test_a_peer_that_lives_and_never_sends_anything_is_given_up(quickly, monkeypatch):
    monkeypatch.setattr(client, "STUCK_S", 1.0)
    with Liar("stalls") as peer, pytest.raises(PeerFailed, match="it lives, and has sent nothing"):
        list(client.take(peer.location, ACCESS, Take(TABLES, (0,)), SCHEMAS))


def test_a_source_that_stalls_is_replaced_by_the_checkpoint(tmp_path, log, watched):
    fill(tmp_path, "a", log, 4)
    a, b = start(tmp_path, "a", watched), start(tmp_path, "b", watched)
    stalled = client.ping(a, ACCESS)
    os.kill(stalled, signal.SIGSTOP)
    try:
        told = list(client.bring(b, ACCESS, Bring(TABLES, (0, 1), 4, a)))
    finally:
        os.kill(stalled, signal.SIGCONT)

    assert [line["from_peer"] for line in told] == [0, 0]
    assert content(held(tmp_path, "b"), [0, 1], 4) == expected(log, [0, 1], 4)


def test_a_target_that_stalls_is_noticed_and_the_next_one_takes_its_place(tmp_path, log, watched, quickly):
    first = start(tmp_path, "b", watched)
    stalled = client.ping(first, ACCESS)
    os.kill(stalled, signal.SIGSTOP)
    with pytest.raises(PeerFailed):
        list(client.bring(first, ACCESS, Bring(TABLES, (0,), 4)))

    second = start(tmp_path, "b", watched)

    assert client.ping(second, ACCESS) != stalled
    until(lambda: gone(stalled), "the one that stalls is still there, with whatever it has locked", 20)


def test_a_peer_that_is_slow_but_lives_is_waited_for(tmp_path, log, watched, quickly):
    fill(tmp_path, "a", log, 4)
    part = held(tmp_path, "a").scan(0, 4)
    slow = start(tmp_path, "a", watched, bytes_per_s=part.nbytes / 2)

    ((_, mains),) = client.take(slow, ACCESS, Take(TABLES, (0,)), SCHEMAS)

    assert mains["Counts"][0].num_rows == part.num_rows
