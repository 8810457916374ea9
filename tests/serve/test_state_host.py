"""State hosts as real processes: what they give, what they refuse, when they end."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest
import trustme
from serving import ACCESS, GROUPS, SCHEMAS, TABLES, TOKEN, certificates, content, expected, fill, gone, held, start
from until import until
from written_log import KEY

from ferryman._log.files.cards import card_of
from ferryman._model.errors import PeerFailed
from ferryman._serve import client, launch
from ferryman._serve.auth import Access
from ferryman._serve.state_host import Configuration
from ferryman._serve.wire import Bring, Drop, Reorder, Take


def test_groups_come_from_the_peer_and_what_happened_since_from_the_checkpoint(tmp_path, log, watched):
    fill(tmp_path, "a", log, 3)
    a, b = start(tmp_path, "a", watched), start(tmp_path, "b", watched)

    told = list(client.bring(b, ACCESS, Bring(TABLES, (5, 1), 4, a)))

    assert [line["group"] for line in told] == [5, 1], "in the order asked for"
    assert [line["from_peer"] for line in told] == [1, 1]
    assert all(line["bytes"] > 0 for line in told)
    store = held(tmp_path, "b")
    assert store.epochs()[[1, 5]].tolist() == [4, 4]
    assert store.epochs()[0] == -1
    assert content(store, [1, 5], 4) == expected(log, [1, 5], 4)


def test_what_is_not_yet_sent_comes_in_the_order_told_last(tmp_path, log, watched):
    fill(tmp_path, "a", log, 4)
    a, b = start(tmp_path, "a", watched, bytes_per_s=20_000.0), start(tmp_path, "b", watched)
    asked, newer = tuple(range(GROUPS)), tuple(reversed(range(GROUPS)))

    came = []
    for line in client.bring(b, ACCESS, Bring(TABLES, asked, 4, a, lane="l")):
        came.append(line["group"])
        if len(came) == 1:
            client.reorder(a, ACCESS, Reorder("l", newer))

    sent = next(number for number, group in enumerate(came) if group != asked[number])
    assert came[sent:] == [group for group in newer if group not in came[:sent]]
    assert content(held(tmp_path, "b"), list(asked), 4) == expected(log, list(asked), 4)
    # Of what is over, or never was, nobody has to know.
    client.reorder(a, ACCESS, Reorder("l", newer))


def test_asked_again_it_only_catches_up(tmp_path, log, watched):
    fill(tmp_path, "a", log, 4)
    a, b = start(tmp_path, "a", watched), start(tmp_path, "b", watched)
    list(client.bring(b, ACCESS, Bring(TABLES, (2,), 4, a)))
    log.commit({"Counts": {"s-1": 7, "s-2": None}})

    assert [line["from_peer"] for line in client.bring(b, ACCESS, Bring(TABLES, (2,), 5, a))] == [0]
    assert content(held(tmp_path, "b"), [2], 5) == expected(log, [2], 5)


def test_with_no_peer_it_all_comes_from_the_checkpoint(tmp_path, log, watched):
    b = start(tmp_path, "b", watched)

    told = list(client.bring(b, ACCESS, Bring(TABLES, tuple(range(GROUPS)), 4)))
    assert [line["from_peer"] for line in told] == [0] * GROUPS
    assert content(held(tmp_path, "b"), list(range(GROUPS)), 4) == log.states[4]["Counts"]


def test_it_goes_by_the_card_of_its_run_whatever_the_checkpoint_has(tmp_path, log, watched):
    card = log.checkpoint.job_card()
    # Of the declaration before, or of a driver that woke up late.
    log.checkpoint.create(replace(card, tables={"Counts": card_of("Counts", KEY, pa.schema([("n", pa.int64())]))}))
    b = start(tmp_path, "b", watched, card=card)

    list(client.bring(b, ACCESS, Bring(TABLES, tuple(range(GROUPS)), 4)))
    assert content(held(tmp_path, "b"), list(range(GROUPS)), 4) == log.states[4]["Counts"]


def test_what_is_dropped_is_gone(tmp_path, log, watched):
    b = start(tmp_path, "b", watched)
    list(client.bring(b, ACCESS, Bring(TABLES, (1, 2), 4)))
    client.drop(b, ACCESS, Drop(TABLES, (1,)))

    assert held(tmp_path, "b").epochs()[[1, 2]].tolist() == [-1, 4]


def test_who_does_not_know_the_token_gets_nothing(tmp_path, log, watched):
    fill(tmp_path, "a", log, 4)
    a = start(tmp_path, "a", watched)

    for token in ("", "another", TOKEN + "x"):
        with pytest.raises(PeerFailed, match="did not bring this job's token"):
            list(client.take(a, Access(token), Take(TABLES, (0,)), SCHEMAS))
        with pytest.raises(PeerFailed, match="did not bring this job's token"):
            client.drop(a, Access(token), Drop(TABLES, (0,)))
    assert held(tmp_path, "a").epochs()[0] == 4


@pytest.mark.parametrize(
    ("take", "says"),
    [
        (Take({"Other": "lmdb"}, (0,)), "no table 'Other'"),
        (Take({"../../../etc": "lmdb"}, (0,)), "no table"),
        (Take({"/etc/passwd": "lmdb"}, (0,)), "no table"),
        (Take({"Counts": "../lmdb"}, (0,)), "no store"),
        (Take(TABLES, (GROUPS,)), "key groups 0 to 7"),
        (Take(TABLES, (0, -1)), "key groups 0 to 7"),
    ],
)
def test_names_it_was_not_asked_to_serve_are_refused(tmp_path, log, watched, take, says):
    a = start(tmp_path, "a", watched)

    with pytest.raises(PeerFailed, match=says):
        list(client.take(a, ACCESS, take, SCHEMAS))
    assert client.ping(a, ACCESS) > 0


def test_a_table_that_is_asked_for_as_another_store_stays_what_it_is(tmp_path, log, watched):
    fill(tmp_path, "a", log, 4).close()
    a = start(tmp_path, "a", watched)

    with pytest.raises(PeerFailed, match="is in a lmdb store, not in columnar"):
        list(client.take(a, ACCESS, Take({"Counts": "columnar"}, (0,)), SCHEMAS))
    assert held(tmp_path, "a").epochs().tolist() == [4] * GROUPS


def test_a_group_that_is_not_there_is_left_out(tmp_path, log, watched):
    a = start(tmp_path, "a", watched)

    assert list(client.take(a, ACCESS, Take(TABLES, (3, 1)), SCHEMAS)) == [(3, {}), (1, {})]


def test_what_is_no_request_is_refused_and_harms_nothing(tmp_path, log, watched):
    a = start(tmp_path, "a", watched)
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])

    with flight.connect(a) as peer:
        for body in (b"", b"\xff\xfe", b"[1, 2]", b'{"table": 1}', b'{"groups": ["x"]}'):
            with pytest.raises(flight.FlightServerError):
                list(peer.do_action(flight.Action("bring", body), options))
        with pytest.raises(flight.FlightServerError, match="knows no"):
            list(peer.do_action(flight.Action("format", b""), options))
    assert client.ping(a, ACCESS) > 0


def test_what_is_dropped_while_it_comes_does_not_come_back(tmp_path, log, watched):
    fill(tmp_path, "a", log, 4)
    a, b = start(tmp_path, "a", watched, bytes_per_s=20_000.0), start(tmp_path, "b", watched)
    asked = tuple(range(GROUPS))
    coming = client.bring(b, ACCESS, Bring(TABLES, asked, 4, a))
    first = next(coming)["group"]
    client.drop(b, ACCESS, Drop(TABLES, asked))

    with pytest.raises(PeerFailed, match="before everything was there"):
        list(coming)
    assert held(tmp_path, "b").epochs().tolist() == [-1] * GROUPS, f"{first} or another came back"


def test_when_its_job_ends_it_removes_its_home_and_ends(tmp_path, log, watched):
    a = start(tmp_path, "a", watched)
    pid = client.ping(a, ACCESS)
    with pytest.raises(PeerFailed, match="did not bring this job's token"):
        client.end(a, Access("another"))

    # It may be gone before its answer is.
    with contextlib.suppress(PeerFailed):
        client.end(a, ACCESS)

    until(lambda: gone(pid), "the state host runs on", 20)
    assert not (tmp_path / "a").exists()


def test_it_sends_no_faster_than_it_may(tmp_path, log, watched):
    for epoch in range(3):
        log.commit({"Counts": {f"{'x' * 200}-{epoch}-{number}": number for number in range(2000)}})
    fill(tmp_path, "a", log, log.epoch)
    quick = start(tmp_path, "a", watched)
    began = time.monotonic()
    ((_, mains),) = client.take(quick, ACCESS, Take(TABLES, (0,)), SCHEMAS)
    unbounded = time.monotonic() - began
    fill(tmp_path, "slow", log, log.epoch)
    slow = start(tmp_path, "slow", watched, bytes_per_s=mains["Counts"][0].nbytes * 2)
    began = time.monotonic()
    list(client.take(slow, ACCESS, Take(TABLES, (0,)), SCHEMAS))

    assert time.monotonic() - began > max(0.4, unbounded)


def test_there_is_one_per_home_and_it_ends_with_what_it_watches(tmp_path, log, watched):
    first = start(tmp_path, "a", watched)
    assert start(tmp_path, "a", watched) == first
    pid = client.ping(first, ACCESS)

    os.kill(watched.pid, 9)
    watched.wait()

    until(lambda: gone(pid), "the state host runs on", 20)
    with pytest.raises(PeerFailed):
        client.ping(first, ACCESS)


def test_one_that_was_killed_is_started_again(tmp_path, log, watched):
    first = start(tmp_path, "a", watched)
    os.kill(client.ping(first, ACCESS), 9)
    second = start(tmp_path, "a", watched)

    assert client.ping(second, ACCESS) > 0


def test_the_token_is_on_no_command_line(tmp_path, log, watched):
    pid = client.ping(start(tmp_path, "a", watched), ACCESS)

    assert TOKEN not in Path(f"/proc/{pid}/cmdline").read_text()
    assert TOKEN not in Path(f"/proc/{pid}/environ").read_text()
    assert TOKEN not in (tmp_path / "a" / "state-host.json").read_text()
    assert json.loads((tmp_path / "a" / "state-host.json").read_text()).keys() == {"location", "pid"}
    assert "token" in asdict(Configuration(address="", home="", checkpoint="", token="", watched=0))


def test_an_encrypted_line_is_for_those_with_a_certificate_of_the_same_authority(tmp_path, log, watched):
    authority = trustme.CA()
    ours = certificates(tmp_path / "tls", authority, "127.0.0.1")
    theirs = certificates(tmp_path / "other", trustme.CA(), "127.0.0.1")
    a, b = (start(tmp_path, name, watched, tls=ours) for name in "ab")
    assert a.startswith("grpc+tls://")
    access = Access(TOKEN, ours)
    fill(tmp_path, "a", log, 4)
    told = list(client.bring(b, access, Bring(TABLES, (5, 1), 4, a)))
    assert [line["from_peer"] for line in told] == [1, 1]
    for wrong in (Access(TOKEN), Access(TOKEN, theirs), Access("another", ours)):
        with pytest.raises(PeerFailed):
            client.ping(a, wrong)
    # What is sent is not what is written: a caller that speaks no TLS gets nowhere.
    with pytest.raises(PeerFailed):
        client.ping(a.replace("grpc+tls", "grpc+tcp"), ACCESS)
    assert client.ping(a, access) > 0


def test_a_certificate_of_another_host_is_not_taken(tmp_path, log, watched):
    authority = trustme.CA()
    ours = certificates(tmp_path / "tls", authority, "127.0.0.1")
    other = certificates(tmp_path / "other", authority, "10.9.9.9")
    configuration = Configuration(
        address="127.0.0.1",
        home=str(tmp_path / "a"),
        checkpoint=str(tmp_path / "checkpoint"),
        token=TOKEN,
        watched=watched.pid,
        tls=other,
    )
    assert launch.begin(configuration) is None
    file = tmp_path / "a" / "state-host.json"
    until(file.exists, "no state host has come up", 60)
    with pytest.raises(PeerFailed, match="state host at grpc"):
        client.ping(json.loads(file.read_text())["location"], Access(TOKEN, ours))
