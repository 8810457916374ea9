"""One job per checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferryman._log.directory import LocalDirectory, RemoteDirectory
from ferryman._log.lock import CheckpointLock
from ferryman._model.errors import CheckpointInUse, CheckpointUnwritable


def test_the_second_job_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    with CheckpointLock(LocalDirectory(tmp_path), "first"):  # noqa: SIM117
        with pytest.raises(CheckpointInUse, match=rf'"job": "first", "pid": {os.getpid()}'):
            CheckpointLock(LocalDirectory(tmp_path), "second")


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    lock = CheckpointLock(LocalDirectory(tmp_path), "a job with a long name")
    lock.release()
    lock.release()

    with CheckpointLock(LocalDirectory(tmp_path), "b"):
        assert '"b"' in (tmp_path / ".lock").read_text()
        assert "long name" not in (tmp_path / ".lock").read_text()


def test_a_refused_job_does_not_take_the_lock_away(tmp_path: Path) -> None:
    with CheckpointLock(LocalDirectory(tmp_path), "first"):
        for _ in range(2):
            with pytest.raises(CheckpointInUse, match="first"):
                CheckpointLock(LocalDirectory(tmp_path), "second")


def test_the_lock_of_a_killed_job_is_free(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from ferryman._log.directory import LocalDirectory; from ferryman._log.lock import CheckpointLock\n"
        "lock = CheckpointLock(LocalDirectory(Path(sys.argv[1])), 'killed')\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    job = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "held\n"
    with pytest.raises(CheckpointInUse, match="killed"):
        CheckpointLock(LocalDirectory(tmp_path), "next")

    job.kill()
    job.communicate()

    CheckpointLock(LocalDirectory(tmp_path), "next").release()


def test_a_file_in_the_place_of_the_checkpoint_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(CheckpointUnwritable, match="File exists"):
        CheckpointLock(LocalDirectory(tmp_path / "file"), "test")


def test_a_remote_directory_has_no_lock_and_manifests_keep_the_second_job_out(tmp_path: Path) -> None:
    place = RemoteDirectory(tmp_path.as_uri())
    with CheckpointLock(place, "first"), CheckpointLock(place, "second"):
        assert place.write_new("manifests/000000000001.json", b"first")
        assert not place.write_new("manifests/000000000001.json", b"second")
