"""`ferryman simulate`: what the autoscaler would decide, and what comes of it."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from ferryman._cli import app


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["simulate", "--hours", "0.3", *words])
    assert done.exit_code == code, done.output
    return done.output


def test_it_says_what_was_decided_and_what_came_of_it() -> None:
    said = run("--load", "step", "--high", "9000")

    assert "scale out, 1 -> 2 instances: the busiest of 1 instances need" in said
    assert "99 of 100 rows took" in said


def test_it_gives_json_and_the_same_for_the_same_seed() -> None:
    words = ("--load", "spike", "--policy", "latency", "--latency", "2", "--json")
    found = json.loads(run(*words))

    assert found == json.loads(run(*words))
    assert {"p99_s", "instance_seconds", "decisions"} <= set(found)


def test_what_makes_no_sense_is_refused() -> None:
    assert "flash-crowd" in run("--load", "strange", code=1)
    assert "--high above --rate" in run("--rate", "10", "--high", "1", code=1)
    assert "true-rates, seep, latency" in run("--policy", "ds2", code=1)
