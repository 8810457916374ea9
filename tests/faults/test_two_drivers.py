"""A driver sleeps at any step of an epoch, loses its lock, and wakes up when another has gone on: it harms nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import fleet
import pytest
from test_driver_killed import PARTS, committed, drive, end
from until import until

from ferryman._log.check.verify import verify
from ferryman._log.files.checkpoint import Checkpoint
from ferryman._log.files.directory import directory

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

# One falls asleep as it starts, before its sinks know of it; the others in their second epoch.
STEPS = ("epoch:2", "before-sink:2", "start:1", "after-sink:2", "before-manifest:2", "after-manifest:2")


def asleep(process) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def until_asleep(process, timeout: float = 120) -> None:
    until(lambda: process.poll() is not None or asleep(process), "it did not come to its step", timeout)
    assert process.poll() is None, process.communicate()[0]


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        pytest.param(("after-sink:2",), 300, id="one"),
        pytest.param(STEPS, 800, id="all", marks=pytest.mark.slow),
    ],
)
def test_a_driver_that_wakes_up_after_it_was_taken_over_harms_nothing(spark, tmp_path, steps, rows):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    per_epoch = 50
    log = Checkpoint(directory(str(checkpoint)))
    before, manifests = None, {}
    try:
        # Each driver takes over from the one that sleeps, goes on a little, and falls asleep at a step of its own.
        for step in (*steps, None):
            fault = {} if step is None else {"FERRYMAN_FAULT": f"{step}:stop"}
            process = drive(checkpoint, out, rows, per_epoch, **fault)
            if step is not None:
                until_asleep(process)
            else:
                output = end(process)
                assert process.returncode == 0, output
            if before is not None:
                for epoch in log.epochs():
                    manifests.setdefault(epoch, log.manifest(epoch))
                os.kill(before.pid, signal.SIGCONT)
                output = end(before)
                assert before.returncode not in (0, None), output
                assert "SUPERSEDED" in output
            # Its lease has run out, or somebody has tidied up.
            (checkpoint / ".lock").unlink()
            before = process if step is not None else None
    finally:
        if before is not None and before.poll() is None:
            os.killpg(before.pid, signal.SIGKILL)
    assert committed(checkpoint) == rows // per_epoch
    kept = {epoch: log.manifest(epoch) for epoch in log.epochs()}
    assert all(manifests[epoch] == manifest for epoch, manifest in kept.items() if epoch in manifests), (
        "history was changed"
    )
    terms = [kept[epoch].term for epoch in sorted(kept)]
    assert terms == sorted(terms), "a run that was taken over has committed"
    assert fleet.found(spark, str(checkpoint), str(out), PARTS) == fleet.expected(rows, PARTS)
    assert not verify(log).faults
