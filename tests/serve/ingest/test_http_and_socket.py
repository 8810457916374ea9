"""HTTP and sockets in: 200 is said of what is durable; lines are taken as far as there is room."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from until import until

from ferryman._log.ingest.ingest_files import read
from ferryman._serve.ingest import http_receiver, socket_receiver
from ferryman._serve.ingest.http_receiver import HttpOptions, HttpReceiver
from ferryman._serve.ingest.ingest import Ingest
from ferryman._serve.ingest.socket_receiver import SocketOptions, SocketReceiver
from ferryman.errors import InvalidConfiguration, SourceRefused

MIB = 1 << 20
ANY = "127.0.0.1:0"


def column(ingest: Ingest, name: str) -> list[object]:
    batches = read(ingest.log.path, ingest.log.begin, ingest.log.end)
    return [value for _, batch in batches for value in batch.column(name).to_pylist()]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Ingest]:
    options = HttpOptions(address=ANY, token="secret", max_body_bytes=200_000)
    ingest = Ingest(tmp_path, http_receiver.SCHEMA, partial(HttpReceiver, options), max_bytes=MIB)
    yield ingest
    ingest.end()


def post(ingest: Ingest, body: bytes, token: str = "secret", **headers: str) -> http.client.HTTPResponse:
    receiver = ingest._receiver
    assert isinstance(receiver, HttpReceiver)
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=30)
    connection.request("POST", "/fleet", body, {"Authorization": f"Bearer {token}", **headers})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_what_is_answered_with_200_is_in_the_log(served: Ingest) -> None:
    def send(number: int) -> None:
        assert post(served, str(number).encode(), **{"Idempotency-Key": f"id-{number}"}).status == 200

    threads = [threading.Thread(target=send, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(body) for body in column(served, "body")) == list(range(30))  # type: ignore[call-overload]
    assert set(column(served, "request_id")) == {f"id-{number}" for number in range(30)}
    assert set(column(served, "path")) == {"/fleet"}


def test_a_full_log_is_answered_with_503_and_takes_more_when_it_is_trimmed(served: Ingest) -> None:
    commit = served._commit
    body = bytes(100_000)
    late: list[int] = []
    while served.log.bytes + 2 * len(body) < MIB:
        assert post(served, body).status == 200
    # This one finds room when it asks, and waits for more.
    waiting = threading.Thread(target=lambda: [late.append(post(served, body).status) for _ in range(2)])
    waiting.start()
    until(lambda: commit.full, "the log is full")
    refused = post(served, body)
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    served.committed(served.log.id, served.log.end)
    waiting.join()
    assert late == [200, 200]
    assert post(served, body).status == 200


@pytest.mark.parametrize(
    ("body", "token", "headers", "status"),
    [
        (b"x", "wrong", {}, 401),
        (b"x" * 200_001, "secret", {}, 413),
        (b"x", "secret", {"Content-Length": "many"}, 411),
        (b"x", "secret", {"Content-Length": "\u00b2"}, 411),
        (b"x", "secret", {"Content-Length": "9" * 5000}, 413),
        # Where this ends, a proxy and we might not agree on.
        (b"x", "secret", {"Content-Length": "1", "Transfer-Encoding": "chunked"}, 411),
        (b"x", "secret", {"Idempotency-Key": "k" * 9000}, 431),
        (b"x", "secret", {"Content-Type": "t" * 9000}, 431),
    ],
)
def test_what_may_not_come_in_is_refused(
    served: Ingest, body: bytes, token: str, headers: dict[str, str], status: int
) -> None:
    assert post(served, body, token, **headers).status == status
    assert post(served, b"y").status == 200
    assert column(served, "body") == [b"y"]


def test_others_may_not_send_without_a_token() -> None:
    with pytest.raises(InvalidConfiguration, match="token"):
        HttpOptions(address="0.0.0.0:8080")
    HttpOptions(address="0.0.0.0:8080", token="secret")


def test_an_address_that_is_taken_is_refused(served: Ingest, tmp_path: Path) -> None:
    receiver = served._receiver
    assert isinstance(receiver, HttpReceiver)
    options = HttpOptions(address=f"127.0.0.1:{receiver.port}")
    with pytest.raises(SourceRefused, match="cannot listen"):
        Ingest(tmp_path / "other", http_receiver.SCHEMA, partial(HttpReceiver, options), max_bytes=MIB)


def test_lines_come_in_their_order_and_wait_in_tcp_while_the_log_is_full(tmp_path: Path) -> None:
    options = SocketOptions(address=ANY, max_line_bytes=50_000)
    ingest = Ingest(tmp_path, socket_receiver.SCHEMA, partial(SocketReceiver, options), max_bytes=MIB)
    receiver = ingest._receiver
    assert isinstance(receiver, SocketReceiver)
    lines = [f"{number:05d}" + "x" * 20_000 for number in range(1000)]
    sender = socket.create_connection(("127.0.0.1", receiver.port))

    def send() -> None:
        for line in lines:
            sender.sendall(line.encode() + b"\r\n")
        sender.close()

    thread = threading.Thread(target=send)
    thread.start()
    until(lambda: ingest._commit.full, "the log is full")
    assert thread.is_alive(), "the sender waits"
    seen: dict[int, str] = {}

    def all_seen() -> bool:
        # More may come meanwhile, and that was not seen.
        end = ingest.log.end
        for first, batch in read(tmp_path, max(ingest.log.begin, max(seen, default=-1) + 1), end):
            seen.update(enumerate(batch.column("value").to_pylist(), start=first))
        ingest.committed(ingest.log.id, end)
        return len(seen) == 1000

    until(all_seen, "all have come")
    thread.join()
    assert [seen[offset] for offset in range(1000)] == lines
    ingest.end()


def test_a_line_that_is_too_long_ends_its_connection_and_no_other(tmp_path: Path) -> None:
    options = SocketOptions(address=ANY, max_line_bytes=100)
    ingest = Ingest(tmp_path, socket_receiver.SCHEMA, partial(SocketReceiver, options), max_bytes=MIB)
    receiver = ingest._receiver
    assert isinstance(receiver, SocketReceiver)
    with (
        socket.create_connection(("127.0.0.1", receiver.port)) as other,
        socket.create_connection(("127.0.0.1", receiver.port)) as sender,
    ):
        sender.settimeout(30)
        sender.sendall(b"short\n" + b"x" * 101)
        assert sender.recv(1) == b""
        other.sendall(b"other\n")
        until(lambda: len(column(ingest, "value")) == 2, "both have come")
    assert column(ingest, "value") == ["short", "other"]
    ingest.end()
