"""Who does not know the token costs a server nothing to speak of, whatever he sends and however often he calls."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest
import trustme
from serving import ACCESS, GROUPS, SCHEMAS, TABLES, TOKEN, certificates, expected, fill, start
from until import until

from ferryman._serve import client, gate
from ferryman._serve.auth import AUTHORIZATION, Access
from ferryman._serve.endpoint import Endpoint, ask
from ferryman._serve.registry import Running
from ferryman._serve.wire import Take

LARGE = 256 << 20


def peak(pid: int) -> int:
    """Read the most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


@pytest.fixture
def state_host(tmp_path, log, watched):
    location = start(tmp_path, "a", watched)
    return location, json.loads((tmp_path / "a" / "state-host.json").read_text())["pid"]


@pytest.fixture
def control():
    control = Endpoint({"echo": lambda values: values})
    yield control
    control.shutdown()


@pytest.mark.parametrize("token", [None, "wrong"])
def test_large_requests_of_strangers_are_not_read(state_host, token):
    location, pid = state_host
    before = peak(pid)
    body = pa.py_buffer(bytes(LARGE))
    headers = [] if token is None else [(AUTHORIZATION.encode(), f"Bearer {token}".encode())]

    def call() -> None:
        with flight.connect(location) as peer:
            list(peer.do_action(flight.Action("ping", body), flight.FlightCallOptions(timeout=20, headers=headers)))

    def failing() -> None:
        with pytest.raises((pa.ArrowException, OSError)):
            call()

    calls = [threading.Thread(target=failing) for _ in range(3)]
    for thread in calls:
        thread.start()
    for thread in calls:
        thread.join()

    assert peak(pid) - before < 32 << 20
    assert client.ping(location, ACCESS) == pid


@pytest.mark.parametrize("token", [None, "wrong"])
def test_large_requests_of_those_who_have_a_certificate_and_no_token_are_not_read(tmp_path, log, watched, token):
    ours = certificates(tmp_path / "tls", trustme.CA(), "127.0.0.1")
    location, access = start(tmp_path, "a", watched, tls=ours), Access(TOKEN, ours)
    pid = client.ping(location, access)
    before = peak(pid)
    body = pa.py_buffer(bytes(LARGE))
    headers = [] if token is None else [(AUTHORIZATION.encode(), f"Bearer {token}".encode())]

    with access.connect(location) as peer, pytest.raises((pa.ArrowException, OSError)):
        list(peer.do_action(flight.Action("ping", body), flight.FlightCallOptions(timeout=20, headers=headers)))

    assert peak(pid) - before < 32 << 20
    assert client.ping(location, access) == pid
    # A small request is told what is wrong.
    with access.connect(location) as peer, pytest.raises(flight.FlightUnauthenticatedError):
        list(peer.do_action(flight.Action("ping", b""), flight.FlightCallOptions(timeout=20, headers=headers)))


def test_strangers_who_begin_no_handshake_are_shown_out(tmp_path, log, watched):
    ours = certificates(tmp_path / "tls", trustme.CA(), "127.0.0.1")
    location, access = start(tmp_path, "a", watched, tls=ours), Access(TOKEN, ours)
    port = int(location.rpartition(":")[2])
    with contextlib.ExitStack() as staying:
        silent = [staying.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(80)]
        silent[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")

        assert client.ping(location, access)
        assert all(cut_off(caller, wait=20) for caller in (silent[0], silent[-1]))


def test_large_answers_and_requests_pass_an_encrypted_gate(tmp_path, log, watched):
    ours = certificates(tmp_path / "tls", trustme.CA(), "127.0.0.1")
    location, access = start(tmp_path, "a", watched, tls=ours), Access(TOKEN, ours)
    fill(tmp_path, "a", log, 4)
    what = Take(TABLES, tuple(range(GROUPS)))

    for _ in range(3):
        found = dict(client.take(location, access, what, SCHEMAS))
        assert {group: len(mains["Counts"][0]) for group, mains in found.items()} == {
            group: len(expected(log, [group], 4)) for group in range(GROUPS)
        }
    with access.connect(location) as peer, pytest.raises(pa.ArrowException, match="knows no"):
        list(peer.do_action(flight.Action("x", bytes(32 << 20)), access.options(60)))
    assert client.ping(location, access)


def test_a_stranger_with_a_small_request_is_told_what_is_wrong(state_host, control):
    for location in (state_host[0], control.location):
        with flight.connect(location) as peer, pytest.raises(flight.FlightUnauthenticatedError):
            list(peer.do_action(flight.Action("ping", b""), flight.FlightCallOptions(timeout=20)))


def test_the_control_server_has_the_same_gate(control):
    job = Running("j", "c", 1, control.location, control.token)
    assert ask(job, "echo", large="x" * (8 << 20))["large"] == "x" * (8 << 20)

    with pytest.raises((pa.ArrowException, OSError)), flight.connect(control.location) as peer:
        list(peer.do_action(flight.Action("echo", bytes(LARGE)), flight.FlightCallOptions(timeout=20)))
    with flight.connect(f"grpc+unix://{control._socket}") as peer, pytest.raises(flight.FlightUnauthenticatedError):
        list(peer.do_action(flight.Action("echo", b"{}"), flight.FlightCallOptions(timeout=20)))
    assert control._socket.parent.stat().st_mode & 0o077 == 0
    assert ask(job, "echo", a=1) == {"a": 1}


def test_strangers_who_only_stay_are_shown_out(state_host, control, monkeypatch):
    monkeypatch.setattr(gate, "STRANGER_S", 0.5)
    port = int(control.location.rpartition(":")[2])
    with contextlib.ExitStack() as staying:
        silent = [
            staying.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(gate.MOST_STRANGERS + 8)
        ]
        # Those beyond the limit at once, the others when their time is over.
        for caller in silent:
            caller.settimeout(20)
            with contextlib.suppress(ConnectionError):
                while caller.recv(4096):
                    pass
    until(lambda: not control._gate._callers, "some are still there", 20)
    assert ask(Running("j", "c", 1, control.location, control.token), "echo", a=1) == {"a": 1}


def test_a_caller_with_the_token_is_let_in_while_strangers_stay(control):
    port = int(control.location.rpartition(":")[2])
    with contextlib.ExitStack() as staying:
        for _ in range(gate.MOST_STRANGERS):
            last = staying.enter_context(socket.create_connection(("127.0.0.1", port)))

        for number in range(3):
            assert ask(Running("j", "c", 1, control.location, control.token), "echo", a=number) == {"a": number}
        # They were all there meanwhile, as far as there is room.
        assert not cut_off(last)
        assert len(control._gate._strangers) <= 64


def test_who_calls_from_one_address_does_not_take_the_places_of_others(control, monkeypatch):
    port = int(control.location.rpartition(":")[2])
    monkeypatch.setattr(gate, "MOST_STRANGERS", 6)

    def call(address):
        return staying.enter_context(socket.create_connection(("127.0.0.1", port), source_address=(address, 0)))

    def settled(strangers):
        until(lambda: len(control._gate._strangers) == strangers, f"not {strangers} are there", 20)

    with contextlib.ExitStack() as staying:
        other = call("127.0.0.2")
        many = [call("127.0.0.3") for _ in range(20)]
        settled(6)
        late = call("127.0.0.4")

        assert all(cut_off(caller, wait=20) for caller in many[:16])
        assert not any(cut_off(caller) for caller in (other, late, *many[16:]))


def cut_off(caller, wait=0.2):
    """Tell whether the gate has closed a connection; it sends nothing before, or what a server begins with."""
    caller.settimeout(wait)
    try:
        while caller.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_a_stranger_who_speaks_on_and_on_is_cut_off(control):
    port = int(control.location.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.settimeout(20)
        caller.sendall(gate._PREFACE)
        sent = 0
        with contextlib.suppress(ConnectionError):
            # Frames that are allowed at any time and cost the sender nothing.
            while sent < 64 << 20:
                caller.sendall(b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + bytes(8))
                sent += 17
        assert sent < 8 << 20


def test_a_token_is_found_plain_and_coded():
    plain, coded = gate._shown("Bearer 00ff")
    assert plain == b"\x0bBearer 00ff"
    # "B" is 1011101, "e" 00101, "a" 00011: RFC 7541, appendix B.
    assert f"{int.from_bytes(coded, 'big'):0{8 * len(coded)}b}".startswith("10111010010100011")


def test_main_copies_come_through_the_gate_whole(tmp_path, log, watched, state_host):
    fill(tmp_path, "a", log, 4).close()

    found = dict(client.take(state_host[0], ACCESS, Take(TABLES, tuple(range(GROUPS))), SCHEMAS))

    rows = pa.concat_tables([mains["Counts"][0] for mains in found.values()])
    assert rows.num_rows == len(expected(log, list(range(GROUPS)), 4))
