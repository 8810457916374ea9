"""Callers have a bounded number of places, strangers give way, and all are told when it is over."""

from __future__ import annotations

import contextlib
import http.client
import socket
from functools import partial
from pathlib import Path

import pytest

from ferryman._serve.ingest import http_receiver, receiver_callers, socket_receiver
from ferryman._serve.ingest.http_receiver import HttpOptions, HttpReceiver
from ferryman._serve.ingest.ingest import Ingest
from ferryman._serve.ingest.socket_receiver import SocketOptions, SocketReceiver

MIB = 1 << 20
ANY = "127.0.0.1:0"


def connected(port: int) -> socket.socket:
    caller = socket.create_connection(("127.0.0.1", port))
    caller.settimeout(30)
    return caller


def over(caller: socket.socket) -> bool:
    try:
        return caller.recv(1) == b""
    except ConnectionResetError:
        return True


def test_strangers_take_no_place_from_those_who_have_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_callers, "MOST_CALLERS", 3)
    options = HttpOptions(address=ANY, token="secret")
    ingest = Ingest(tmp_path, http_receiver.SCHEMA, partial(HttpReceiver, options), max_bytes=MIB)
    assert isinstance(ingest._receiver, HttpReceiver)
    port = ingest._receiver.port
    known = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def post(connection: http.client.HTTPConnection) -> int:
        connection.request("POST", "/", b"x", {"Authorization": "Bearer secret"})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    assert post(known) == 200
    strangers = [connected(port) for _ in range(5)]
    assert all(over(stranger) for stranger in strangers[:3])
    assert post(known) == 200
    assert post(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) == 200
    assert over(strangers[3])
    ingest.end()
    assert over(strangers[4])
    # What comes in the moment in which it ends may still be read; it is not taken.
    with contextlib.suppress(ConnectionError):
        assert post(known) == 503
    assert known.sock is None or over(known.sock)


def test_a_socket_turns_away_who_has_no_place_and_ends_its_callers_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_callers, "MOST_CALLERS", 2)
    receiver = partial(SocketReceiver, SocketOptions(address=ANY))
    ingest = Ingest(tmp_path, socket_receiver.SCHEMA, receiver, max_bytes=MIB)
    assert isinstance(ingest._receiver, SocketReceiver)
    there = [connected(ingest._receiver.port) for _ in range(2)]
    assert over(connected(ingest._receiver.port))
    ingest.end()
    assert all(over(caller) for caller in there)
