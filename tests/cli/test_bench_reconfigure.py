"""`ferryman bench reconfigure`: what its figures mean, and a run on very little."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ferryman._cli import app
from ferryman._cli.bench import _load
from ferryman._spark.session.local_cluster import available

RATE, EPOCH_S = 100, 0.5


@pytest.fixture(scope="module")
def latency() -> ModuleType:
    return _load("latency")


def rows_of(latency: ModuleType, seconds: int, held: tuple[float, float] | None = None):
    """Rows of two keys in turn, each with a key group of its own.

    Those of key 1 that are due in `held` wait for its end. An epoch begins every half second, and its rows are done
    0.2 s later.
    """
    ids = np.arange(seconds * RATE)
    due = ids / RATE
    done = np.floor(due / EPOCH_S + 1) * EPOCH_S + 0.2
    if held is not None:
        waits = (ids % 2 == 1) & (due >= held[0]) & (due < held[1])
        done[waits] = np.maximum(done[waits], held[1] + 0.2)
    return latency.Rows(due, done, ids, (ids % 2).astype(str), ids // 2 + 1, ids % 2)


def change_of(latency: ModuleType, rows, ended_s: float):
    return latency.Change(rows, frozenset({1}), 10.1, ended_s, 2.0, 25.0, {"moved_bytes": 0})


def test_a_change_that_nobody_notices_has_no_stoppage(latency):
    found = change_of(latency, rows_of(latency, 30), 14.0).figures()

    assert max(found["stoppage_ms"], found["noise_ms"]) <= 1000 / RATE
    assert found["stabilise_ms"] == 0
    assert found["p99_before_ms"] == pytest.approx(found["p99_during_ms"], abs=1000 / RATE)
    assert (found["exactly_once"], found["in_order"]) == (True, True)


def test_what_was_waiting_when_the_change_was_asked_for_counts_to_it_and_not_to_before(latency):
    calm = change_of(latency, rows_of(latency, 30), 14.0).figures()
    # The rows of key 1 that are due shortly before the request are held through the change.
    held = change_of(latency, rows_of(latency, 30, (10.0, 14.0)), 14.0).figures()

    assert held["p99_before_ms"] == calm["p99_before_ms"]
    assert held["max_ms"] == pytest.approx(4200, abs=1000 / RATE)
    assert held["stoppage_ms"] == pytest.approx(4200 - calm["p99_before_ms"], abs=2000 / RATE)
    assert held["stabilise_ms"] == pytest.approx(4000, abs=500)


def test_of_several_rounds_the_median_counts_and_one_that_is_wrong_shows(latency):
    calm, held = rows_of(latency, 30), rows_of(latency, 30, (10.0, 14.0))
    held.n[2900] = 7
    rounds = [change_of(latency, rows, 14.0) for rows in (calm, held, calm)]

    found = latency.typical(rounds)
    assert found["stoppage_ms"] == rounds[0].figures()["stoppage_ms"]
    assert found["spread"]["stoppage_ms"] == [found["stoppage_ms"], rounds[1].figures()["stoppage_ms"]]
    assert (found["rounds"], found["exactly_once"], found["in_order"]) == (3, True, False)


def test_what_never_came_to_an_end_is_not_left_out_of_the_median(latency):
    rounds = [change_of(latency, rows_of(latency, 30), ended) for ended in (14.0, 24.5, 24.6)]

    assert [change.figures()["stabilise_ms"] for change in rounds] == [0.0, None, None]
    assert latency.typical(rounds)["stabilise_ms"] is None


def test_a_time_in_which_nothing_comes_out_is_not_calm(latency):
    def window(place):
        late = 5000.0 if 1 <= place < 12 else 100.0
        return place * 0.25, late, place * 0.25 + late / 1000

    windows = [window(place) for place in range(40)]

    assert latency.stabilised(windows, 3.0, 120.0) == 2750 + 5000
    assert latency.stabilised(windows[:15], 3.0, 120.0) is None, "nobody looked for two seconds after it"


@pytest.mark.parametrize(
    ("harm", "shows"),
    [
        (lambda rows: rows.n.__setitem__(500, 7), (True, False)),
        (lambda rows: rows.ids.__setitem__(500, 498), (False, True)),
    ],
)
def test_a_wrong_count_and_a_row_that_came_twice_show(latency, harm, shows):
    rows = rows_of(latency, 10)
    harm(rows)

    found = rows.right()
    assert (found["exactly_once"], found["in_order"]) == shows


def test_a_stoppage_below_the_floor_counts_as_the_floor():
    flatness = _load("reconfigure").flatness

    assert flatness([0.0, 0.4, 0.9], 1.0) == 1.0
    assert flatness([0.0, 8.0, 12.0], 1.0) == 12.0, "a miss is not hidden"
    assert flatness([0.0, 8.0, 12.0], 10.0) == 1.2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--sizes", "10 apples"], "10MB,100MB,1GB"),
        (["--sweep", "moons=1,2"], "moons: not among bytes, keys, hosts"),
        (["--sweep", "keys=few"], "not a list of whole numbers"),
        (["--strategies", "teleport"], "teleport: not among"),
        (["--groups", "7"], "four to a host, 8"),
    ],
)
def test_options_that_make_no_sense_are_refused(given, says):
    done = CliRunner().invoke(app, ["bench", "reconfigure", *given], env={"COLUMNS": "200"})

    assert done.exit_code == 2
    assert says in done.output


def test_a_session_that_is_running_is_neither_measured_nor_stopped(spark: SparkSession) -> None:
    done = CliRunner().invoke(app, ["bench", "reconfigure", "--strategies", "push"])

    assert done.exit_code == 1
    assert "a SparkSession is running already" in str(done.exception)
    assert spark.range(3).count() == 3


# With one host there is nowhere to go. That is found out when the job runs and is asked for a change.
FAILS_IN_THE_MIDDLE = """
import os, sys, threading
from pathlib import Path
from ferryman import session
from ferryman._cli.bench import _load
from ferryman._os.processes import below
from ferryman._spark.compat.start import active_context

try:
    _load("reconfigure").run(
        progress=_load("report").Progress(),
        load=_load("open_loop").Load(keys=32, size=100, rate=40.0, hosts=1, groups=8, warm_s=0.0),
        strategies=["push"], sizes=[], sweeps={}, rounds=1, idle=0, chart=None, scratch=Path(sys.argv[1]),
    )
except Exception as error:
    print("failed:", error)
print("context:", active_context())
print("threads:", [thread.name for thread in threading.enumerate() if thread.name.startswith("ferryman")])
print("processes:", sum("spark.deploy." in one.command for one in below(os.getpid())))
print("files:", os.listdir(sys.argv[1]))
print("rows:", session("the next one", "local[1]").range(3).count())
"""


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_benchmark_that_fails_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILS_IN_THE_MIDDLE, str(tmp_path)], capture_output=True, text=True, check=False
    )

    *_, failed, context, threads, processes, files, rows = done.stdout.splitlines()
    assert failed.startswith("failed: [NOTHING_MOVES]"), done.stdout + done.stderr
    assert (context, files) == ("context: None", "files: []")
    # The JVM outlives the sessions of its process, and the next one runs in it.
    assert (threads, processes) == ("threads: ['ferryman-jvm-stderr']", "processes: 1")
    assert rows == "rows: 3", done.stderr


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not available(2), reason="needs several loopback addresses")
def test_the_command_measures_a_change(tmp_path: Path) -> None:
    written, chart = tmp_path / "reconfigure.json", tmp_path / "reconfigure.png"
    tiny = ["--keys", "32", "--bytes", "2000", "--rate", "40", "--groups", "8", "--link-mbit", "10", "--delay-ms", "1"]
    watched = ["--before", "4", "--after", "2", "--warm", "0", "--strategies", "push"]
    results = ["--json", str(written), "--chart", str(chart)]
    # A process has one session, and here that is the tests' own, on no cluster.
    command = [sys.executable, "-c", "from ferryman._cli import app; app()", "bench", "reconfigure"]
    done = subprocess.run([*command, *tiny, *watched, *results], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    raw = json.loads(written.read_text())
    assert raw["link"].startswith("shaped transport")
    push = raw["strategies"]["push"]
    wanted = "stoppage_ms stabilise_ms p99_before_ms p99_during_ms p99_after_ms max_ms moved_bytes duration_ms"
    assert set(wanted.split()) <= push.keys()
    assert (push["exactly_once"], push["in_order"], push["state_equal"]) == (True, True, True)
    assert push["moved_bytes"] > 32 / 2 * 2000 / 2, "state has travelled"
    with chart.with_suffix(".csv").open() as file:
        windows = list(csv.DictReader(file))
    assert {window["strategy"] for window in windows} == {"push"}
    assert min(float(window["second"]) for window in windows) < 0 < max(float(window["second"]) for window in windows)
    assert chart.stat().st_size > 1000
    page = _load("evaluation").page({"strategies": raw})
    assert "| push |" in page
    assert "every strategy: rows and state right | not run: stop_restart, pause_resume" in page
    assert "the part of this page on sweeps | not measured | NO" in page
