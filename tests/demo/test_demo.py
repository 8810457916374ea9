"""The demo as a user runs it: both kills happen, the result is equal, and an altered one is found out."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from until import until

from ferryman._os.processes import below, processes

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]

COMMAND = [sys.executable, "-c", "from ferryman._cli import app; app()", "demo"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the demo once, small; its JSON, what it printed, and where it went."""
    place = tmp_path_factory.mktemp("demo")
    out, report = place / "with a space", place / "result.json"
    done = subprocess.run(
        [*COMMAND, "--seconds", "12", "--rate", "600", "--sensors", "50", "--out", str(out), "--json", str(report)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {**json.loads(report.read_text()), "printed": done.stdout, "errors": done.stderr}


def test_every_operator_equals_the_batch(run: dict[str, Any]) -> None:
    assert run["equal"]
    assert [operator["operator"] for operator in run["operators"]] == ["RunningAverage", "rooms", "Alarms"]
    for operator in run["operators"]:
        assert operator["equal"]
        assert operator["rows_in"] == operator["expected_rows_in"] == 7200
        assert operator["total"] == operator["expected_total"] > 0
        assert operator["wrong_rows"] == operator["wrong_state"] == 0
    assert run["operators"][0]["rows_out"] == 7200
    assert run["state"]["keys"] == 50 + 40 + 50


def test_a_worker_and_the_driver_were_killed_at_work(run: dict[str, Any]) -> None:
    worker, driver = run["kills"]

    assert worker["victim"] == "Python worker"
    assert worker["redone"], "Spark's log tells of a task whose worker has gone"
    assert driver["victim"] == "driver"
    assert len(driver["process_ids"]) == 2, "the driver and its JVM"
    assert worker["after_epoch"] < driver["after_epoch"] < run["epochs"]
    assert worker["recovery_s"] > 0
    assert driver["recovery_s"] > 0
    assert (Path(run["out"]) / "logs" / "driver-2.log").exists()


def test_it_tells_the_story_in_plain_lines_when_piped(run: dict[str, Any]) -> None:
    assert "\x1b" not in run["printed"]
    assert run["errors"] == ""
    for words in ("kill -9", "starting the driver again", "plain Spark", "nothing lost, nothing counted twice"):
        assert words in run["printed"]
    assert run["epoch_ms"]["p50"] > 0


def test_it_draws_a_chart(run: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")

    assert Path(run["chart"]).read_bytes().startswith(b"\x89PNG")


def test_nothing_of_it_runs_on(run: dict[str, Any]) -> None:
    ids = {id for kill in run["kills"] for id in kill["process_ids"]}

    assert not [process for process in processes().values() if process.id in ids and "ferryman" in process.command]
    assert not [process for process in below(os.getpid()) if "ferryman._demo" in process.command]


def test_a_result_that_was_altered_is_found_out(run: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "altered"
    shutil.copytree(run["out"], out)
    # A file of a committed epoch is gone; a whole epoch is no longer listed; and one sink is left as it was.
    gone = max((out / "rows" / "RunningAverage").glob("*.parquet"), key=lambda file: file.stat().st_size)
    gone.unlink()
    unlisted = sorted((out / "rows" / "Alarms" / "_ferryman").glob("*.json"))[1]
    unlisted.unlink()
    report = tmp_path / "result.json"

    done = subprocess.run([*COMMAND, "--check", str(out), "--json", str(report)], capture_output=True, text=True)

    assert done.returncode == 1
    assert "NOT EQUAL" in done.stdout
    equal = {operator["operator"]: operator["equal"] for operator in json.loads(report.read_text())["operators"]}
    assert equal == {"RunningAverage": False, "rooms": True, "Alarms": False}


def test_interrupting_it_ends_everything_it_started(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [*COMMAND, "--out", str(tmp_path / "out")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        # Interrupted with the JVM and its first Python processes up: the worst moment to leave anything behind.
        family = until(lambda: found if len(found := below(demo.pid)) >= 3 else [], "it does not come up")
        demo.send_signal(signal.SIGINT)

        assert demo.wait(timeout=60) == 130
        left = processes()
        assert [
            process for process in family if process.id in left and left[process.id].started == process.started
        ] == []
    finally:
        demo.kill()


def test_a_directory_that_is_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")

    done = subprocess.run([*COMMAND, "--out", str(tmp_path)], capture_output=True, text=True)

    assert done.returncode == 1
    assert "not empty" in done.stderr
    assert (tmp_path / "mine").read_text() == "precious"
