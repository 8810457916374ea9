"""A job that chooses its number of instances by itself, on Spark: it grows with its load, and its results are right."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter

import pytest
from pyspark import cloudpickle
from typer.testing import CliRunner

from ferryman import Autoscale, Ferry, Operator, Pool, Value, sinks, sources
from ferryman._cli import app
from ferryman.errors import CorruptCheckpoint, InvalidConfiguration

cloudpickle.register_pickle_by_value(sys.modules[__name__])

QUICK = {"window": "2 seconds", "scale_out_after": "1 second", "cool_down": "1 second", "scale_in_after": "1 hour"}


def slow_count(flag: str) -> type[Operator]:
    class SlowCount(Operator):
        """Count rows, and take twelve milliseconds for each from when a file is there: more than all else takes."""

        n = Value(int, 0)
        output = "key string, n long"

        def process(self, key, row):
            if os.path.exists(flag):
                time.sleep(0.012)
            self.n += 1
            yield key, self.n

    return SlowCount


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("FERRYMAN_JOBS", str(tmp_path / "jobs"))
    return tmp_path


def started(spark, place, autoscale, **options):
    frame = sources.generator(spark, rows_per_epoch=120, keys=40, key_prefix="s-")
    ferry = Ferry(spark, str(place / "c"), groups=16, autoscale=autoscale, **options)
    stream = ferry.stream(frame).key_by("key").process(slow_count(str(place / "slow")))
    trigger = {"processingTime": "500 milliseconds"}
    shown = sinks.memory()
    job = stream.write(shown).start("scaled", instances=1, trigger=trigger)
    job.shown = shown
    return job


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


def test_a_job_whose_load_steps_up_is_scaled_out_by_itself_and_counts_right(spark, place, capsys) -> None:
    job = started(spark, place, Autoscale(max=2, **QUICK))
    try:
        job.wait_for(lambda: job.epoch >= 6, timeout=60)
        assert job.decisions() == []
        (place / "slow").touch()
        assert job.wait_for(lambda: any(decision.kind == "done" for decision in job.decisions()), timeout=60)
        since = job.epoch
        job.wait_for(lambda: job.epoch >= since + 3, timeout=60)

        assert job.instances == 2
        out, done = job.decisions()[-2:]
        assert (out.kind, out.before, out.after) == ("scale out", 1, 2)
        assert out.figures["utilisation"] > 0.6
        assert (done.kind, done.after) == ("done", 2)
        job.explain()
        assert "scale out, 1 -> 2" in capsys.readouterr().out or "done, 1 -> 2" in job.scaling()
        assert "What holds the job back" in job.scaling()
        assert "done, 1 -> 2 instances" in run("decisions")
    finally:
        job.stop()
    assert "ferryman-autoscale" not in {thread.name for thread in threading.enumerate()}
    counted = {row["key"]: row["n"] for row in job.state("SlowCount").to_arrow().to_pylist()}
    assert sum(counted.values()) == sum(epoch.rows for epoch in job.progress())
    assert counted == dict(Counter(row["key"] for row in job.shown.rows()))


@pytest.mark.slow
def test_a_running_job_is_told_to_scale_and_not_to_from_the_shell(spark, place) -> None:
    (place / "slow").touch()
    job = started(spark, place, None)
    try:
        job.wait_for(lambda: job.epoch >= 2, timeout=60)
        assert run("autoscale") == "autoscaling is off.\n"
        assert job._autoscaling is None
        said = run("autoscale", "--max", "2", "--dry-run", "--window", "1 second")
        assert said.startswith("autoscaling (dry run), 1 to 2 instances")
        assert job.wait_for(lambda: bool(job.decisions()), timeout=60)

        assert job.instances == 1
        assert "would scale out, 1 -> 2 instances" in run("decisions")
        assert run("autoscale", "--off") == "autoscaling is off.\n"
        decided = len(job.decisions())
        run("autoscale", "--max", "2", "--dry-run", "--window", "1 second")
        assert job.wait_for(lambda: len(job.decisions()) > decided, timeout=60)
        assert "[INVALID_CONFIGURATION]" in CliRunner().invoke(app, ["autoscale", "--min", "0"]).output
        assert "latency" in CliRunner().invoke(app, ["autoscale", "--policy", "latency"]).output
    finally:
        job.stop()
    with pytest.raises(InvalidConfiguration, match="has ended"):
        job.autoscale(Autoscale())


def test_decisions_that_were_altered_are_refused(spark, place) -> None:
    job = started(spark, place, None)
    job.stop()
    (place / "c" / "decisions").mkdir()
    (place / "c" / "decisions" / "000000000001.json").write_text('{"checksum":"0","body":{"decisions":[]}}\n')

    with pytest.raises(CorruptCheckpoint, match=r"decisions/000000000001\.json"):
        job.decisions()


def test_what_are_no_options_is_refused(spark, place) -> None:
    with pytest.raises(InvalidConfiguration, match="autoscale='on'"):
        Ferry(spark, str(place / "c"), autoscale="on")


def test_a_pool_is_refused_where_there_are_no_executors_to_ask_for(spark, place) -> None:
    with pytest.raises(InvalidConfiguration, match=r"pool=4: give ferryman.Pool"):
        Ferry(spark, str(place / "c"), pool=4)
    with pytest.raises(InvalidConfiguration, match=r"on local\[2\], where there are no executors to ask for"):
        Ferry(spark, str(place / "c"), pool=Pool(max=2))
