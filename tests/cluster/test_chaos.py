"""Half a minute of `ferryman chaos`; and that its schedule is a function of the seed, and its faults are real."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from standalone import available

from ferryman._cli.bench import _load


def test_a_seed_gives_the_same_faults_again_and_a_longer_campaign_begins_with_a_shorter_one():
    chaos = _load("chaos_schedule")
    short, long = chaos.schedule(5, 10, 8), chaos.schedule(5, 30, 8)

    assert short == chaos.schedule(5, 10, 8)
    assert long[: len(short)] == short
    assert chaos.schedule(6, 10, 8)[:20] != short[:20]
    assert [fault.number for fault in long] == list(range(1, len(long) + 1))
    assert [fault.at_s for fault in long] == sorted(fault.at_s for fault in long)


def test_every_kind_comes_before_any_comes_again_too_often():
    chaos = _load("chaos_schedule")
    deck = sum(kind.often for kind in chaos.KINDS.values())
    faults = chaos.schedule(1, 60, 5)

    for kind, facts in chaos.KINDS.items():
        assert sum(fault.kind == kind for fault in faults[:deck]) == facts.often
    assert all(low <= fault.lasts_s <= high for fault in faults for low, high in [chaos.KINDS[fault.kind].lasts_s])
    assert set(_load("chaos_faults").STRIKES) == set(chaos.KINDS)


def test_the_time_without_an_epoch_is_counted_from_the_commit_before_a_fault():
    watch = _load("chaos_watch")

    assert watch.stood_still_s([1.0, 2.0, 9.0, 10.0, 11.0], 2.5, 3.0) == (6.5, 7.0)
    # It was lifted at 20: what came after that counts too.
    assert watch.stood_still_s([1.0, 2.0, 3.0, 26.0, 27.0], 2.5, 20.0) == (0.5, 23.0)
    assert watch.stood_still_s([1.0, 2.0], 2.5, 3.0) == (None, None)
    samples = [watch.Sample(60.0 * n, 1 + n // 20, 100.0 + 2 * (n % 20), 0.0, 5, 5) for n in range(40)]
    assert watch.slope(samples, "rss_mb") == pytest.approx(2.0)
    assert watch.slope(samples, "threads") == 0.0
    assert watch.slope(samples[:5], "rss_mb") is None


def test_a_line_of_a_process_is_muted_and_torn_while_its_other_end_knows_nothing():
    lines = _load("chaos_lines")
    if not lines.available():
        pytest.skip("this system does not give sockets of a process to others")
    echo = (
        "import socket; listening = socket.create_server(('127.0.0.1', 0));"
        "print(listening.getsockname()[1], flush=True); line, _ = listening.accept(); listening.close()\n"
        "while True: line.sendall(line.recv(10))"
    )
    # Not forked: that would have the sockets of this process as well.
    child = subprocess.Popen([sys.executable, "-c", echo], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    with socket.create_connection(("127.0.0.1", int(child.stdout.readline())), timeout=10) as line:
        line.sendall(b"1")
        assert line.recv(10) == b"1"
        muted = lines.Muted(lambda: [child.pid], lines.NOTHING)
        line.sendall(b"2")
        line.settimeout(0.3)
        with pytest.raises(TimeoutError):
            line.recv(10)
        muted.lift()
        line.settimeout(10)
        assert line.recv(10) == b"2"
        assert lines.tear([child.pid]) == 1
        with pytest.raises(ConnectionResetError):
            line.recv(10)
    child.communicate(timeout=30)


def test_one_file_of_a_checkpoint_is_damaged_at_a_time(tmp_path):
    damage = _load("chaos_damage").Damage(tmp_path)
    for name in ("snapshots/000000000009.json", "deltas/000000000008-T-0-ab.arrow", "deltas/000000000009-T-0-cd.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"0123456789")
    covered = tmp_path / "deltas/000000000008-T-0-ab.arrow"

    assert damage.flip("delta", 0.7).startswith("deltas/000000000008-T-0-ab.arrow, bit ")
    whole, damaged = (int.from_bytes(some, "big") for some in (b"0123456789", covered.read_bytes()))
    assert bin(whole ^ damaged).count("1") == 1
    assert damage.flip("snapshot", 0.1) == ""
    covered.unlink()
    assert damage.flip("snapshot", 0.1).startswith("snapshots/000000000009.json, bit ")
    (tmp_path / "snapshots/000000000009.json").write_bytes(b"0123456789")
    assert damage.settled()
    assert (damage.mended, damage.forgotten) == (1, 1)


@pytest.mark.cluster
@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not available(), reason="this machine has only one loopback address")
def test_whatever_goes_wrong_for_half_a_minute_every_sink_is_exact_and_nothing_is_left(tmp_path):
    chaos, report = _load("chaos"), _load("report")
    kinds = tuple(_load("chaos_schedule").KINDS)

    result = chaos.run(progress=report.Progress(), minutes=0.6, seed=4, every=4, hosts=2, kinds=kinds, scratch=tmp_path)

    assert chaos.faults_of(result) == []
    assert result["exact"]
    # Those of the first ten that need nothing but the cluster; a state host is there only once a plan has run.
    struck = {fault["kind"] for fault in result["faults"] if fault["what"]}
    assert struck >= {"host killed", "checkpoint disk full", "host slowed", "host cut off"}
