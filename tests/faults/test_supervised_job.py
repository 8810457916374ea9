"""`ferryman run --restart` with a real job: it is killed again and again, and its results are exact."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fleet
import pytest
from test_driver_killed import DRIVE, PARTS, committed

from ferryman._engine.supervisor import DONE, LASTING
from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory
from ferryman._log.files.lock import CheckpointLock

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def run(checkpoint: Path, out: Path, rows: int, **environment: str) -> subprocess.CompletedProcess[str]:
    words = ["run", "--restart", "--wait", "0.01", str(DRIVE), str(checkpoint), str(out), str(rows), "50", "2"]
    return subprocess.run(
        [sys.executable, "-c", "from ferryman._cli import app; app()", *words, "local[2,4]"],
        env={**os.environ, "FLEET_PARTS": ",".join(PARTS), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_a_job_whose_drivers_are_all_killed_goes_on_to_exact_results(spark, tmp_path):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    # Every driver dies in its third epoch, when its sinks have written.
    done = run(checkpoint, out, 250, FERRYMAN_FAULT="after-sink:3")

    assert done.returncode == DONE, done.stdout
    assert done.stdout.count("(killed by SIGKILL)") == 2, done.stdout
    assert "after 2 epochs (killed by SIGKILL); starting again in" in done.stdout
    assert "doing epoch 3 again; restored 0 of" in done.stdout
    assert "goes on after epoch 4; started in" in done.stdout
    assert fleet.found(spark, str(checkpoint), str(out), PARTS) == fleet.expected(250, PARTS)
    assert not verify(Checkpoint(directory(str(checkpoint)))).faults


def test_a_second_run_of_a_job_is_refused_and_says_so(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    with CheckpointLock(directory(str(checkpoint)), fleet.NAME):
        done = run(checkpoint, tmp_path / "out", 100)

    assert done.returncode == LASTING, done.stdout
    assert f"CheckpointInUse: [CHECKPOINT_IN_USE] {directory(str(checkpoint)).uri} is in use" in done.stdout
    assert committed(checkpoint) == 0
