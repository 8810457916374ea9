"""Directories: whole files or none, on the local disk and through pyarrow's filesystems alike."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from written_log import WrittenLog

from ferryman._log.check.verify import verify
from ferryman._log.files.directory import Directory, LocalDirectory, directory
from ferryman._log.files.lock import CheckpointLock
from ferryman._log.files.remote import RemoteDirectory
from ferryman._log.fold.snapshot import write_snapshot
from ferryman._model.errors import CheckpointUnwritable, InvalidConfiguration
from ferryman._os.disk import Disk

KINDS: dict[str, Callable[[Path], Directory]] = {
    "local": LocalDirectory,
    "synced": lambda path: LocalDirectory(path, fsync=True),
    "remote": lambda path: RemoteDirectory(path.as_uri()),
}


@pytest.fixture(params=list(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return KINDS[request.param](tmp_path / "check point")


def test_what_is_written_is_read_back(place: Directory) -> None:
    place.write("folder/one", b"1234")
    place.write("folder/one", pa.py_buffer(b"56"))
    place.write("folder/empty", b"")

    assert place.read("folder/one").to_pybytes() == b"56"
    assert place.read("folder/empty").to_pybytes() == b""
    assert place.exists("folder/one")
    assert not place.exists("folder/two")
    with pytest.raises(FileNotFoundError):
        place.read("folder/two")


def test_a_new_file_is_written_once(place: Directory) -> None:
    assert place.write_new("folder/one", b"first")
    assert not place.write_new("folder/one", b"second")

    assert place.read("folder/one").to_pybytes() == b"first"
    assert place.list("folder") == ["one"]


def test_listing_is_sorted_and_a_folder_that_is_not_there_is_empty(place: Directory) -> None:
    for name in ("b", "a", "c"):
        place.write(f"folder/{name}", b"x")

    assert place.list("folder") == ["a", "b", "c"]
    assert place.list("nothing") == []


def test_deleting_what_is_gone_does_not_matter(place: Directory) -> None:
    place.write("folder/one", b"x")

    place.delete(["folder/one", "folder/never"])
    place.delete(["folder/one"])

    assert place.list("folder") == []


def test_a_buffer_that_was_read_survives_the_files_replacement(place: Directory) -> None:
    place.write("one", b"old" * 1000)
    held = place.read("one")

    place.write("one", b"new" * 1000)
    place.delete(["one"])

    assert held.to_pybytes() == b"old" * 1000


def test_a_reader_never_sees_half_a_file(place: Directory) -> None:
    contents = [bytes([number]) * (1 << 16) for number in range(1, 9)]
    place.write("one", contents[0])
    done = threading.Event()

    def write() -> None:
        for turn in range(200):
            place.write("one", contents[turn % 8])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not done.is_set():
        seen.append(place.read("one").to_pybytes())
    writer.join()

    assert seen
    assert set(seen) <= set(contents)


def test_one_of_many_writers_of_a_new_file_wins(tmp_path: Path) -> None:
    place = LocalDirectory(tmp_path)
    won: list[int] = []
    start = threading.Barrier(8)

    def write(number: int) -> None:
        start.wait()
        if place.write_new("manifest", str(number).encode()):
            won.append(number)

    writers = [threading.Thread(target=write, args=[number]) for number in range(8)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()

    assert len(won) == 1
    assert place.read("manifest").to_pybytes() == str(won[0]).encode()
    assert os.listdir(tmp_path) == ["manifest"]


def test_what_a_killed_writer_leaves_is_not_listed_and_swept_on_request(tmp_path: Path) -> None:
    # The writer is killed between writing the third file and giving it its name.
    script = (
        "import sys; from pathlib import Path; from ferryman._log.files.directory import LocalDirectory\n"
        "place = LocalDirectory(Path(sys.argv[1]))\n"
        "place.write('folder/one', b'x' * 100); place.write_new('folder/two', b'y' * 100)\n"
        "temporary = place._temporary('folder/three', b'z' * 100)\n"
        "print('there', flush=True); sys.stdin.read()\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "there\n"
    writer.kill()
    writer.communicate()

    for place in (LocalDirectory(tmp_path), RemoteDirectory(tmp_path.as_uri())):
        assert place.list("folder") == ["one", "two"]
    left = [name for name in os.listdir(tmp_path / "folder") if name.startswith(".three")]
    assert len(left) == 1
    LocalDirectory(tmp_path).sweep("folder")
    assert sorted(os.listdir(tmp_path / "folder")) == ["one", "two"]
    # In the root there are hidden files of others, and the lock.
    for name in (".intent.json.0123456789ab", ".lock", ".gitignore", "ferryman.json"):
        (tmp_path / name).touch()
    LocalDirectory(tmp_path).sweep("")
    assert sorted(os.listdir(tmp_path)) == [".gitignore", ".lock", "ferryman.json", "folder"]


def test_what_is_swept_is_only_what_a_writer_left(tmp_path: Path) -> None:
    place, victim = LocalDirectory(tmp_path / "checkpoint"), tmp_path / "victim"
    for folder in (place.root / "deltas", victim):
        (folder / ".ssh").mkdir(parents=True)
        (folder / ".ssh" / "key").touch()
        (folder / ".one.arrow.0123456789ab").mkdir()
        (folder / ".two.arrow.0123456789ab").touch()
        (folder / ".profile").touch()
    (place.root / "held").symlink_to(victim)

    for folder in ("deltas", "held", "none"):
        place.sweep(folder)

    assert sorted(os.listdir(place.root / "deltas")) == [".one.arrow.0123456789ab", ".profile", ".ssh"]
    assert len(os.listdir(victim)) == 4
    assert (victim / ".ssh" / "key").exists()


def test_a_file_is_not_opened_through_a_link(tmp_path: Path) -> None:
    place = LocalDirectory(tmp_path / "checkpoint")
    place.write("deltas/one", b"x")
    (tmp_path / "secret").write_bytes(b"secret")
    (place.root / "deltas" / "two").symlink_to(tmp_path / "secret")

    assert place.open("deltas/one").read() == b"x"
    with pytest.raises(OSError, match="Not a plain file"):
        place.open("deltas/two")


def test_a_path_and_a_file_uri_give_the_same_directory(tmp_path: Path) -> None:
    path = tmp_path / "with space #1"
    directory(str(path)).write("one", b"x")

    assert directory(path.as_uri()).read("one").to_pybytes() == b"x"
    assert directory(str(path)).uri == directory(path.as_uri()).uri == str(path)


def test_a_uri_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"neither a path nor a URI that pyarrow reaches"):
        directory("gopher://host/folder")


def test_a_whole_checkpoint_lives_behind_a_uri(tmp_path: Path) -> None:
    log = WrittenLog(RemoteDirectory(tmp_path.as_uri()))
    log.commit({"Counts": {"a": 1, "b": 2}})
    write_snapshot(log.checkpoint, 1)
    log.commit({"Counts": {"a": None}})

    log.assert_rebuilds(1)
    log.assert_rebuilds(2)
    assert verify(log.checkpoint).sound
    log.checkpoint.directory.delete(["manifests/000000000002.json"])
    assert log.checkpoint.epochs() == [1]


# -- disks that refuse -----------------------------------------------------------------------------


def _mount(path: Path, options: str) -> None:
    path.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    _mount(path, "size=256k")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """Give a directory that may not be written; root may write all but a read-only mount."""
    path = tmp_path / "read-only"
    path.mkdir()
    if os.geteuid():
        path.chmod(0o500)
        yield path
        path.chmod(0o700)
    else:
        _mount(path, "ro")
        yield path
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_read_only_directory_is_unwritable(read_only: Path, kind: str) -> None:
    place = KINDS[kind](read_only)

    with pytest.raises(CheckpointUnwritable, match=r"cannot write to .*read-only"):
        place.write("folder/one", b"x")
    with pytest.raises(CheckpointUnwritable, match=r"cannot write to .*read-only"):
        place.write_new("folder/one", b"x")


def test_a_job_cannot_lock_a_read_only_directory(read_only: Path) -> None:
    with pytest.raises(CheckpointUnwritable, match="cannot write to"):
        CheckpointLock(LocalDirectory(read_only), "test")


def test_a_full_disk_is_unwritable_and_what_was_committed_stays_whole(small_disk: Path) -> None:
    log = WrittenLog(LocalDirectory(small_disk))
    log.commit({"Counts": {"a": 1}})

    with pytest.raises(CheckpointUnwritable, match="No space left on device"):
        log.checkpoint.directory.write("deltas/large", b"x" * (1 << 20))

    assert not log.checkpoint.directory.exists("deltas/large")
    assert [name for name in os.listdir(small_disk / "deltas") if name.startswith(".")] == []
    assert verify(log.checkpoint).sound
    log.commit({"Counts": {"a": 2}})
    log.assert_rebuilds(2)


def test_a_job_cannot_lock_on_a_full_disk(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * (256 << 10))

    with pytest.raises(CheckpointUnwritable, match="No space left on device"):
        CheckpointLock(LocalDirectory(small_disk / "job"), "test")


def test_a_file_that_may_not_grow_is_unwritable(tmp_path: Path) -> None:
    place = LocalDirectory(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(CheckpointUnwritable, match="File too large"):
            place.write("one", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert os.listdir(tmp_path) == []


def test_a_checkpoint_that_is_deleted_under_a_job_is_unwritable(tmp_path: Path) -> None:
    place = LocalDirectory(tmp_path / "checkpoint")
    place.write("deltas/one", b"x")
    shutil.rmtree(tmp_path / "checkpoint")

    with pytest.raises(CheckpointUnwritable, match="No such file or directory"):
        place.write("deltas/two", b"x")


def test_a_file_in_the_place_of_a_folder_is_unwritable(tmp_path: Path) -> None:
    (tmp_path / "deltas").write_bytes(b"")

    with pytest.raises(CheckpointUnwritable, match="File exists"):
        LocalDirectory(tmp_path).write("deltas/one", b"x")


@pytest.mark.parametrize("error", [FileExistsError(errno.EEXIST, "sent again"), OSError(errno.EIO, "no reply")])
def test_a_link_that_was_made_and_whose_reply_was_lost_is_ones_own(tmp_path: Path, error: OSError) -> None:
    class Mounted(Disk):
        def link(self, path: str, name: str) -> None:
            super().link(path, name)
            raise error

    place = LocalDirectory(tmp_path, disk=Mounted())

    assert place.write_new("manifests/1.json", b"mine")
    assert bytes(place.read("manifests/1.json")) == b"mine"
    if isinstance(error, FileExistsError):
        assert not LocalDirectory(tmp_path).write_new("manifests/1.json", b"another's")


def test_files_are_moved_once_however_often_it_is_said(place: Directory) -> None:
    place.write("aside/one", b"1")

    for _ in range(2):
        place.move({"aside/one": "one"})

    assert bytes(place.read("one")) == b"1"
    assert place.list("aside") == []
    with pytest.raises(FileNotFoundError, match="two"):
        place.move({"aside/two": "two"})
    place.remove("aside")
    place.remove("aside")
