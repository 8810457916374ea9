"""A running job is found and changed from the shell; who may not is refused, and what makes no sense too."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ferryman import Ferry, Operator, Value, sinks, sources
from ferryman._cli import app
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._model.errors import PeerFailed
from ferryman._serve import registry
from ferryman._serve.endpoint import ask


class Count(Operator):
    n = Value(int, 0)
    output = "key string, n long"

    def process(self, key, row):
        self.n += 1
        yield key, self.n


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("FERRYMAN_JOBS", str(tmp_path / "jobs"))
    return tmp_path / "jobs"


@pytest.fixture
def job(spark, tmp_path, place):
    frame = sources.generator(spark, rows_per_epoch=50, keys=20, key_prefix="s-")
    stream = Ferry(spark, str(tmp_path / "c"), groups=16).stream(frame).key_by("key").process(Count)
    job = stream.write(sinks.none()).start("counting", instances=2)
    job.log = Checkpoint(directory(str(tmp_path / "c")))
    job.wait_for(lambda: job.epoch >= 2, timeout=60)
    yield job
    if job.active:
        job.stop()


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


def test_a_job_is_listed_looked_at_and_changed(job, place):
    (listed,) = json.loads(run("jobs", "--json"))
    assert listed["job"] == "counting"
    assert listed["instances"] == 2
    assert "counting: epoch" in run("jobs")
    assert re.match(
        r"2 -> 4 instances: \d+ key groups move, about [\d,]+ bytes.* in about [\d.]+ s",
        run("plan", "--instances", "4"),
    )
    assert "nothing was changed" in run("history")

    assert "2 -> 4 instances" in run("rescale", "4")
    assert job.instances == 4
    assert "done" in run("move", "0,1", "--to", "3", "--job", "counting", "--strategy", "push")
    assert job.log.latest().routing.owner[:2] == (3, 3)
    assert "no key is pinned" in run("pins")
    assert "no key is hot" in run("hot-keys")
    to = str((job.log.latest().routing.owner[job.group_of("s-1")] + 1) % 4)
    assert "0 key groups and 1 single keys move" in run("plan", "--key", "s-1", "--to", to)
    assert "keys 's-1'" in run("move", "--key", "s-1", "--to", to)
    assert run("pins") == f"s-1: instance {to}\n"
    assert json.loads(run("hot-keys", "--json")) == []
    assert "done" in run("unpin")
    kinds = [change["kind"] for change in json.loads(run("history", "--json"))]
    assert kinds == ["rescale", "move", "move", "unpin"]
    assert "no change is under way" in run("abort")


def test_whoever_asks_for_what_is_so_already_is_told_and_nothing_has_failed(job):
    assert "nothing moves" in run("move", "0", "--to", str(job.log.latest().routing.owner[0]))
    assert job.move(range(16), to=0).wait(60)
    (here,) = {instance["host"] for instance in json.loads(run("sites", "--json"))}
    assert f"instance 0: {here}; 16 key groups" in run("sites")
    assert "of the state now" in run("plan", "--by", "bytes")
    assert "done" in run("rebalance", "--by", "bytes")
    assert "nothing moves: the load of the instances is even already" in run("rebalance", "--by", "bytes")
    assert json.loads(run("plan", "--by", "bytes", "--json"))["moves"] == []
    assert "nothing moves" in run("move", "0,1", "--to", here)
    assert "no host or site 'mars'" in run("move", "0", "--to", "mars", code=1)
    assert "give one of rows, busy, bytes" in run("rebalance", "--by", "hats", code=1)


def test_what_the_job_refuses_is_refused_here_too(job):
    assert "from 1 to 16" in run("rescale", "99", code=1)
    assert "INVALID_PLAN" in run("move", "77", "--to", "0", code=1)
    assert "does not exist" in run("move", "--key", "nobody", "--to", "0", code=1)
    assert "give groups or keys" in run("move", "--to", "0", code=1)
    assert "give one of" in run("rescale", "3", "--strategy", "teleport", code=1)
    assert "counting" in run("rescale", "3", "--job", "another", code=1)
    assert job.instances == 2


def test_only_its_user_can_reach_a_job(job, place):
    (file,) = place.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    (one,) = registry.running()
    assert one.location.startswith("grpc+tcp://127.0.0.1:")

    with pytest.raises(PeerFailed, match="did not bring this job's token"):
        ask(registry.Running(one.job, one.checkpoint, one.pid, one.location, "guessed"), "status")
    with pytest.raises(PeerFailed, match="knows no"):
        ask(one, "format_disk")


def test_a_job_that_has_ended_is_not_listed_any_more(job, place):
    job.stop()

    assert list(place.glob("*.json")) == []
    assert "no job runs" in run("jobs")
    assert "no job runs" in run("rescale", "3", code=1)


def test_what_a_killed_driver_left_is_removed(place):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    registry.announce(registry.Running("dead", "c", gone.pid, "grpc+tcp://127.0.0.1:1", "t" * 32))
    registry.announce(registry.Running("alive", "c", os.getpid(), "grpc+tcp://127.0.0.1:1", "u" * 32))

    assert [running.job for running in registry.running()] == ["alive"]
    assert len(list(place.glob("*.json"))) == 1


def test_a_process_that_got_the_number_of_a_killed_driver_is_not_taken_for_its_job(job, place):
    # Nobody who listens there is the job, whoever has its number now.
    registry.announce(registry.Running("dead", "c", os.getpid(), "grpc+tcp://127.0.0.1:1", "t" * 32))

    said = run("jobs")
    assert "counting" in said
    assert "dead" not in said


def test_a_job_that_does_not_answer_is_listed_as_such(place, monkeypatch):
    monkeypatch.setattr("ferryman._cli.jobs._STATUS_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        location = f"grpc+tcp://127.0.0.1:{deaf.getsockname()[1]}"
        registry.announce(registry.Running("stuck", "c", os.getpid(), location, "t" * 32))

        assert "stuck: does not answer (" in run("jobs")
        (one,) = json.loads(run("jobs", "--json"))
        assert (one["job"], one["pid"]) == ("stuck", os.getpid())
        assert one["silent"]
