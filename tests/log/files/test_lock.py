"""One job per checkpoint."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from until import until

from ferryman._log.files.directory import LocalDirectory
from ferryman._log.files.lock import CheckpointLock
from ferryman._log.files.remote import RemoteDirectory
from ferryman._model.errors import CheckpointInUse, CheckpointUnwritable, CorruptCheckpoint


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
        "from ferryman._log.files.directory import LocalDirectory\n"
        "from ferryman._log.files.lock import CheckpointLock\n"
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


def test_a_lock_whose_file_was_deleted_while_it_was_taken_is_taken_on_the_file_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, flock, first = tmp_path / ".lock", fcntl.flock, []

    def delayed(fd: int, how: int) -> None:
        if not first:
            # Between opening and locking, somebody tidies up and another job starts.
            first.append(True)
            lock.unlink()
            other.append(CheckpointLock(LocalDirectory(tmp_path), "other"))
        flock(fd, how)

    other: list[CheckpointLock] = []
    monkeypatch.setattr(fcntl, "flock", delayed)

    with pytest.raises(CheckpointInUse, match="other"):
        CheckpointLock(LocalDirectory(tmp_path), "late")


def test_a_forked_child_does_not_keep_the_lock_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from ferryman._log.files.directory import LocalDirectory\n"
        "from ferryman._log.files.lock import CheckpointLock\n"
        "lock = CheckpointLock(LocalDirectory(Path(sys.argv[1])), 'parent')\n"
        "child = os.fork()\n"
        "if child:\n"
        "    print(child, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
        "signal.pause()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())

    def is_free() -> bool:
        try:
            CheckpointLock(LocalDirectory(tmp_path), "next").release()
        except CheckpointInUse:
            return False
        return True

    try:
        parent.wait()
        # The child may not have come to its first line yet.
        until(is_free, "the child keeps the lock", 10)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path, there: bool) -> None:
    letter = tmp_path / "letter"
    if there:
        letter.write_text("dear")
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / ".lock").symlink_to(letter)

    with pytest.raises(CorruptCheckpoint, match=r"\.lock in .* is a link, or no plain file"):
        CheckpointLock(LocalDirectory(tmp_path / "checkpoint"), "test")

    assert (letter.read_text() if there else letter.exists()) == ("dear" if there else False)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_plain_file_is_no_lock(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / ".lock")

    with pytest.raises(CorruptCheckpoint, match=r"\.lock in .* is a link, or no plain file"):
        CheckpointLock(LocalDirectory(tmp_path), "test")


def test_a_lock_that_has_a_second_name_is_made_anew(tmp_path: Path) -> None:
    letter = tmp_path / "letter"
    letter.write_text("dear")
    (tmp_path / "checkpoint").mkdir()
    os.link(letter, tmp_path / "checkpoint" / ".lock")

    with CheckpointLock(LocalDirectory(tmp_path / "checkpoint"), "test"):
        assert '"test"' in (tmp_path / "checkpoint" / ".lock").read_text()
        with pytest.raises(CheckpointInUse, match="test"):
            CheckpointLock(LocalDirectory(tmp_path / "checkpoint"), "second")

    assert letter.read_text() == "dear"
