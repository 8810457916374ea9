"""Checkpoints on a server of S3's protocol: of two drivers, one commits an epoch."""

from __future__ import annotations

import http.client
import http.server
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

pytest.importorskip("obstore")
boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")
serving = pytest.importorskip("werkzeug.serving")

from ferryman._log.files.checkpoint import Checkpoint  # noqa: E402
from ferryman._log.files.remote import RemoteDirectory  # noqa: E402
from ferryman._log.files.term import check_term, settle_term, take_term  # noqa: E402
from ferryman._model.errors import CheckpointInUse, InvalidConfiguration, Superseded  # noqa: E402
from ferryman._model.manifest import Manifest  # noqa: E402
from ferryman._model.routing import RoutingTable  # noqa: E402


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Run a server of S3's protocol in this process, on loopback."""
    # One request at a time, as this server looks and then writes: what a real one does at once.
    application = moto_server.DomainDispatcherApplication(moto_server.create_backend_app)
    running = serving.make_server("127.0.0.1", 0, application, threaded=False)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{running.server_port}"
    keys = {"aws_access_key_id": "ferry", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=f"http://{address}", **keys).create_bucket(Bucket="bucket")
    yield address
    running.shutdown()


def uri(server: str, folder: str) -> str:
    options = f"endpoint_override={server}&scheme=http&region=us-east-1"
    return f"s3://ferry:secret@bucket/{folder}?{options}"


def manifest(epoch: int, term: int) -> Manifest:
    return Manifest(
        epoch=epoch,
        batch=epoch,
        silent=False,
        time_ms=0,
        routing=RoutingTable.even(1, 4, 1),
        operators={},
        tables={},
        term=term,
    )


def test_of_two_drivers_only_one_commits_an_epoch(server: str) -> None:
    logs = [Checkpoint(RemoteDirectory(uri(server, "race"))) for _ in range(2)]
    epochs, start = 60, threading.Barrier(2)

    def drive(log: Checkpoint, term: int) -> list[int]:
        mine = []
        for epoch in range(1, epochs + 1):
            start.wait()
            try:
                log.commit(manifest(epoch, term))
                mine.append(epoch)
            except CheckpointInUse:
                pass
        return mine

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(drive, logs, (1, 2))

    assert sorted(first + second) == list(range(1, epochs + 1)), "each epoch was committed once, by one of them"
    for term, mine in ((1, first), (2, second)):
        assert all(logs[0].manifest(epoch).term == term for epoch in mine), "and it is that one's manifest"


def test_a_second_driver_takes_over_and_the_first_is_told(server: str) -> None:
    log = Checkpoint(RemoteDirectory(uri(server, "terms")))
    assert log.directory.fences()
    first, second = take_term(log, "a", "job"), take_term(log, "b", "job")

    check_term(log, settle_term(log, second, None))
    with pytest.raises(Superseded):
        check_term(log, first)


def test_a_password_is_in_no_message(server: str) -> None:
    log = Checkpoint(RemoteDirectory(uri(server, "told")))
    first = take_term(log, "first", "job")
    take_term(log, "second", "job")
    with pytest.raises(Superseded) as told:
        check_term(log, first)
    assert "s3://ferry:***@bucket/told" in str(told.value)
    assert "secret" not in str(told.value)
    for place in (
        "nowhere://ferry:secret@bucket/told",
        "s3://ferry:a/sec+ret@bucket/told",
        "no://a?client_secret=hush",
    ):
        with pytest.raises(InvalidConfiguration) as refused:
            RemoteDirectory(place)
        assert not {"secret@", "sec+ret", "hush"} & {*re.findall("secret@|sec.ret|hush", str(refused.value))}


def test_a_checkpoint_that_is_new_is_still_new_after_it_was_asked_whether_it_fences(server: str) -> None:
    log = Checkpoint(RemoteDirectory(uri(server, "new/checkpoint")))

    assert log.directory.fences()

    assert log.card() is None


def test_a_file_is_moved_once_however_often_it_is_said(server: str) -> None:
    place = RemoteDirectory(uri(server, "moves"))
    place.write("aside/one", b"1")

    for _ in range(2):
        place.move({"aside/one": "one"})

    assert bytes(place.read("one")) == b"1"
    with pytest.raises(FileNotFoundError, match="two"):
        place.move({"aside/two": "two"})
    assert place.spark_uri == "s3://bucket/moves", "no credentials, and no options of pyarrow's"


class Forgetful(http.server.BaseHTTPRequestHandler):
    """Hand requests on to the server: without their condition, or with their reply lost the first time."""

    behind = ""
    conditions = False
    lose: set[str] = set()  # noqa: RUF012
    protocol_version = "HTTP/1.1"

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "if-none-match"}
        if self.conditions and "If-None-Match" in self.headers:
            headers["If-None-Match"] = self.headers["If-None-Match"]
        line = http.client.HTTPConnection(self.behind)
        line.request(self.command, self.path, body, headers)
        answer = line.getresponse()
        data = answer.read()
        line.close()
        if self.command == "PUT" and self.path in self.lose:
            self.lose.discard(self.path)
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", answer.getheader("Content-Length", str(len(data))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _hand_on

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def between(server: str) -> Iterator[tuple[type[Forgetful], str]]:
    """Put something between driver and server."""
    handler = type("Between", (Forgetful,), {"behind": server, "lose": set()})
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    yield handler, f"127.0.0.1:{proxy.server_port}"
    proxy.shutdown()
    proxy.server_close()


def test_a_store_that_ignores_the_condition_is_found_out(between: tuple[type[Forgetful], str]) -> None:
    handler, address = between
    place = RemoteDirectory(uri(address, "ignores"))

    assert not place.fences()
    handler.conditions = True
    assert place.fences()


def test_a_commit_whose_reply_was_lost_is_ones_own(between: tuple[type[Forgetful], str]) -> None:
    handler, address = between
    handler.conditions = True
    log = Checkpoint(RemoteDirectory(uri(address, "lost")))
    handler.lose.add("/bucket/lost/manifests/000000000001.json")

    log.commit(manifest(1, 7))

    assert not handler.lose, "the reply was lost"
    assert log.manifest(1).term == 7
    with pytest.raises(CheckpointInUse):
        log.commit(manifest(1, 8))


def test_files_in_a_bucket_are_as_on_a_disk(server: str) -> None:
    place = RemoteDirectory(uri(server, "as%20on/a%20disk"))
    assert place.list("offsets") == []
    with pytest.raises(FileNotFoundError):
        place.read("offsets/0")
    place.write("offsets/0", b"0")
    place.write("offsets/.hidden", b"")
    place.write("offsets/deeper/1", pa.py_buffer(b"1"))
    place.write("empty", b"")
    assert place.list("offsets") == ["0", "deeper"]
    assert place.list("") == ["empty", "offsets"]
    assert (place.exists("offsets/0"), place.exists("offsets")) == (True, False)
    assert (place.read("empty").to_pybytes(), place.read("offsets/deeper/1").to_pybytes()) == (b"", b"1")
    with place.open("offsets/deeper/1") as file:
        assert file.read() == b"1", "pyarrow has the same names"
    assert not place.write_new("offsets/0", b"another")
    place.delete(["offsets/0", "offsets/none"])
    assert place.list("offsets") == ["deeper"]
