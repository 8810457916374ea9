"""A supervised driver: started again, never twice at once, ended in order, and gone when its supervisor is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from until import until

from ferryman._engine.supervisor import DONE, GAVE_UP, KILLED, LASTING
from ferryman._os.processes import look

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")

# Notes its own number, and that of a process it leaves behind; `starts` is how often it was started.
PRELUDE = """
import os, pathlib, signal, subprocess, sys, time
place = pathlib.Path(sys.argv[1])
with (place / "starts").open("a") as file:
    file.write(f"{os.getpid()}\\n")
starts = len((place / "starts").read_text().split())
"""
# What a JVM's workers are: another group, the same session.
LEAVES = 'left = subprocess.Popen(["sleep", "1000"], process_group=0) if sys.version_info >= (3, 11) else None\n'


def begin(tmp_path: Path, script: str, *options: str, by: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    file = tmp_path / "script.py"
    file.write_text(PRELUDE + script)
    words = ["run", *options, str(file), str(tmp_path)]
    return subprocess.Popen(
        [*by, sys.executable, "-c", "from ferryman._cli import app; app()", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "FERRYMAN_SUPERVISED"},
    )


def run(tmp_path: Path, script: str, *options: str) -> tuple[int, str, int]:
    """Run a script to its end; give the exit code, what was said, and how often it was started."""
    process = begin(tmp_path, script, *options)
    said = process.communicate(timeout=120)[1]
    return process.returncode, said, len(started(tmp_path))


def started(tmp_path: Path) -> list[int]:
    file = tmp_path / "starts"
    return [int(number) for number in file.read_text().split()] if file.exists() else []


def test_a_script_that_fails_is_started_again_until_it_ends(tmp_path):
    code, said, starts = run(tmp_path, "if starts < 3: sys.exit(7)", "--restart", "--wait", "0.01")

    assert (code, starts) == (DONE, 3)
    assert said.count("the driver has failed before an epoch was committed (exit code 7)") == 2


def test_a_script_that_always_fails_is_given_up_with_a_reason(tmp_path):
    code, said, starts = run(
        tmp_path, "raise ValueError('no such table')", "--restart", "--wait", "0.01", "--failures", "3"
    )

    assert (code, starts) == (GAVE_UP, 3)
    assert "given up: it has failed 3 times in" in said
    assert "the last time: ValueError: no such table" in said


def test_without_restart_one_failure_is_enough(tmp_path):
    assert run(tmp_path, "os.kill(os.getpid(), 9)")[::2] == (GAVE_UP, 1)


def test_an_error_that_another_start_would_meet_too_is_given_up_at_once(tmp_path):
    script = "from ferryman.errors import CheckpointInUse\nraise CheckpointInUse('by pid 7' + 900 * '.' + ' Stop it.')"
    code, said, starts = run(tmp_path, script, "--restart", "--wait", "0.01")

    assert (code, starts) == (LASTING, 1)
    assert "given up: another start would end the same way (CheckpointInUse: [CHECKPOINT_IN_USE] by pid 7..." in said
    assert said.rstrip().endswith(". Stop it.)")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="process_group")
def test_what_a_killed_driver_left_is_gone_before_the_next_one_starts(tmp_path):
    script = f"""
file = place / "left"
if starts == 2:
    from ferryman._os.processes import look
    sys.exit(look(int(file.read_text())) is not None)
{LEAVES}
file.write_text(str(left.pid))
os.kill(os.getpid(), 9)
"""
    assert run(tmp_path, script, "--restart", "--wait", "0.01")[::2] == (DONE, 2)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="process_group")
def test_nothing_is_left_of_a_supervisor_that_is_killed(tmp_path):
    process = begin(tmp_path, f'{LEAVES}\n(place / "left").write_text(str(left.pid))\ntime.sleep(1000)', "--restart")
    until(lambda: (tmp_path / "left").exists() and (tmp_path / "left").read_text(), "the script runs")
    left = [*started(tmp_path), int((tmp_path / "left").read_text())]
    process.kill()
    process.wait()

    until(lambda: not any(look(number) for number in left), "all of it is gone", timeout=20)
    assert len(started(tmp_path)) == 1


# A job as far as a supervisor sees one.
JOB = """
import threading
from ferryman._engine.supervised import announce

class Job:
    active = True
    over = threading.Event()
    def stop(self):
        (place / "stopped").touch()
        self.over.set()

job = Job()
announce(job, "job", "memory://", 0)
(place / "runs").touch()
"""


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_who_is_asked_to_end_has_the_job_end_after_its_epoch(tmp_path, asked):
    process = begin(tmp_path, JOB + 'job.over.wait()\n(place / "after").touch()', "--restart")
    until((tmp_path / "runs").exists, "the job runs")
    process.send_signal(asked)
    said = process.communicate(timeout=60)[1]

    assert process.returncode == DONE
    assert (tmp_path / "stopped").exists()
    assert (tmp_path / "after").exists()
    assert "the driver has ended, as it was asked to" in said


def test_who_is_started_by_nohup_goes_on_when_the_terminal_is_closed(tmp_path):
    script = JOB + "while not (place / 'enough').exists(): time.sleep(0.02)"
    process = begin(tmp_path, script, "--restart", by=("nohup",))
    until((tmp_path / "runs").exists, "the job runs")
    process.send_signal(signal.SIGHUP)
    (tmp_path / "enough").touch()
    said = process.communicate(timeout=60)[1]

    assert process.returncode == DONE
    assert "asked" not in said


def test_a_driver_that_does_not_end_in_time_is_killed(tmp_path):
    process = begin(tmp_path, JOB + "while True: time.sleep(1)", "--restart", "--grace", "0.2")
    until((tmp_path / "runs").exists, "the job runs")
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]

    assert process.returncode == KILLED
    assert "was killed; everything committed is intact" in said


def test_who_is_asked_to_end_between_two_drivers_starts_none(tmp_path):
    process = begin(tmp_path, "sys.exit(1)", "--restart", "--wait", "1000", "--most-wait", "1000")
    assert process.stderr is not None
    assert "starting again in" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=60) == DONE
    assert len(started(tmp_path)) == 1


def test_a_script_is_run_as_python_would_run_it(tmp_path):
    (tmp_path / "beside.py").write_text("value = 5\n")
    script = """
import beside
assert __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
assert sys.argv[1:] == [str(place), "--own", "x"], sys.argv
assert "FERRYMAN_SUPERVISED" not in os.environ
sys.exit(0 if beside.value == 5 else 1)
"""
    file = tmp_path / "script.py"
    file.write_text(PRELUDE + script)
    words = ["run", "--", str(file), str(tmp_path), "--own", "x"]
    done = subprocess.run(
        [sys.executable, "-c", "from ferryman._cli import app; app()", *words], stderr=subprocess.PIPE, text=True
    )

    assert done.returncode == DONE, done.stderr
